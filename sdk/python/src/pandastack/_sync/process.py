# Made by tools/unasync.py from _async/process.py. Do not edit.

"""Commands that run beside the caller."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, Callable, Deque

from .. import _check, _core
from .._output import KEPT, Collector, Output
from ..errors import NotFoundError, PandastackError, TimeoutError
from . import _io

if TYPE_CHECKING:
    from .._generated.models import ExecResult
    from .socket import Socket

QUEUE_LIMIT = 1 << 20  # bytes that wait for someone who iterates
STDIN_CHUNK = 32 << 10


class Process:
    """A command that was started with run_background, or that processes.connect attached to.

    Its output is read all the time, so that it never stands still for want of
    a reader. Iterate over it for what it writes, from its start on;
    what nobody iterates over is kept up to 16 MiB, the oldest dropped
    first. wait() gives the result, with the last 16 MiB of each stream.

    The command goes on when the connection is closed. A `with` block kills it
    at its end.
    """

    def __init__(
        self,
        socket: Socket,
        on_stdout: Callable[[str], Any] | None,
        on_stderr: Callable[[str], Any] | None,
    ) -> None:
        self._socket = socket
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        self._collector = Collector()
        self._changed = _io.Condition()
        self._queue: Deque[Output] = deque()
        self._queued = 0
        self._iterating = False
        self._failure: BaseException | None = None
        self._ended = False
        self._closing = False
        self._reader: _io.Worker | None = None

    def start(self, message: dict[str, Any]) -> None:
        """Sends the first message and waits until the command runs; whoever made this has called it."""
        self._socket.send(message)
        try:
            event = self._socket.receive(_core.SLOW_TIMEOUT)
        except TimeoutError:
            raise _core.no_answer(self._socket.settings, _core.SLOW_TIMEOUT) from None
        if event is None:
            raise _core.cut_short()
        self._take(event)
        if self._failure is not None:
            raise self._failure
        self._reader = _io.Worker(self._read)

    def _take(self, event: Any) -> Output | None:
        """Reads one event. An error says that something could not be done,
        such as input for a command that has just ended; it is what went wrong
        only if no exit follows."""
        try:
            if event["type"] == "error":
                self._failure = _core.event_error(event)
                return None
            return self._collector.take(event)
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise _core.unknown_answer(self._socket.settings) from e

    @property
    def pid(self) -> int | None:
        """The process in the sandbox."""
        return self._collector.pid

    @property
    def result(self) -> ExecResult | None:
        """How the command ended; None until then."""
        return self._collector.result

    def _read(self) -> None:
        """Takes what the server sends until the command has ended."""
        try:
            while self._collector.result is None:
                event = self._socket.receive()
                if event is None:
                    self._failure = self._failure or _core.cut_short()
                    break
                output = self._take(event)
                if output is not None:
                    self._give(output)
            else:
                self._failure = None
        except _io.CANCELLED:
            self._failure = _core.cut_short()
            raise
        except Exception as e:  # a callback's, or of an answer that is none
            self._failure = e
            self._end_quietly()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            self._socket.close()

    def _give(self, output: Output) -> None:
        callback = self._callbacks[output.stream]
        if callback is not None:
            _io.call(callback, output.text)
        with self._changed:
            if self._iterating and self._queued > QUEUE_LIMIT:
                # Who iterates is to have all of it, unless it goes away.
                self._room()
            self._queue.append(output)
            self._queued += len(output.data)
            while self._queued > KEPT:
                self._queued -= len(self._queue.popleft().data)
            self._changed.notify_all()

    def _room(self) -> None:
        while self._iterating and self._queued > QUEUE_LIMIT and not self._closing:
            _io.wait_a_second(self._changed)

    def _end_quietly(self) -> None:
        try:
            self._socket.send({"type": "signal", "signal": "SIGKILL"})
        except PandastackError:
            pass  # the connection is gone, and with it the way to say so

    def __iter__(self) -> Iterator[Output]:
        self._iterating = True
        try:
            while True:
                with self._changed:
                    while not self._queue and not self._ended:
                        self._changed.wait()
                    if not self._queue:
                        break
                    output = self._queue.popleft()
                    self._queued -= len(output.data)
                    self._changed.notify_all()
                yield output
        finally:
            self._iterating = False
        if self._failure is not None:
            raise self._failure

    def wait(self, timeout: float | None = None) -> ExecResult:
        """Waits for the command to end.

        timeout is in seconds; when it is over, TimeoutError is raised and the
        command goes on.
        """
        if timeout is not None:
            _check.number("timeout", timeout)
        if not _io.wait_until(self._changed, lambda: self._ended, timeout):
            raise TimeoutError(
                f"the command did not end within {timeout:g} s",
                code="request.timeout",
                hint="It goes on; wait again, or kill() it.",
            )
        if self._collector.result is None:
            raise self._failure or _core.cut_short()
        return self._collector.result

    def send_stdin(self, data: str | bytes) -> None:
        """Writes to the command's standard input."""
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data is str or bytes, not {type(data).__name__}")
        raw = bytes(data)
        for at in range(0, len(raw), STDIN_CHUNK):
            self._send(raw[at : at + STDIN_CHUNK])

    def close_stdin(self) -> None:
        """Ends the command's standard input."""
        self._send({"type": "close_stdin"})

    def kill(self) -> None:
        """Ends the command at once. One that has ended is left alone."""
        self._signal("SIGKILL")

    def terminate(self) -> None:
        """Asks the command to end (SIGTERM). One that has ended is left alone."""
        self._signal("SIGTERM")

    def _signal(self, name: str) -> None:
        if not self._ended:
            self._send({"type": "signal", "signal": name})

    def _send(self, message: dict[str, Any] | bytes) -> None:
        if self._ended:
            raise NotFoundError("the command has ended", code="process.not_found", hint="Its result says how.")
        self._socket.send(message)

    def close(self) -> None:
        """Closes the connection. A command that has not ended goes on without it."""
        self._closing = True
        if not self._ended:
            self._socket.close()
        if self._reader is not None:
            self._reader.stop()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended:
            self._end_quietly()
            try:
                self.wait(timeout=10)
            except Exception:  # it was told to end, and nobody asks how it did
                pass
        self.close()
