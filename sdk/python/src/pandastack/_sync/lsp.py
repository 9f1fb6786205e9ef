# Made by tools/unasync.py from _async/lsp.py. Do not edit.

"""Language servers of a sandbox."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Union

from .. import _core

if TYPE_CHECKING:
    from .socket import Socket

    Message = Union[Mapping[str, Any], bytes]


class LanguageServer:
    """A connection to a language server, which others may share.

    What flows are the messages of the Language Server Protocol; a client that
    speaks it, from initialize on, is the caller's. Who sends mappings gets
    mappings, one for each message. Who sends bytes, pieces of the stream with
    its Content-Length headers, gets bytes.
    """

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    def send(self, message: Message) -> None:
        """Sends one message, or the next piece of the stream."""
        if isinstance(message, (bytes, bytearray)):
            self._socket.send(bytes(message))
        elif isinstance(message, Mapping):
            self._socket.send(dict(message))
        else:
            raise TypeError(f"message is a mapping or bytes, not {type(message).__name__}")

    def receive(self, timeout: float | None = None) -> Any:
        """Waits for the next message. timeout is in seconds (TimeoutError)."""
        message = self._socket.receive(timeout)
        if message is None:
            raise _core.cut_short("Connect again: the language server may have ended, or the sandbox went to sleep.")
        return message

    def __iter__(self) -> Iterator[Any]:
        while True:
            message = self._socket.receive()
            if message is None:
                return
            yield message

    def close(self) -> None:
        """Closes the connection. The language server stays for a while."""
        self._socket.close()

    def __enter__(self) -> LanguageServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
