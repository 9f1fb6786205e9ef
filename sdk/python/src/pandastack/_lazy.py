"""The types of the API, loaded when the first of them is used.

There are many, and making them is most of what importing this package would
take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._generated import models as models
else:

    class _Models:
        def __getattr__(self, name):
            from ._generated import models

            return getattr(models, name)

    models = _Models()
