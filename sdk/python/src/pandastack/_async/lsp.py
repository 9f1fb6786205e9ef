"""Language servers of a sandbox."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Mapping, Union

from .. import _core

if TYPE_CHECKING:
    from .socket import AsyncSocket

    Message = Union[Mapping[str, Any], bytes]


class AsyncLanguageServer:
    """A connection to a language server, which others may share.

    What flows are the messages of the Language Server Protocol; a client that
    speaks it, from initialize on, is the caller's. Who sends mappings gets
    mappings, one for each message. Who sends bytes, pieces of the stream with
    its Content-Length headers, gets bytes.
    """

    def __init__(self, socket: AsyncSocket) -> None:
        self._socket = socket

    async def send(self, message: Message) -> None:
        """Sends one message, or the next piece of the stream."""
        if isinstance(message, (bytes, bytearray)):
            await self._socket.send(bytes(message))
        elif isinstance(message, Mapping):
            await self._socket.send(dict(message))
        else:
            raise TypeError(f"message is a mapping or bytes, not {type(message).__name__}")

    async def receive(self, timeout: float | None = None) -> Any:
        """Waits for the next message. timeout is in seconds (TimeoutError)."""
        message = await self._socket.receive(timeout)
        if message is None:
            raise _core.cut_short("Connect again: the language server may have ended, or the sandbox went to sleep.")
        return message

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            message = await self._socket.receive()
            if message is None:
                return
            yield message

    async def close(self) -> None:
        """Closes the connection. The language server stays for a while."""
        await self._socket.close()

    async def __aenter__(self) -> AsyncLanguageServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
