# Made by tools/unasync.py from _async/terminal.py. Do not edit.

"""Terminals in a sandbox."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator

from .. import _check, _core
from .._core import Request
from ..errors import NotFoundError

if TYPE_CHECKING:
    from .socket import Socket
    from .transport import Transport

INPUT_CHUNK = 32 << 10
SIZE_LIMIT = 65535


class Terminal:
    """A process in a terminal of the sandbox.

    Iterate over it, or read(), for the bytes that it shows; send() is its
    keyboard, which another thread or task may use meanwhile. It waits for its
    reader. Leaving a `with` block, or close(), detaches: the process goes on,
    and pty(pid=terminal.pid) shows the last of its screen again.
    """

    def __init__(self, transport: Transport, path: tuple[str, ...], socket: Socket) -> None:
        self._transport = transport
        self._socket = socket
        self._path = path
        self._pid = int(socket.headers["X-Process-Id"])
        self._end: dict[str, Any] | None = None

    @property
    def pid(self) -> int:
        """The process in the sandbox."""
        return self._pid

    @property
    def exit_code(self) -> int | None:
        """How the process ended, 128+n after signal n; None until all it has shown was read."""
        return None if self._end is None else self._end["code"]

    @property
    def signal(self) -> str | None:
        """The signal that ended the process, if one did."""
        return None if self._end is None else self._end.get("signal")

    def read(self, timeout: float | None = None) -> bytes:
        """Waits for what the process shows next; b"" is its end.

        timeout is in seconds; when it is over, TimeoutError is raised and
        nothing is lost.
        """
        if timeout is not None:
            _check.number("timeout", timeout)
        while self._end is None:
            message = self._socket.receive(timeout)
            if message is None:
                raise _core.cut_short("The process may still run: attach to it with pty(pid=...).")
            if isinstance(message, bytes):
                if message:
                    return message
            else:
                self._take(message)
        return b""

    def _take(self, message: Any) -> None:
        try:
            if message["type"] == "error":
                raise _core.event_error(message)
            if message["type"] == "exit":
                self._end = {"code": int(message["code"]), "signal": message.get("signal")}
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise _core.unknown_answer(self._transport.settings) from e

    def __iter__(self) -> Iterator[bytes]:
        while True:
            data = self.read()
            if not data:
                return
            yield data

    def wait(self) -> int:
        """Reads, and drops, what is shown until the process ends, and gives its exit code."""
        for _ in self:
            pass
        if self.exit_code is None:
            raise _core.cut_short()
        return self.exit_code

    def send(self, data: str | bytes) -> None:
        """Types. A line ends with a carriage return or a line feed."""
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data is str or bytes, not {type(data).__name__}")
        raw = bytes(data)
        for at in range(0, len(raw), INPUT_CHUNK):
            self._socket.send(raw[at : at + INPUT_CHUNK])

    def resize(self, rows: int, cols: int) -> None:
        """Changes the size of the terminal."""
        self._socket.send({"type": "resize", **size(rows=rows, cols=cols)})

    def kill(self) -> None:
        """Ends the process and all that it started. One that has ended is left alone."""
        try:
            self._transport.do(Request("DELETE", (*self._path, "processes", str(self._pid))))
        except NotFoundError as e:
            if e.code != "process.not_found":
                raise

    def close(self) -> None:
        """Closes the connection. The process goes on."""
        self._socket.close()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def size(**said: object) -> dict[str, int]:
    out = {name: _check.whole(name, n, low=1) for name, n in said.items()}
    for name, n in out.items():
        if n > SIZE_LIMIT:
            raise ValueError(f"{name} is at most {SIZE_LIMIT}, not {n}")
    return out
