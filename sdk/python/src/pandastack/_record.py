"""What the types of the API have in common.

They are dataclasses whose methods stand here and in their own text: those that
the decorator writes it also compiles, whenever the package is imported.
"""

from __future__ import annotations

from typing import Any


class Record:
    """A value of the API: equal to one with the same fields, and printed with them."""

    def __repr__(self) -> str:
        fields: Any = getattr(type(self), "__dataclass_fields__")
        said = ", ".join(f"{name}={self.__dict__[name]!r}" for name in fields if name in self.__dict__)
        return f"{type(self).__name__}({said})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__
