# Made by tools/unasync.py from _async/processes.py. Do not edit.

"""The processes of a sandbox, whoever started them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Sequence

from .. import _check, _core
from .._core import Request
from .._generated.models import ExecResult, ProcessInfo, ProcessList

if TYPE_CHECKING:
    from .._check import Command
    from .filesystem import Data
    from .process import Process
    from .stream import ExecStream
    from .transport import Transport


class Processes:
    """Finds the processes of a sandbox and works on them.

    A process is named by its number, or by the tag that it was started with.
    One that has ended is a NotFoundError (process.not_found), except for
    attach, which gives its last output and its exit for an hour.
    """

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        self._transport = transport
        self._sandbox = ("v1", "sandboxes", sandbox_id)

    def list(self, *, all: bool = False) -> List[ProcessInfo]:
        """Gives the processes that were started through the API and run, in order of their start.

        all: also those that have ended within the last hour, before the others.
        """
        query = {"all": "true"} if _check.truth("all", all) else None
        request = Request("GET", (*self._sandbox, "processes"), query)
        return (self._transport.call(request, ProcessList.from_dict)).processes

    def start(
        self,
        cmd: Command,
        args: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        keep_stdin: bool = False,
        timeout_seconds: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | bytes | None = None,
    ) -> int:
        """Starts a command that belongs to no connection, and gives its number.

        tag: a name to find it by. keep_stdin: leave its input open, for
        send_stdin. The other arguments are those of Sandbox.exec; callers that
        want its output as it comes use Sandbox.run_background, or attach.
        """
        body = _check.run(cmd, args, timeout_seconds, cwd, env, user, stdin)
        body["background"] = True
        if tag is not None:
            body["tag"] = _check.text("tag", tag, empty=False)
        if _check.truth("keep_stdin", keep_stdin):
            body["keep_stdin"] = True
        request = Request("POST", (*self._sandbox, "exec"), json=body)
        started = self._transport.call(request, ExecResult.from_dict)
        if started.pid is None:
            raise _core.unknown_answer(self._transport.settings)
        return started.pid

    def attach(self, process: int | str, *, replay: bool = True) -> ExecStream:
        """Follows a process: its output from now on, and its end.

        replay: the last of its output so far comes first. Closing the stream
        leaves the process alone.
        """
        from .stream import ExecStream

        query = {"replay": "true" if _check.truth("replay", replay) else "false"}
        patience = max(self._transport.settings.timeout, _core.STREAM_SILENCE)
        request = Request("GET", self._path(process), query, accept="text/event-stream", timeout=patience)
        return ExecStream(self._transport, self._transport.open(request))

    def connect(self, pid: int) -> Process:
        """Attaches to a process by its number, for its output and its input."""
        from .process import Process
        from .socket import Socket

        message = {"type": "attach", "pid": _check.whole("pid", pid, low=1)}
        socket = Socket.connect(self._transport, (*self._sandbox, "exec", "ws"))
        try:
            process = Process(socket, None, None)
            process.start(message)
        except BaseException:
            socket.close()
            raise
        return process

    def send_stdin(self, process: int | str, data: Data, *, close: bool = False) -> None:
        """Writes to the input of a process, as fast as it reads.

        data: str, bytes, a file object, or an iterable of bytes. close: end of
        file after that.
        """
        from .filesystem import body_of

        content, length = body_of(data)
        query = {"close": "true"} if _check.truth("close", close) else None
        path = (*self._path(process), "stdin")
        self._transport.do(Request("POST", path, query, content=content, length=length, timeout=_core.ENDLESS))

    def close_stdin(self, process: int | str) -> None:
        """Ends the input of a process."""
        self._transport.do(Request("POST", (*self._path(process), "stdin", "close")))

    def signal(self, process: int | str, signal: int | str, *, tree: bool = False) -> None:
        """Sends a signal, by its name (SIGINT or INT) or number.

        tree: also to all that descends from the process.
        """
        said: Any = _check.whole("signal", signal, low=1) if isinstance(signal, int) else _check.text("signal", signal)
        body = {"signal": said, "tree": _check.truth("tree", tree)}
        self._transport.do(Request("POST", (*self._path(process), "signal"), json=body))

    def kill(self, process: int | str) -> None:
        """Ends a process and all that descends from it."""
        self._transport.do(Request("DELETE", self._path(process)))

    def _path(self, process: object) -> tuple[str, ...]:
        if isinstance(process, int):
            name = str(_check.whole("process", process, low=1))
        else:
            name = _check.identifier("process", process)
        return (*self._sandbox, "processes", name)
