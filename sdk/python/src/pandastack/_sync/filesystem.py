# Made by tools/unasync.py from _async/filesystem.py. Do not edit.

"""The files of a sandbox."""

from __future__ import annotations

import os
import stat
import tempfile
from typing import IO, TYPE_CHECKING, Any, Iterable, Iterator, List, Literal, Union, overload

from .. import _check, _core
from .._core import Request
from . import _io

if TYPE_CHECKING:
    import httpx

    from .._generated.models import FileInfo
    from .transport import Transport

    Data = Union[str, bytes, bytearray, memoryview, IO[bytes], IO[str], Iterable[bytes]]
    LocalPath = Union[str, "os.PathLike[str]"]


class Filesystem:
    """The filesystem of a sandbox.

    Relative paths start in the home directory of the user, which is the
    sandbox's default one unless user= names another; what is made belongs to
    that user. Failures carry file.* codes: NotFoundError (file.not_found),
    BadRequestError (file.permission_denied, file.is_directory), CapacityError
    (file.no_space) and others.
    """

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        self._transport = transport
        self._base = ("v1", "sandboxes", sandbox_id, "fs")

    def _request(self, method: str, path: object, user: object, *endpoint: str, **more: Any) -> Request:
        query: dict[str, Any] = {"path": _check.path("path", path)}
        if user is not None:
            query["user"] = _check.text("user", user, empty=False)
        return Request(method, self._base + endpoint, query, **more)

    @overload
    def read(self, path: str, *, format: Literal["text"] = "text", user: str | None = None) -> str: ...

    @overload
    def read(self, path: str, *, format: Literal["bytes"], user: str | None = None) -> bytes: ...

    @overload
    def read(self, path: str, *, format: Literal["stream"], user: str | None = None) -> Iterator[bytes]: ...

    def read(self, path: str, *, format: str = "text", user: str | None = None) -> str | bytes | Iterator[bytes]:
        """Reads a file.

        format: "text" gives a str, and a ValueError if the file is not UTF-8;
        "bytes" gives bytes; "stream" gives an iterator of bytes for files that
        are too large for memory.
        """
        _check.choice("format", format, ("text", "bytes", "stream"))
        request = self._request("GET", path, user, accept="*/*")
        if format == "stream":
            return self._transport.chunks(self._transport.open(request))
        data = (self._transport.send(request)).content
        if format == "bytes":
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as e:
            raise ValueError(f"{path} is not UTF-8 text (byte {e.start}); read it with format='bytes'") from None

    def write(self, path: str, data: Data, *, user: str | None = None) -> FileInfo:
        """Makes or replaces a file, and the directories above it.

        data: str (written as UTF-8), bytes, a file object, or an iterable of
        bytes; the last two are streamed and may be of any length.
        """
        from .._generated.models import FileInfo

        content: Any
        length = None
        if isinstance(data, str):
            content = data.encode()
        elif isinstance(data, (bytes, bytearray, memoryview)):
            content = bytes(data)
        elif _io.is_source(data):
            content, length = data, _length(data)
        else:
            raise TypeError(f"data is str, bytes, a file or an iterable of bytes, not {type(data).__name__}")
        request = self._request("PUT", path, user, content=content, length=length, timeout=_core.SLOWER)
        return self._transport.call(request, FileInfo.from_dict)

    def upload(self, source: LocalPath | IO[bytes], path: str, *, user: str | None = None) -> FileInfo:
        """Copies a file of this machine, a path or a file object, into the sandbox."""
        if not isinstance(source, (str, os.PathLike)):
            if not hasattr(source, "read"):
                raise TypeError(f"source is a path or a file, not {type(source).__name__}")
            return self.write(path, source, user=user)
        file = _io.in_thread(open, source, "rb")
        try:
            return self.write(path, file, user=user)
        finally:
            file.close()

    def download(self, path: str, target: LocalPath | IO[bytes], *, user: str | None = None) -> int:
        """Copies a file of the sandbox to this machine, and gives its length.

        target: a path or a file object. A path has the whole file or, after an
        error, what it had before.
        """
        if not isinstance(target, (str, os.PathLike)) and not hasattr(target, "write"):
            raise TypeError(f"target is a path or a file, not {type(target).__name__}")
        response = self._transport.open(self._request("GET", path, user, accept="*/*"))
        return save(self._transport, response, target)

    def list(self, path: str = ".", *, depth: int = 1, user: str | None = None) -> List[FileInfo]:
        """Lists a directory, and depth-1 levels of those within."""
        from .._generated.models import DirList

        request = self._request("GET", path, user, "dir")
        request.query = {**(request.query or {}), "depth": _check.whole("depth", depth, low=1)}
        return (self._transport.call(request, DirList.from_dict)).entries

    def stat(self, path: str, *, user: str | None = None) -> FileInfo:
        """Describes a file or directory."""
        from .._generated.models import FileInfo

        return self._transport.call(self._request("GET", path, user, "stat"), FileInfo.from_dict)

    def exists(self, path: str, *, user: str | None = None) -> bool:
        """Whether there is something at a path."""
        from ..errors import NotFoundError

        try:
            self.stat(path, user=user)
        except NotFoundError as e:
            if e.code != "file.not_found":
                raise
            return False
        return True

    def mkdir(self, path: str, *, user: str | None = None) -> FileInfo:
        """Makes a directory and those above it. One that exists is no error."""
        from .._generated.models import FileInfo

        return self._transport.call(self._request("POST", path, user, "dir"), FileInfo.from_dict)

    def remove(self, path: str, *, user: str | None = None) -> None:
        """Removes a file, or a directory with all that is in it."""
        self._transport.do(self._request("DELETE", path, user))

    def rename(self, path: str, to: str, *, user: str | None = None) -> FileInfo:
        """Moves a file or directory."""
        from .._generated.models import FileInfo

        request = self._request("POST", path, user, "move")
        request.json = {"from": _check.path("path", path), "to": _check.path("to", to)}
        request.query = {"user": user} if user is not None else None
        return self._transport.call(request, FileInfo.from_dict)


def save(transport: Transport, response: httpx.Response, target: Any) -> int:
    """Writes the body of an answer to a file object or a path."""
    if hasattr(target, "write"):
        return _copy(transport, response, target)
    path = os.path.realpath(os.fspath(target))
    if os.path.exists(path) and not os.path.isfile(path):
        # A device or a pipe is written to, never replaced; a directory is an
        # error.
        try:
            with open(path, "wb") as file:
                return _copy(transport, response, file)
        finally:
            response.close()
    try:
        handle, partial = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".pandastack-")
    except OSError:
        response.close()
        raise
    try:
        with open(handle, "wb") as file:
            size = _copy(transport, response, file)
        os.chmod(partial, _mode(path))
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
    return size


def _mode(target: str) -> int:
    """The mode of a file that is replaced, or what a new one gets."""
    try:
        return os.stat(target).st_mode & 0o7777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _copy(transport: Transport, response: httpx.Response, file: Any) -> int:
    size = 0
    chunks = transport.chunks(response)
    try:
        for chunk in chunks:
            _io.write(file, chunk)
            size += len(chunk)
    finally:
        response.close()
    return size


def _length(data: Any) -> int | None:
    """The bytes left in a file object, where that is known."""
    try:
        status = os.fstat(data.fileno())
        left: int = status.st_size - data.tell()
    except (AttributeError, OSError, ValueError):
        return None
    binary = "b" in str(getattr(data, "mode", ""))
    return left if binary and stat.S_ISREG(status.st_mode) and left >= 0 else None
