"""A handle on one sandbox."""

from __future__ import annotations

from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterator,
    List,
    Literal,
    Mapping,
    Sequence,
    overload,
)

from .. import _check, _core
from .._core import Request
from .._generated.fields import SandboxFields
from .._lazy import models
from .filesystem import AsyncFilesystem

if TYPE_CHECKING:
    from .._check import Command
    from .._generated.models import (
        CheckpointPolicy,
        CodeContext,
        CodeError,
        CodeOutput,
        CodeRun,
        Event,
        ExecResult,
        IdlePolicy,
        Lifecycle,
        LogLine,
        Metrics,
        MetricsSeries,
        Network,
        Preview,
        PreviewURL,
        Promoted,
        SandboxRecord,
        Snapshot,
        SSHInfo,
        Timeline,
        Tree,
        VolumeMount,
    )
    from .client import AsyncPandaStack
    from .code import AsyncCodeStream, AsyncContexts
    from .git import AsyncGit
    from .lsp import AsyncLanguageServer
    from .network import AsyncPorts, AsyncSandboxNetwork
    from .process import AsyncProcess
    from .processes import AsyncProcesses
    from .stream import AsyncExecStream, AsyncStream
    from .terminal import AsyncTerminal
    from .transport import AsyncTransport


class AsyncSandbox(SandboxFields):
    """A handle on one sandbox.

    The fields of its record (id, status, template, ...) are as the server last
    gave them: refresh() reads them again. All methods go by the id alone.

    A `with` block ends the sandbox at its end.
    """

    def __init__(self, transport: AsyncTransport, record: SandboxRecord) -> None:
        self._transport = transport
        self.record: SandboxRecord = record
        self.filesystem: AsyncFilesystem = AsyncFilesystem(transport, record.id)

    def __repr__(self) -> str:
        return f"<AsyncSandbox {self.record.id} {self.record.template} {self.record.status}>"

    @classmethod
    async def create(
        cls,
        template: str | None = None,
        *,
        client: AsyncPandaStack | None = None,
        ttl_seconds: int | None = None,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        persistent: bool | None = None,
        driver: str | None = None,
        cpu: float | None = None,
        memory_mb: int | None = None,
        disk_mb: int | None = None,
        from_snapshot: str | Snapshot | None = None,
        idle_timeout_seconds: int | None = None,
        idle: IdlePolicy | Mapping[str, Any] | None = None,
        checkpoints: CheckpointPolicy | Mapping[str, Any] | None = None,
        volumes: Sequence[VolumeMount | Mapping[str, Any] | str] | None = None,
        egress_mbps: int | None = None,
        network: Network | Mapping[str, Any] | None = None,
        networks: Sequence[str] | None = None,
    ) -> AsyncSandbox:
        """Starts a sandbox with the default client, or with client. See AsyncSandboxes.create."""
        return await _client(client).sandboxes.create(
            template,
            ttl_seconds=ttl_seconds,
            metadata=metadata,
            env=env,
            persistent=persistent,
            driver=driver,
            cpu=cpu,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            from_snapshot=from_snapshot,
            idle_timeout_seconds=idle_timeout_seconds,
            idle=idle,
            checkpoints=checkpoints,
            volumes=volumes,
            egress_mbps=egress_mbps,
            network=network,
            networks=networks,
        )

    @classmethod
    async def get(cls, sandbox_id: str, *, client: AsyncPandaStack | None = None) -> AsyncSandbox:
        """Finds a sandbox by its id (NotFoundError)."""
        return await _client(client).sandboxes.get(sandbox_id)

    @classmethod
    async def list(
        cls,
        *,
        client: AsyncPandaStack | None = None,
        metadata: Mapping[str, str] | None = None,
        status: str | Sequence[str] | None = None,
        template: str | None = None,
        limit: int | None = None,
    ) -> List[AsyncSandbox]:
        """Gives the caller's sandboxes, newest first. See AsyncSandboxes.list."""
        return await _client(client).sandboxes.list(metadata=metadata, status=status, template=template, limit=limit)

    # Commands

    async def exec(
        self,
        cmd: Command,
        args: Sequence[str] | None = None,
        *,
        timeout_seconds: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | bytes | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
    ) -> ExecResult:
        """Runs a command and waits for it to end.

        cmd: a str is a line for the shell, a list is a program and its
        arguments; a str with args is a program with those. An exit code other
        than 0 is not an error.

        timeout_seconds: the server ends the command after so long; the result
        then says timed_out, with exit code 124. None is no limit.
        env: added to the sandbox's own. cwd: default the home directory.
        stdin: text that the command reads; without it the input is empty.
        on_stdout, on_stderr: called with text as it is written.

        The result has at most 16 MiB of each stream (truncated says so);
        exec_stream gives output of any length.
        """
        body = _check.run(cmd, args, timeout_seconds, cwd, env, user, stdin)
        if on_stdout is None and on_stderr is None:
            request = Request("POST", self._path("exec"), json=body, timeout=self._patience(timeout_seconds))
            return await self._transport.call(request, models.ExecResult.from_dict)
        from . import _io

        callbacks = {"stdout": _callback("on_stdout", on_stdout), "stderr": _callback("on_stderr", on_stderr)}
        stream = await self._exec_stream(body)
        try:
            async for output in stream:
                callback = callbacks[output.stream]
                if callback is not None:
                    await _io.call(callback, output.text)
            return await stream.wait()
        finally:
            await stream.close()

    async def exec_stream(
        self,
        cmd: Command,
        args: Sequence[str] | None = None,
        *,
        timeout_seconds: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | bytes | None = None,
    ) -> AsyncExecStream:
        """Runs a command and gives what it writes, as it is written.

            for output in sandbox.exec_stream("make"):
                print(output.text, end="")

        The arguments are those of exec. Closing the stream kills the command.
        """
        return await self._exec_stream(_check.run(cmd, args, timeout_seconds, cwd, env, user, stdin))

    async def _exec_stream(self, body: dict[str, Any]) -> AsyncExecStream:
        from .stream import AsyncExecStream

        response = await self._open("POST", "exec", "stream", json=body)
        return AsyncExecStream(self._transport, response)

    async def run_background(
        self,
        cmd: Command,
        args: Sequence[str] | None = None,
        *,
        timeout_seconds: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        tag: str | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
    ) -> AsyncProcess:
        """Starts a command and returns once it runs.

        The arguments are those of exec; callbacks are called while the command
        runs, by another thread where there are threads. Its standard input
        stays open until close_stdin. tag: a name to find it by in processes.
        """
        from .process import AsyncProcess
        from .socket import AsyncSocket

        body = _check.run(cmd, args, timeout_seconds, cwd, env, user)
        body["background"] = True
        if tag is not None:
            body["tag"] = _check.text("tag", tag, empty=False)
        callbacks = (_callback("on_stdout", on_stdout), _callback("on_stderr", on_stderr))
        socket = await AsyncSocket.connect(self._transport, self._path("exec", "ws"))
        try:
            process = AsyncProcess(socket, *callbacks)
            await process.start({"type": "start", "exec": body})
        except BaseException:
            await socket.close()
            raise
        return process

    def _patience(self, timeout_seconds: float | None) -> float:
        """How long to wait for the answer of a command that may take so long."""
        if timeout_seconds is None:
            return _core.ENDLESS
        return timeout_seconds + max(self._transport.settings.timeout, _core.STREAM_SILENCE)

    @property
    def processes(self) -> AsyncProcesses:
        """The processes of the sandbox, whoever started them."""
        from .processes import AsyncProcesses

        return AsyncProcesses(self._transport, self.record.id)

    async def pty(
        self,
        cmd: str | None = None,
        *,
        rows: int | None = None,
        cols: int | None = None,
        cwd: str | None = None,
        user: str | None = None,
        term: str | None = None,
        pid: int | None = None,
        tag: str | None = None,
    ) -> AsyncTerminal:
        """Starts a process in a terminal, or attaches to one.

        cmd: a line for the shell; default is the user's shell itself.
        rows, cols: the size, default 24 and 80; an attached terminal keeps its
        own unless both are given. term: its kind, default xterm-256color.
        pid: attach to the terminal of this process.
        tag: attach to the terminal with this tag, or start it.
        """
        from .socket import AsyncSocket
        from .terminal import AsyncTerminal, size

        query: dict[str, Any] = {}
        query.update(size(**{name: n for name, n in (("rows", rows), ("cols", cols)) if n is not None}))
        if pid is not None:
            query["pid"] = _check.whole("pid", pid, low=1)
        for name, value in (("cmd", cmd), ("cwd", cwd), ("user", user), ("term", term), ("tag", tag)):
            if value is not None:
                query[name] = _check.text(name, value, empty=False)
        socket = await AsyncSocket.connect(self._transport, self._path("exec", "pty"), query)
        try:
            return AsyncTerminal(self._transport, self._path(), socket)
        except (KeyError, ValueError) as e:
            await socket.close()
            raise _core.unknown_answer(self._transport.settings) from e

    # Code

    async def run_code(
        self,
        code: str,
        language: str | None = None,
        *,
        context: str | CodeContext | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        on_result: Callable[[CodeOutput], Any] | None = None,
        on_error: Callable[[CodeError], Any] | None = None,
    ) -> CodeRun:
        """Runs code in an interpreter that stays, and waits for its end.

            run = sandbox.run_code("x = 6 * 7; x")
            run.text      # "42"

        What the code defines is there for the next call. A notebook displays
        the answer with its tables and pictures. An error that the code raises
        is in the answer's error, and raises nothing here.

        language: python (default), javascript, typescript or bash, in the
        context that the sandbox shares for it.
        context: one that contexts.create made, instead.
        env: for this code only.
        timeout_seconds: the code is interrupted after so long, and timed_out
        says so; the context keeps its state.
        on_stdout, on_stderr, on_result, on_error: called as it happens.
        """
        body = _check.code(code, language, context, env, timeout_seconds)
        callbacks = {
            "stdout": _callback("on_stdout", on_stdout),
            "stderr": _callback("on_stderr", on_stderr),
            "result": _callback("on_result", on_result),
            "exception": _callback("on_error", on_error),
        }
        if not any(callbacks.values()):
            request = Request("POST", self._path("code"), json=body, timeout=self._patience(timeout_seconds))
            return await self._transport.call(request, models.CodeRun.from_dict)
        from . import _io

        stream = await self._code_stream(body)
        try:
            async for event in stream:
                callback = callbacks.get(event.type)
                if callback is not None:
                    await _io.call(callback, event.result or event.exception or event.text or "")
            return await stream.wait()
        finally:
            await stream.close()

    async def run_code_stream(
        self,
        code: str,
        language: str | None = None,
        *,
        context: str | CodeContext | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> AsyncCodeStream:
        """Runs code and gives what it does, as it does it.

            for event in sandbox.run_code_stream(code):
                print(event.type, event.text or event.result or event.exception)

        The arguments are those of run_code. Closing the stream interrupts the code.
        """
        return await self._code_stream(_check.code(code, language, context, env, timeout_seconds))

    async def _code_stream(self, body: dict[str, Any]) -> AsyncCodeStream:
        from .code import AsyncCodeStream

        response = await self._open("POST", "code", json={**body, "stream": True})
        return AsyncCodeStream(self._transport, response)

    @property
    def contexts(self) -> AsyncContexts:
        """The interpreters of the sandbox, for run_code."""
        from .code import AsyncContexts

        return AsyncContexts(self._transport, self.record.id)

    async def languages(self) -> List[str]:
        """Gives the languages that run_code can run in this sandbox."""
        request = Request("GET", self._path("code", "languages"))
        return (await self._transport.call(request, models.CodeLanguages.from_dict)).languages

    async def lsp(self, language: str) -> AsyncLanguageServer:
        """Connects to the language server for a language, and starts it if need be.

        The sandbox must have one installed (ConflictError, lsp.not_installed);
        the hint says how, and client.lsp_languages lists what there is.
        """
        from .lsp import AsyncLanguageServer
        from .socket import AsyncSocket

        name = _check.identifier("language", language)
        return AsyncLanguageServer(await AsyncSocket.connect(self._transport, self._path("lsp", name)))

    @property
    def git(self) -> AsyncGit:
        """The git repositories in the sandbox."""
        from .git import AsyncGit

        return AsyncGit(self._transport, self.record.id)

    def mcp_config(self) -> dict[str, Any]:
        """The entry for this sandbox in the configuration of an MCP client: its
        tools run commands and code, and work on files, processes and ports
        (docs/mcp.md). It has the key in it."""
        return _core.mcp_config(self._transport.settings, self._path("mcp"))

    # How it is reached, and what it reaches

    @property
    def network(self) -> AsyncSandboxNetwork:
        """What the sandbox may reach, and what it has contacted."""
        from .network import AsyncSandboxNetwork

        return AsyncSandboxNetwork(self._transport, self.record.id)

    @property
    def ports(self) -> AsyncPorts:
        """The ports of the sandbox, and who may open their previews."""
        from .network import AsyncPorts

        return AsyncPorts(self._transport, self.record.id)

    async def preview_url(self, port: int) -> str:
        """Gives the address at which a browser opens what listens on a port."""
        from .network import port_of

        request = Request("POST", self._path("preview"), json={"port": port_of(port)})
        return (await self._transport.call(request, models.Preview.from_dict)).url

    async def preview_urls(self) -> dict[int, str]:
        """Gives the addresses of all ports that something listens on."""
        return {p.port: p.url for p in await self.ports.list() if p.listening}

    async def signed_preview_url(self, port: int, ttl_seconds: int | None = None) -> str:
        """Gives an address that opens the preview of a port, also of a private one, until it expires.

        ttl_seconds: default 3600, at most seven days. preview_token gives more.
        """
        return (await self.preview_token(port, ttl_seconds)).url

    async def preview_token(self, port: int, ttl_seconds: int | None = None) -> PreviewURL:
        """Signs the address of a preview: with the token that programs send in the
        header X-PandaStack-Preview-Token, and when it expires."""
        from .network import port_of

        body = {"port": port_of(port)}
        if ttl_seconds is not None:
            body["ttl_seconds"] = _check.whole("ttl_seconds", ttl_seconds, low=1)
        return await self._transport.call(Request("POST", self._path("preview-token"), json=body), models.PreviewURL.from_dict)

    async def ssh(self) -> SSHInfo:
        """Says how to reach the sandbox by SSH (BadRequestError where the server offers none).
        client.ssh_keys.add lets a key in."""
        return await self._transport.call(Request("GET", self._path("ssh")), models.SSHInfo.from_dict)

    # What it says of itself

    @overload
    async def logs(self, *, stream: str = "both", follow: Literal[False] = False, tail: int | None = None) -> str: ...

    @overload
    async def logs(
        self, *, stream: str = "both", follow: Literal[True], tail: int | None = None
    ) -> AsyncStream[LogLine]: ...

    async def logs(
        self, *, stream: str = "both", follow: bool = False, tail: int | None = None
    ) -> str | AsyncStream[LogLine]:
        """Gives what processes in the sandbox wrote.

        stream: stdout, stderr or both. tail: only the last so many lines.
        Without follow this is text; with it a stream of LogLine that goes on
        until it is closed or the sandbox ends.
        """
        query: dict[str, Any] = {"stream": _check.choice("stream", stream, ("stdout", "stderr", "both"))}
        if tail is not None:
            query["tail"] = _check.whole("tail", tail)
        if not _check.truth("follow", follow):
            response = await self._transport.send(Request("GET", self._path("logs"), query, accept="text/plain"))
            if not _core.is_kind(response, "text/plain"):
                raise _core.not_a_server(self._transport.settings, response)
            return response.content.decode("utf-8", "replace")
        from .stream import AsyncStream

        query["follow"] = "1"
        return AsyncStream(self._transport, await self._open("GET", "logs", query=query), models.LogLine.from_dict)

    @overload
    async def events(
        self, *, follow: Literal[False] = False, tail: int | None = None, since: int | str | None = None
    ) -> List[Event]: ...

    @overload
    async def events(
        self, *, follow: Literal[True], tail: int | None = None, since: int | str | None = None
    ) -> AsyncStream[Event]: ...

    async def events(
        self, *, follow: bool = False, tail: int | None = None, since: int | str | None = None
    ) -> List[Event] | AsyncStream[Event]:
        """Gives what happened to the sandbox, oldest first.

        tail: only the last so many. since: only those after the event with
        this id, or after this time (RFC 3339 or Unix seconds). Without follow
        this is a list; with it a stream that goes on until it is closed or the
        sandbox ends.
        """
        query: dict[str, Any] = {}
        if tail is not None:
            query["tail"] = _check.whole("tail", tail)
        if since is not None:
            query["since"] = since if isinstance(since, str) else _check.whole("since", since)
        if not _check.truth("follow", follow):
            request = Request("GET", self._path("events"), query)
            return await self._transport.call(request, lambda items: [models.Event.from_dict(item) for item in items])
        from .stream import AsyncStream

        query["follow"] = "1"
        return AsyncStream(self._transport, await self._open("GET", "events", query=query), models.Event.from_dict)

    async def metrics(self) -> Metrics:
        """Says what the sandbox uses now."""
        return await self._transport.call(Request("GET", self._path("metrics")), models.Metrics.from_dict)

    async def metrics_series(self, range: str | float = "1h", step: str | float | None = None) -> MetricsSeries:
        """Says what the sandbox used over the last while, without waking it.

        range, step: seconds, or text such as 15m; an hour at most is kept.
        """
        query = {"range": _check.duration("range", range)}
        if step is not None:
            query["step"] = _check.duration("step", step)
        request = Request("GET", ("v1", "metrics", "sandbox", self.record.id), query)
        return await self._transport.call(request, models.MetricsSeries.from_dict)

    async def refresh(self) -> AsyncSandbox:
        """Reads the record again."""
        return await self._record(Request("GET", self._path()))

    # Its life

    async def kill(self) -> None:
        """Ends the sandbox and all in it."""
        await self._transport.do(Request("DELETE", self._path(), timeout=_core.SLOWER))

    async def pause(self) -> AsyncSandbox:
        """Stops every process where it stands; memory stays on the host."""
        return await self._record(self._post("pause"))

    async def resume(self) -> AsyncSandbox:
        """Lets a paused sandbox go on."""
        return await self._record(self._post("resume"))

    async def hibernate(self) -> AsyncSandbox:
        """Puts the sandbox to disk with all its state and frees its memory.
        The next request that needs it wakes it."""
        return await self._record(self._post("hibernate"))

    async def wake(self) -> AsyncSandbox:
        """Brings a hibernated sandbox back ahead of the request that would."""
        return await self._record(self._post("wake"))

    async def lifecycle(self) -> Lifecycle:
        """Says how long the sandbox lives and when it goes to sleep by itself."""
        return await self._transport.call(Request("GET", self._path("lifecycle")), models.Lifecycle.from_dict)

    async def set_lifecycle(
        self,
        *,
        ttl_seconds: int | None = None,
        persistent: bool | None = None,
        idle_seconds: int | None = None,
        idle: IdlePolicy | Mapping[str, Any] | None = None,
        checkpoints: CheckpointPolicy | Mapping[str, Any] | None = None,
    ) -> Lifecycle:
        """Changes what is given; the rest stays as it is."""
        body = _check.lifecycle(ttl_seconds, persistent, idle_seconds, idle, checkpoints)
        return await self._transport.call(Request("PATCH", self._path("lifecycle"), json=body), models.Lifecycle.from_dict)

    async def set_ttl(self, seconds: int) -> Lifecycle:
        """Lets the sandbox live for so many seconds from now on."""
        return await self.set_lifecycle(ttl_seconds=_check.whole("seconds", seconds, low=1))

    async def set_persistent(self, persistent: bool = True) -> Lifecycle:
        """Removes the time to live, or with False lets the server's default run from now on."""
        return await self.set_lifecycle(persistent=_check.truth("persistent", persistent))

    async def set_idle(self, seconds: int) -> Lifecycle:
        """Lets the sandbox go to sleep after so many seconds without use; 0 is never."""
        return await self.set_lifecycle(idle_seconds=_check.whole("seconds", seconds))

    # Copies of it

    async def snapshot(
        self, name: str | None = None, *, memory: bool = True, metadata: Mapping[str, str] | None = None
    ) -> Snapshot:
        """Keeps the sandbox as it is now, while it goes on running.

        memory: False keeps only the files; such a snapshot starts anywhere.
        name: unique among the caller's snapshots (ConflictError).
        """
        body: dict[str, Any] = {"memory": _check.truth("memory", memory)}
        if name is not None:
            body["name"] = _check.text("name", name)
        if metadata is not None:
            body["metadata"] = _check.labels("metadata", metadata)
        return await self._transport.call(self._post("snapshots", json=body), models.Snapshot.from_dict)

    async def snapshots(self) -> List[Snapshot]:
        """Gives the snapshots that were taken of the sandbox, newest first."""
        from .resources import snapshot_pages

        return await snapshot_pages(self._transport, self._path("snapshots"), {}, None)

    @overload
    async def fork(
        self,
        count: None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        persistent: bool | None = None,
        cpu: float | None = None,
        memory_mb: int | None = None,
        checkpoint: str | Snapshot | None = None,
    ) -> AsyncSandbox: ...

    @overload
    async def fork(
        self,
        count: int,
        *,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        persistent: bool | None = None,
        cpu: float | None = None,
        memory_mb: int | None = None,
        checkpoint: str | Snapshot | None = None,
    ) -> List[AsyncSandbox]: ...

    async def fork(
        self,
        count: int | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        persistent: bool | None = None,
        cpu: float | None = None,
        memory_mb: int | None = None,
        checkpoint: str | Snapshot | None = None,
    ) -> AsyncSandbox | List[AsyncSandbox]:
        """Makes a child that goes on from where the sandbox is now; it goes on itself too.

        fork() gives the child, fork(n) a list of n children of one moment.
        checkpoint: from there instead of from now. env is added to the
        parent's, for processes started from now on; metadata replaces it.
        """
        if count is not None:
            tree = await self.fork_tree(
                count,
                metadata=metadata,
                env=env,
                ttl_seconds=ttl_seconds,
                persistent=persistent,
                cpu=cpu,
                memory_mb=memory_mb,
                checkpoint=checkpoint,
            )
            return tree.children
        body = _check.fork(metadata, env, ttl_seconds, persistent, cpu, memory_mb, checkpoint)
        record = await self._transport.call(self._post("fork", json=body), models.SandboxRecord.from_dict)
        return AsyncSandbox(self._transport, record)

    async def fork_tree(
        self,
        count: int,
        *,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        persistent: bool | None = None,
        cpu: float | None = None,
        memory_mb: int | None = None,
        checkpoint: str | Snapshot | None = None,
    ) -> AsyncForkTree:
        """Makes count children of one moment: all of them or, with an error, none."""
        body = _check.fork(metadata, env, ttl_seconds, persistent, cpu, memory_mb, checkpoint)
        body["count"] = _check.whole("count", count, low=1)
        made = await self._transport.call(self._post("fork-tree", json=body), models.ForkTreeRecord.from_dict)
        return AsyncForkTree(made.tree_id, made.parent_id, [AsyncSandbox(self._transport, r) for r in made.children])

    async def promote(self, tree_id: str | None = None, *, cleanup_siblings: bool = False) -> Promoted:
        """Marks the sandbox as the child of its tree to go on with.

        cleanup_siblings: delete the others.
        """
        body: dict[str, Any] = {"cleanup_siblings": _check.truth("cleanup_siblings", cleanup_siblings)}
        if tree_id is not None:
            body["tree_id"] = _check.text("tree_id", tree_id)
        promoted = await self._transport.call(self._post("promote", json=body), models.Promoted.from_dict)
        self.record = promoted.sandbox
        return promoted

    async def tree(self) -> Tree:
        """Gives the lineage of the sandbox: all that descends from its oldest
        ancestor, parents before children, also what is gone."""
        return await self._transport.call(Request("GET", self._path("tree")), models.Tree.from_dict)

    async def checkpoint(self, name: str | None = None) -> Snapshot:
        """Notes the sandbox as it is now on its timeline, for restore."""
        body = {} if name is None else {"name": _check.text("name", name)}
        return await self._transport.call(self._post("checkpoint", json=body), models.Snapshot.from_dict)

    async def checkpoints(self) -> Timeline:
        """Gives the timeline of the sandbox, oldest first."""
        return await self._transport.call(Request("GET", self._path("checkpoints")), models.Timeline.from_dict)

    async def delete_checkpoint(self, checkpoint: str | Snapshot) -> None:
        """Removes a checkpoint, named by its id or name, from the timeline."""
        name = _check.identifier("checkpoint", checkpoint)
        await self._transport.do(Request("DELETE", self._path("checkpoints", name)))

    async def restore(self, checkpoint: str | Snapshot | None = None) -> AsyncSandbox:
        """Takes the sandbox back to a checkpoint, the newest unless named, with
        the same id. What happened since is lost unless a checkpoint has it."""
        body = {} if checkpoint is None else {"checkpoint": _check.identifier("checkpoint", checkpoint)}
        return await self._record(self._post("restore", json=body))

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from ..errors import NotFoundError

        try:
            await self.kill()
        except NotFoundError:
            pass  # it has ended already

    def _path(self, *more: str) -> tuple[str, ...]:
        return ("v1", "sandboxes", self.record.id, *more)

    def _post(self, *endpoint: str, json: Any = None) -> Request:
        return Request("POST", self._path(*endpoint), json=json, timeout=_core.SLOWER)

    async def _open(self, method: str, *endpoint: str, query: Any = None, json: Any = None) -> Any:
        patience = max(self._transport.settings.timeout, _core.STREAM_SILENCE)
        return await self._transport.open(
            Request(method, self._path(*endpoint), query, json=json, accept="text/event-stream", timeout=patience)
        )

    async def _record(self, r: Request) -> AsyncSandbox:
        self.record = await self._transport.call(r, models.SandboxRecord.from_dict)
        return self


class AsyncForkTree:
    """Children that were forked at once. It is a sequence of them too.

    tree_id names the siblings, for promote; parent_id is what they were forked
    from.
    """

    def __init__(self, tree_id: str, parent_id: str, children: List[AsyncSandbox]) -> None:
        self.tree_id = tree_id
        self.parent_id = parent_id
        self.children = children

    def __iter__(self) -> Iterator[AsyncSandbox]:
        return iter(self.children)

    def __len__(self) -> int:
        return len(self.children)

    def __getitem__(self, index: int) -> AsyncSandbox:
        return self.children[index]


def _client(client: AsyncPandaStack | None) -> AsyncPandaStack:
    from .client import AsyncPandaStack, default_client

    if client is None:
        return default_client()
    if not isinstance(client, AsyncPandaStack):
        raise TypeError(f"client is an AsyncPandaStack, not {type(client).__name__}")
    return client


def _callback(name: str, value: Any) -> Callable[[Any], Any] | None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} is a function, not {type(value).__name__}")
    callback: Callable[[Any], Any] | None = value
    return callback
