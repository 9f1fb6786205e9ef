"""Files of a sandbox, used like files of this machine."""

from __future__ import annotations

import codecs
from types import TracebackType
from typing import TYPE_CHECKING, Any, AnyStr, AsyncIterator, Generic

from .. import _check

if TYPE_CHECKING:
    from .filesystem import AsyncFilesystem

BLOCK = 1 << 20  # bytes that are gathered before they are sent

MODES = ("r", "rb", "w", "wb", "a", "ab")


class AsyncFile(Generic[AnyStr]):
    """An open file of a sandbox, from filesystem.open.

        with sandbox.filesystem.open("log.txt") as file:
            for line in file:
                print(line, end="")

    What is read comes as a stream; what is written is sent in blocks of a
    megabyte, the last one by close() or the end of a `with` block. It has no
    position to seek: filesystem.read takes offset and length.
    """

    def __init__(self, filesystem: AsyncFilesystem, path: str, mode: str, user: str | None) -> None:
        self.name: str = path
        self.mode: str = mode
        self.closed: bool = False
        self._filesystem = filesystem
        self._user = user
        self._nothing: Any = b"" if "b" in mode else ""
        self._newline: Any = b"\n" if "b" in mode else "\n"
        self._decoder: Any = None if "b" in mode else codecs.getincrementaldecoder("utf-8")()
        self._chunks: Any = None
        self._buffer: Any = self._nothing
        self._pending = bytearray()

    async def start(self) -> None:
        """Opens it on the server; filesystem.open has called it."""
        if self.mode[0] == "r":
            self._chunks = await self._filesystem.read(self.name, format="stream", user=self._user)
        elif self.mode[0] == "w":
            await self._filesystem.write(self.name, b"", user=self._user)
        else:
            await self._filesystem.append(self.name, b"", user=self._user)

    async def _more(self) -> bool:
        """Reads the next chunk; False is the end of the file."""
        if self.closed or self._chunks is None:
            raise ValueError("the file is closed" if self.closed else "the file is not open for reading")
        data = await _next(self._chunks)
        try:
            text = data if self._decoder is None else self._decoder.decode(data, not data)
        except UnicodeDecodeError:
            raise ValueError(f"{self.name} is not UTF-8 text; open it with mode 'rb'") from None
        self._buffer += text
        return bool(data)

    async def read(self, size: int = -1) -> AnyStr:
        """Reads size bytes (characters of text), fewer only at the end; -1 is all."""
        parts = []
        left = size if size >= 0 else None
        while left is None or left > 0:
            if not self._buffer and not await self._more() and not self._buffer:
                break
            part = self._buffer if left is None else self._buffer[:left]
            self._buffer = self._buffer[len(part) :]
            parts.append(part)
            left = None if left is None else left - len(part)
        out: AnyStr = self._nothing.join(parts)
        return out

    async def readline(self) -> AnyStr:
        """Reads a line with its end; an empty one is the end of the file."""
        searched = 0
        while True:
            at = self._buffer.find(self._newline, searched)
            if at >= 0:
                break
            searched = len(self._buffer)
            if not await self._more():
                at = len(self._buffer) - 1
                break
        line: AnyStr = self._buffer[: at + 1]
        self._buffer = self._buffer[at + 1 :]
        return line

    async def __aiter__(self) -> AsyncIterator[AnyStr]:
        while True:
            line = await self.readline()
            if not line:
                return
            yield line

    async def write(self, data: AnyStr) -> int:
        """Writes, and gives the length of data."""
        if self.closed or self.mode[0] == "r":
            raise ValueError("the file is closed" if self.closed else "the file is not open for writing")
        if not isinstance(data, str if self._decoder is not None else (bytes, bytearray, memoryview)):
            raise TypeError(f"a file of mode {self.mode} takes no {type(data).__name__}")
        self._pending += data.encode() if isinstance(data, str) else data
        if len(self._pending) >= BLOCK:
            await self.flush()
        return len(data)

    async def flush(self) -> None:
        """Sends what was written."""
        if self._pending:
            data, self._pending = bytes(self._pending), bytearray()
            await self._filesystem.append(self.name, data, user=self._user)

    async def close(self) -> None:
        """Sends what was written, and ends it."""
        if self.closed:
            return
        self.closed = True
        if self._chunks is not None:
            await self._chunks.close()
        await self.flush()

    async def __aenter__(self) -> AsyncFile[AnyStr]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _next(chunks: Any) -> bytes:
    """The next chunk, b"" at the end."""
    try:
        data: bytes = await chunks.__anext__()
    except StopAsyncIteration:
        return b""
    return data


def checked_mode(mode: object) -> str:
    return _check.choice("mode", mode, MODES)
