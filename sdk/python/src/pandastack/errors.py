"""The errors of this package.

There is one class for each family of failures, so that programs can catch what
they can do something about:

    PandastackError
    ├── AuthError            the key is missing, wrong, revoked, or may not do this
    ├── NotFoundError        there is no such sandbox, file, template, snapshot or key
    ├── BadRequestError      the request itself is wrong; the same one never works
    ├── ConflictError        what it is about is in another state, or is taken
    ├── QuotaError           a limit of the caller's is reached, or too many requests
    ├── CapacityError        no room on any host, disk or store
    ├── TimeoutError         it took longer than was allowed
    ├── ServerError          the server failed
    └── APIConnectionError   no server answers, or what answers is not one

Which code belongs to which class stands in a table made from the server's own
catalogue, docs/errors.md. Arguments of a wrong type or value never become a
request: they raise the built-in TypeError and ValueError.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    import httpx


class PandastackError(Exception):
    """Any failure of a call.

    code is the stable name of the failure, which programs branch on; message
    says what happened and hint what to do about it; request_id finds the
    request in the server's log; details has more, by code. status_code (also
    status) and response are those of the HTTP answer, None if there was none.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        hint: str = "",
        request_id: str = "",
        status_code: int | None = None,
        details: Mapping[str, Any] | None = None,
        response: httpx.Response | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.request_id = request_id
        self.status_code = status_code
        self.details: dict[str, Any] = dict(details or {})
        self.response = response

    @property
    def status(self) -> int | None:
        """The HTTP status, as status_code."""
        return self.status_code

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        from ._generated.errors import CATALOGUE

        said = self.details.get("retryable")
        if isinstance(said, bool):
            return said
        return self.code in CATALOGUE and CATALOGUE[self.code][2]

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the server says to try again, if it does."""
        said = self.details.get("retry_after_sec")
        return float(said) if isinstance(said, (int, float)) else None

    def __str__(self) -> str:
        named = ", ".join(part for part in (self.code, self.request_id) if part)
        text = f"{self.message} [{named}]" if named else self.message
        return f"{text}. {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        # An answer does not survive being pickled; everything else does.
        state = {k: v for k, v in self.__dict__.items() if k != "response"}
        return (_rebuild, (type(self), self.message, state))


def _rebuild(cls: type[PandastackError], message: str, state: dict[str, Any]) -> PandastackError:
    error = cls(message)
    error.__dict__.update(state)
    return error


class AuthError(PandastackError):
    """The key is missing, wrong, revoked, or may not do this."""


class NotFoundError(PandastackError):
    """There is no such sandbox, file, template, snapshot, key or endpoint."""


class BadRequestError(PandastackError):
    """The request itself is wrong, or asks for what this server cannot do."""


class ConflictError(PandastackError):
    """What the call is about is in another state, or its name is taken."""


class QuotaError(PandastackError):
    """A limit of the caller's is reached, or there were too many requests."""


class CapacityError(PandastackError):
    """There is no room now: on a host, a disk, or in the snapshot store."""


class TimeoutError(PandastackError, builtins.TimeoutError):
    """It took longer than was allowed. It is a built-in TimeoutError too."""


class ServerError(PandastackError):
    """The server failed; its log has the cause under the request id."""


class APIConnectionError(PandastackError):
    """No server answers, the connection broke, or what answers is not a PandaStack server."""


_FAMILIES: dict[str, type[PandastackError]] = {
    cls.__name__: cls
    for cls in (
        AuthError,
        NotFoundError,
        BadRequestError,
        ConflictError,
        QuotaError,
        CapacityError,
        TimeoutError,
        ServerError,
        APIConnectionError,
    )
}


def family(code: str, status: int | None) -> type[PandastackError]:
    """The class of a failure. A code that this version does not know goes by its status."""
    from ._generated.errors import CATALOGUE, FAMILY_BY_STATUS

    if code in CATALOGUE:
        return _FAMILIES[CATALOGUE[code][0]]
    if status in FAMILY_BY_STATUS:
        return _FAMILIES[FAMILY_BY_STATUS[status]]
    return BadRequestError if status is not None and 400 <= status < 500 else ServerError


def coded(code: str, message: str, *, hint: str | None = None, **more: Any) -> PandastackError:
    """An error of this side, with the advice of the catalogue unless there is better."""
    from ._generated.errors import CATALOGUE

    if hint is None:
        hint = CATALOGUE[code][3] if code in CATALOGUE else ""
    return family(code, more.get("status_code"))(message, code=code, hint=hint, **more)
