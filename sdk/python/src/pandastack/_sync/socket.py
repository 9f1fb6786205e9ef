# Made by tools/unasync.py from _async/socket.py. Do not edit.

"""The WebSockets of commands, terminals and language servers: JSON messages and bytes, both ways."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, Mapping

from .. import _core
from .._core import Request
from . import _io

if TYPE_CHECKING:
    import httpx

    from .._config import Settings
    from ..errors import PandastackError
    from .transport import Transport

MESSAGE_LIMIT = 17 << 20  # a message of a language server has up to 16 MiB
READ_SIZE = 64 << 10
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Socket:
    """One connection. Any number may send while one receives."""

    def __init__(self, transport: Transport, response: httpx.Response) -> None:
        from wsproto.connection import Connection, ConnectionType

        self.settings: Settings = transport.settings
        self._response = response
        self._stream = response.extensions["network_stream"]
        self._frames = Connection(ConnectionType.CLIENT)
        self._lock = _io.Lock()
        self._pongs: list[bytes] = []
        self._messages: list[Any] = []
        self._parts: list[Any] = []
        self._size = 0
        self._closed = False
        self._failure: PandastackError | None = None

    @classmethod
    def connect(
        cls, transport: Transport, path: tuple[str, ...], query: Mapping[str, Any] | None = None
    ) -> Socket:
        key = base64.b64encode(os.urandom(16))
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Key": key.decode(),
            "Sec-WebSocket-Version": "13",
        }
        response = transport.upgrade(Request("GET", path, query, headers=headers))
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
        if response.status_code != 101 or response.headers.get("Sec-WebSocket-Accept") != accept:
            response.close()
            raise _core.not_a_server(transport.settings, response)
        return cls(transport, response)

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the answer to the handshake."""
        return self._response.headers

    def send(self, message: dict[str, Any] | bytes) -> None:
        """Sends JSON, or bytes as they are."""
        from wsproto.events import BytesMessage, TextMessage

        if isinstance(message, bytes):
            self._write(BytesMessage(data=message))
        else:
            self._write(TextMessage(data=json.dumps(message, ensure_ascii=False)))

    def _write(self, event: Any) -> None:
        import httpcore

        try:
            with self._lock:
                self._stream.write(self._frames.send(event))
                while self._pongs:
                    self._stream.write(self._pongs.pop())
        except (httpcore.NetworkError, httpcore.TimeoutException, OSError, RuntimeError) as e:
            raise _core.cut_short() from e

    def receive(self, timeout: float | None = None) -> Any:
        """The next message, bytes as they are and text read as JSON, or None when
        the server has closed the connection. One that it closed with an error
        raises that."""
        import httpcore

        until = None if timeout is None else time.monotonic() + timeout
        while not self._messages and not self._closed:
            left = None if until is None else max(until - time.monotonic(), 0.001)
            try:
                data = self._stream.read(READ_SIZE, left)
            except httpcore.TimeoutException:
                raise _core.nothing_came(timeout) from None
            except (httpcore.NetworkError, OSError, RuntimeError):
                data = b""
            if not data:
                self._closed = True
                break
            self._feed(data)
        if self._messages:
            return self._messages.pop(0)
        if self._failure is not None:
            raise self._failure
        return None

    def _feed(self, data: bytes) -> None:
        import httpcore
        from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
        from wsproto.utilities import RemoteProtocolError

        try:
            self._frames.receive_data(data)
            for event in self._frames.events():
                if isinstance(event, (TextMessage, BytesMessage)):
                    self._part(event.data if isinstance(event.data, str) else bytes(event.data), event.message_finished)
                elif isinstance(event, Ping):
                    self._pong(self._frames.send(event.response()))
                elif isinstance(event, CloseConnection):
                    self._closed = True
                    self._failure = _core.close_error(event.code, event.reason or "")
        except (httpcore.NetworkError, OSError, RuntimeError):
            self._closed = True  # a pong could not be sent
        except (ValueError, RemoteProtocolError) as e:
            raise _core.unknown_answer(self.settings) from e

    def _part(self, data: str | bytes, last: bool) -> None:
        """Takes in a piece of a message."""
        self._size += len(data)
        if self._size > MESSAGE_LIMIT:
            raise ValueError("a message is too long")
        self._parts.append(data)
        if last:
            if isinstance(data, str):
                self._messages.append(json.loads("".join(self._parts)))
            else:
                self._messages.append(b"".join(self._parts))
            self._parts, self._size = [], 0

    def _pong(self, frame: bytes) -> None:
        """Answers a ping: now, or when the write that is under way is done. To
        wait for that here would be to wait, perhaps, for a command that itself
        waits for its output to be read."""
        self._pongs.append(frame)
        if not self._lock.locked():
            with self._lock:
                while self._pongs:
                    self._stream.write(self._pongs.pop())

    def close(self) -> None:
        """Cuts the connection, which ends a receive that is under way."""
        self._closed = True
        _io.shut_down(self._stream)
        self._response.close()
