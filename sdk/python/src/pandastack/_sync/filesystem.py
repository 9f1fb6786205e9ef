# Made by tools/unasync.py from _async/filesystem.py. Do not edit.

"""The files of a sandbox."""

from __future__ import annotations

import io
import os
import stat
from typing import IO, TYPE_CHECKING, Any, Iterable, Callable, List, Literal, Sequence, TypeVar, Union, overload

from .. import _check, _core
from .._core import Request
from . import _io

if TYPE_CHECKING:
    import httpx

    from .._generated.models import Extracted, FileEvent, FileInfo, GlobResult, ReplaceResult, SearchResult, SignedFile
    from .file import File
    from .stream import Stream
    from .transport import Transport

    Data = Union[str, bytes, bytearray, memoryview, IO[bytes], IO[str], Iterable[bytes]]
    LocalPath = Union[str, "os.PathLike[str]"]

T = TypeVar("T")
BYTES = "application/octet-stream"
ARCHIVE = "application/gzip"
FIND_TIMEOUT = 30.0  # seconds that the server allows search and replace, unless told otherwise


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

    def _operation(self, name: str, user: object, body: dict[str, Any], **more: Any) -> Request:
        query = None if user is None else {"user": _check.text("user", user, empty=False)}
        body = {k: v for k, v in body.items() if v is not None}
        return Request("POST", (*self._base, name), query, json=body, **more)

    @overload
    def read(
        self,
        path: str,
        *,
        format: Literal["text"] = "text",
        offset: int | None = None,
        length: int | None = None,
        user: str | None = None,
    ) -> str: ...

    @overload
    def read(
        self,
        path: str,
        *,
        format: Literal["bytes"],
        offset: int | None = None,
        length: int | None = None,
        user: str | None = None,
    ) -> bytes: ...

    @overload
    def read(
        self,
        path: str,
        *,
        format: Literal["stream"],
        offset: int | None = None,
        length: int | None = None,
        user: str | None = None,
    ) -> Stream[bytes]: ...

    def read(
        self,
        path: str,
        *,
        format: str = "text",
        offset: int | None = None,
        length: int | None = None,
        user: str | None = None,
    ) -> str | bytes | Stream[bytes]:
        """Reads a file.

        format: "text" gives a str, and a ValueError if the file is not UTF-8;
        "bytes" gives bytes; "stream" gives a stream of bytes, for files that are
        too large for memory: iterate over it to the end, or close it.
        offset, length: only these bytes; fewer where the file ends before
        (BadRequestError where it has none of them).
        """
        _check.choice("format", format, ("text", "bytes", "stream"))
        request = self._request("GET", path, user, accept="*/*", headers=_range(offset, length))
        if format == "stream":
            from .stream import ByteStream

            return ByteStream(self._transport, opened(self._transport, request, BYTES))
        response = self._transport.send(request)
        if not _core.is_kind(response, BYTES):
            raise _core.not_a_server(self._transport.settings, response)
        data = response.content
        if format == "bytes":
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as e:
            raise ValueError(f"{path} is not UTF-8 text (byte {e.start}); read it with format='bytes'") from None

    def write(
        self,
        path: str,
        data: Data,
        *,
        atomic: bool = False,
        offset: int | None = None,
        user: str | None = None,
    ) -> FileInfo:
        """Makes or replaces a file, and the directories above it.

        data: str (written as UTF-8), bytes, a file object, or an iterable of
        bytes; the last two are streamed and may be of any length.
        atomic: who reads the file sees the old bytes or all of the new ones.
        offset: go on from this byte, which is no more than the size; what was
        behind it is dropped, and what has come stays when it breaks off.
        """
        from .._generated.models import FileInfo

        content, length = body_of(data)
        request = self._request("PUT", path, user, content=content, length=length, timeout=_core.SLOWER)
        query = dict(request.query or {})
        if _check.truth("atomic", atomic):
            query["atomic"] = "true"
        if offset is not None:
            query["offset"] = _check.whole("offset", offset)
        request.query = query
        return self._transport.call(request, FileInfo.from_dict)

    def append(self, path: str, data: Data, *, user: str | None = None) -> FileInfo:
        """Puts data, as for write, at the end of a file, which is made if need be."""
        from .._generated.models import FileInfo

        content, length = body_of(data)
        request = self._request("POST", path, user, "append", content=content, length=length, timeout=_core.SLOWER)
        return self._transport.call(request, FileInfo.from_dict)

    @overload
    def open(self, path: str, mode: Literal["r", "w", "a"] = "r", *, user: str | None = None) -> File[str]: ...

    @overload
    def open(self, path: str, mode: Literal["rb", "wb", "ab"], *, user: str | None = None) -> File[bytes]: ...

    def open(self, path: str, mode: str = "r", *, user: str | None = None) -> File[str] | File[bytes]:
        """Opens a file, as the function of the same name does.

        mode: r reads, w replaces, a goes on at the end; with b as bytes.
        """
        from .file import File, checked_mode

        file: File[Any] = File(self, path, checked_mode(mode), user)
        file.start()
        return file

    def upload(self, source: LocalPath | IO[bytes], path: str, *, user: str | None = None) -> FileInfo:
        """Copies a file of this machine, a path or a file object, into the sandbox."""
        if not isinstance(source, (str, os.PathLike)):
            if not hasattr(source, "read"):
                raise TypeError(f"source is a path or a file, not {type(source).__name__}")
            return self.write(path, source, user=user)
        file = _io.in_thread(io.open, source, "rb")
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
        response = opened(self._transport, self._request("GET", path, user, accept="*/*"), BYTES)
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

        body = {"from": _check.path("path", path), "to": _check.path("to", to)}
        return self._transport.call(self._operation("move", user, body), FileInfo.from_dict)

    def move(self, path: str, to: str, *, user: str | None = None) -> FileInfo:
        """Moves a file or directory, as rename."""
        return self.rename(path, to, user=user)

    def copy(self, path: str, to: str, *, overwrite: bool = False, user: str | None = None) -> int:
        """Copies a file or a tree to a path of its own, and gives how many files and directories.

        overwrite: replace files that are there (else ConflictError, file.exists).
        """
        body = {"from": _check.path("path", path), "to": _check.path("to", to), "overwrite": _check.truth("overwrite", overwrite)}
        return self._changed(self._operation("copy", user, body, timeout=_core.SLOWER))

    def chmod(self, path: str, mode: int | str, *, recursive: bool = False, user: str | None = None) -> int:
        """Sets permissions, 0o755 or "0755", and gives how many files and directories have them."""
        text = f"{_check.whole('mode', mode):04o}" if isinstance(mode, int) else _check.text("mode", mode)
        body = {"path": _check.path("path", path), "mode": text, "recursive": _check.truth("recursive", recursive)}
        return self._changed(self._operation("chmod", user, body))

    def chown(
        self,
        path: str,
        owner: str | int | None = None,
        group: str | int | None = None,
        *,
        recursive: bool = False,
        user: str | None = None,
    ) -> int:
        """Sets owner, group or both, by name or number, and gives how many files and directories have them."""
        if owner is None and group is None:
            raise ValueError("owner or group is needed")
        body: dict[str, Any] = {"path": _check.path("path", path), "recursive": _check.truth("recursive", recursive)}
        for name, value in (("owner", owner), ("group", group)):
            if value is not None:
                body[name] = str(_check.whole(name, value)) if isinstance(value, int) else _check.text(name, value)
        return self._changed(self._operation("chown", user, body))

    def _changed(self, request: Request) -> int:
        from .._generated.models import Changed

        return (self._transport.call(request, Changed.from_dict)).count

    def symlink(self, target: str, path: str, *, user: str | None = None) -> None:
        """Makes a symbolic link at path that says target, word for word."""
        body = {"path": _check.path("path", path), "target": _check.path("target", target)}
        self._transport.do(self._operation("symlink", user, body))

    def readlink(self, path: str, *, user: str | None = None) -> str:
        """Gives what a symbolic link says."""
        from .._generated.models import LinkTarget

        return (self._transport.call(self._request("GET", path, user, "readlink"), LinkTarget.from_dict)).target

    def glob(
        self, pattern: str, path: str | None = None, *, limit: int | None = None, user: str | None = None
    ) -> GlobResult:
        """Finds files by the pattern of their path below path, such as src/**/*.{ts,tsx}.

        path: where to look; default the working directory. limit: at most so
        many, default 1000; truncated says that there are more.
        """
        from .._generated.models import GlobResult

        body = {
            "pattern": _check.text("pattern", pattern, empty=False),
            "path": None if path is None else _check.path("path", path),
            "limit": None if limit is None else _check.whole("limit", limit, low=1),
        }
        return self._transport.call(self._operation("glob", user, body), GlobResult.from_dict)

    def search(
        self,
        pattern: str,
        path: str | None = None,
        *,
        literal: bool = False,
        ignore_case: bool = False,
        names: bool = False,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        context: int | None = None,
        max_results: int | None = None,
        timeout_seconds: float | None = None,
        user: str | None = None,
    ) -> SearchResult:
        """Finds lines of files, or with names files by their names.

        pattern: a regular expression (RE2), or with literal the text itself.
        path: a directory or one file; default the working directory.
        include, exclude: globs that files match, or do not.
        context: so many lines before and after each match.
        max_results: default 1000; truncated says that there are more.
        timeout_seconds: default 30; timed_out says that it was over first.
        """
        from .._generated.models import SearchResult

        body = _finding(pattern, path, literal, ignore_case, include, exclude, timeout_seconds)
        body["names"] = _check.truth("names", names)
        body["context"] = None if context is None else _check.whole("context", context)
        body["max_results"] = None if max_results is None else _check.whole("max_results", max_results, low=1)
        return self._find("search", user, body, SearchResult.from_dict)

    def replace(
        self,
        pattern: str,
        replacement: str,
        path: str | None = None,
        *,
        literal: bool = False,
        ignore_case: bool = False,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        dry_run: bool = False,
        timeout_seconds: float | None = None,
        user: str | None = None,
    ) -> ReplaceResult:
        """Changes text in files, each as a whole or not at all.

        replacement: $1 and ${name} are groups of the pattern, $$ a dollar;
        with literal it is the text itself. dry_run: only count. The other
        arguments are those of search.
        """
        from .._generated.models import ReplaceResult

        body = _finding(pattern, path, literal, ignore_case, include, exclude, timeout_seconds)
        body["replacement"] = _check.text("replacement", replacement)
        body["dry_run"] = _check.truth("dry_run", dry_run)
        return self._find("replace", user, body, ReplaceResult.from_dict)

    def _find(self, name: str, user: object, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        patience = (body["timeout_seconds"] or FIND_TIMEOUT) + max(self._transport.settings.timeout, _core.STREAM_SILENCE)
        return self._transport.call(self._operation(name, user, body, timeout=patience), read)

    def download_archive(self, path: str, target: LocalPath | IO[bytes], *, user: str | None = None) -> int:
        """Copies a directory, or one file, of the sandbox to this machine as a tar.gz, and gives its length."""
        if not isinstance(target, (str, os.PathLike)) and not hasattr(target, "write"):
            raise TypeError(f"target is a path or a file, not {type(target).__name__}")
        request = self._request("GET", path, user, "archive", accept="*/*", timeout=_core.SLOWER)
        return save(self._transport, opened(self._transport, request, ARCHIVE), target)

    def upload_archive(self, source: LocalPath | IO[bytes], path: str, *, user: str | None = None) -> Extracted:
        """Extracts a tar or tar.gz of this machine, a path or a file object, below a directory of the sandbox."""
        if not isinstance(source, (str, os.PathLike)):
            if not hasattr(source, "read"):
                raise TypeError(f"source is a path or a file, not {type(source).__name__}")
            return self._extract(source, path, user)
        file = _io.in_thread(io.open, source, "rb")
        try:
            return self._extract(file, path, user)
        finally:
            file.close()

    def _extract(self, file: Any, path: str, user: str | None) -> Extracted:
        from .._generated.models import Extracted

        content, length = body_of(file)
        request = self._request("PUT", path, user, "archive", content=content, length=length, timeout=_core.SLOWER)
        return self._transport.call(request, Extracted.from_dict)

    def watch(self, path: str = ".", *, recursive: bool = False, user: str | None = None) -> Stream[FileEvent]:
        """Follows the changes of a directory, with recursive of all below it.

        From the moment it returns no change is missed. An event of type
        overflow says that some were lost: list the directory again. The stream
        ends when the directory is gone.
        """
        from .._generated.models import FileEvent
        from .stream import Stream

        patience = max(self._transport.settings.timeout, _core.STREAM_SILENCE)
        request = self._request("GET", path, user, "watch", accept="text/event-stream", timeout=patience)
        request.query = {**(request.query or {}), "recursive": "true" if _check.truth("recursive", recursive) else "false"}
        return Stream(self._transport, self._transport.open(request), FileEvent.from_dict)

    def signed_url(
        self, path: str, operation: str = "read", *, expires_seconds: int | None = None, user: str | None = None
    ) -> SignedFile:
        """Makes a URL for one file that works without a key.

        operation: read (GET) or write (PUT). expires_seconds: default 3600, at
        most seven days. Whoever has the URL can use it.
        """
        from .._generated.models import SignedFile

        body = {
            "path": _check.path("path", path),
            "operation": _check.choice("operation", operation, ("read", "write")),
            "expires_seconds": None if expires_seconds is None else _check.whole("expires_seconds", expires_seconds, low=1),
            "user": None if user is None else _check.text("user", user, empty=False),
        }
        return self._transport.call(self._operation("sign", None, body), SignedFile.from_dict)


def _range(offset: object, length: object) -> dict[str, str] | None:
    """The header for a part of a file."""
    if offset is None and length is None:
        return None
    first = 0 if offset is None else _check.whole("offset", offset)
    last = "" if length is None else str(first + _check.whole("length", length, low=1) - 1)
    return {"Range": f"bytes={first}-{last}"}


def _finding(
    pattern: object,
    path: object,
    literal: object,
    ignore_case: object,
    include: object,
    exclude: object,
    timeout_seconds: object,
) -> dict[str, Any]:
    """What search and replace have in common."""
    return {
        "pattern": _check.text("pattern", pattern, empty=False),
        "path": None if path is None else _check.path("path", path),
        "literal": _check.truth("literal", literal),
        "ignore_case": _check.truth("ignore_case", ignore_case),
        "include": None if include is None else _check.words("include", include),
        "exclude": None if exclude is None else _check.words("exclude", exclude),
        "timeout_seconds": None if timeout_seconds is None else _check.number("timeout_seconds", timeout_seconds, above=True),
    }


def body_of(data: Any) -> tuple[Any, int | None]:
    """The content of a request, and its length where it is a stream of a known one."""
    if isinstance(data, str):
        return data.encode(), None
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data), None
    if _io.is_source(data):
        return data, _length(data)
    raise TypeError(f"data is str, bytes, a file or an iterable of bytes, not {type(data).__name__}")


def opened(transport: Transport, request: Request, kind: str) -> httpx.Response:
    """Asks for bytes that are read as they come. An answer of another kind than
    a server gives is not one: the page of a proxy must not become the file."""
    response = transport.open(request)
    if not _core.is_kind(response, kind):
        response.close()
        raise _core.not_a_server(transport.settings, response)
    return response


def save(transport: Transport, response: httpx.Response, target: Any) -> int:
    """Writes the body of an answer to a file object or a path."""
    import tempfile

    if hasattr(target, "write"):
        return _copy(transport, response, target)
    path = os.path.realpath(os.fspath(target))
    if os.path.exists(path) and not os.path.isfile(path):
        # A device or a pipe is written to, never replaced; a directory is an
        # error.
        try:
            with io.open(path, "wb") as file:
                return _copy(transport, response, file)
        finally:
            response.close()
    try:
        handle, partial = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".pandastack-")
    except OSError:
        response.close()
        raise
    try:
        with io.open(handle, "wb") as file:
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
