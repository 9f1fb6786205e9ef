# Made by tools/generate.py from api/openapi.json. Do not edit.

"""The types of the API.

Each has from_dict, which reads what the server sent: fields that this version
does not know are passed over, and one that is missing or of the wrong kind is
a ValueError, TypeError, KeyError or AttributeError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional

from .._display import ShownOutput, ShownRun
from .._record import Record
from .._times import parse_time


@dataclass(init=False, repr=False, eq=False)
class Changed(Record):
    """How many files and directories an operation changed."""

    count: int

    def __init__(
        self,
        count: int,
    ) -> None:
        self.count = count

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Changed":
        return cls(
            count=d["count"],
        )


@dataclass(init=False, repr=False, eq=False)
class CheckpointPolicy(Record):
    """Which checkpoints of a sandbox are kept. 0 is no limit."""

    keep_last: Optional[int] = None
    max_age_seconds: Optional[int] = None

    def __init__(
        self,
        keep_last: Optional[int] = None,
        max_age_seconds: Optional[int] = None,
    ) -> None:
        self.keep_last = keep_last
        self.max_age_seconds = max_age_seconds

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "CheckpointPolicy":
        return cls(
            keep_last=d.get("keep_last"),
            max_age_seconds=d.get("max_age_seconds"),
        )


@dataclass(init=False, repr=False, eq=False)
class CodeContext(Record):
    """An interpreter that keeps its state between executions."""

    id: str
    language: str
    cwd: str

    def __init__(
        self,
        id: str,
        language: str,
        cwd: str,
    ) -> None:
        self.id = id
        self.language = language
        self.cwd = cwd

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "CodeContext":
        return cls(
            id=d["id"],
            language=d["language"],
            cwd=d["cwd"],
        )


@dataclass(init=False, repr=False, eq=False)
class CodeError(Record):
    """An error that code raised, or its interruption."""

    name: str
    value: str
    traceback: str

    def __init__(
        self,
        name: str,
        value: str,
        traceback: str,
    ) -> None:
        self.name = name
        self.value = value
        self.traceback = traceback

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "CodeError":
        return cls(
            name=d["name"],
            value=d["value"],
            traceback=d["traceback"],
        )


@dataclass(init=False, repr=False, eq=False)
class ErrorBody(Record):
    """A failure as the server writes it.

    code: Stable name of the failure.
    message: What happened, for people.
    details: More, by code: retryable, retry_after_sec, field, ...
    hint: What to do about it.
    request_id: Names this request in the server's log.
    """

    code: str
    message: str
    details: Dict[str, Any] = field(default_factory=dict)
    hint: Optional[str] = None
    request_id: Optional[str] = None

    def __init__(
        self,
        code: str,
        message: str,
        details: Optional[Dict[str, Any]] = None,
        hint: Optional[str] = None,
        request_id: Optional[str] = None,
    ) -> None:
        self.code = code
        self.message = message
        self.details = {} if details is None else details
        self.hint = hint
        self.request_id = request_id

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ErrorBody":
        return cls(
            code=d["code"],
            message=d["message"],
            details=dict(d.get("details") or {}),
            hint=d.get("hint"),
            request_id=d.get("request_id"),
        )


@dataclass(init=False, repr=False, eq=False)
class CodeOutput(ShownOutput, Record):
    """One value in every form that it was shown in. A notebook displays it.

    is_main_result: It is the value of the last expression.
    chart: A chart as data: type, title, elements, axes.
    data: A table, as lists by column.
    extra: Other forms, by media type.
    png: Base64, as are jpeg and pdf.
    """

    is_main_result: bool
    chart: Any = None
    data: Any = None
    extra: Any = None
    html: Optional[str] = None
    javascript: Optional[str] = None
    jpeg: Optional[str] = None
    json: Any = None
    latex: Optional[str] = None
    markdown: Optional[str] = None
    pdf: Optional[str] = None
    png: Optional[str] = None
    svg: Optional[str] = None
    text: Optional[str] = None

    def __init__(
        self,
        is_main_result: bool,
        chart: Any = None,
        data: Any = None,
        extra: Any = None,
        html: Optional[str] = None,
        javascript: Optional[str] = None,
        jpeg: Optional[str] = None,
        json: Any = None,
        latex: Optional[str] = None,
        markdown: Optional[str] = None,
        pdf: Optional[str] = None,
        png: Optional[str] = None,
        svg: Optional[str] = None,
        text: Optional[str] = None,
    ) -> None:
        self.is_main_result = is_main_result
        self.chart = chart
        self.data = data
        self.extra = extra
        self.html = html
        self.javascript = javascript
        self.jpeg = jpeg
        self.json = json
        self.latex = latex
        self.markdown = markdown
        self.pdf = pdf
        self.png = png
        self.svg = svg
        self.text = text

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "CodeOutput":
        return cls(
            is_main_result=d["is_main_result"],
            chart=d.get("chart"),
            data=d.get("data"),
            extra=d.get("extra"),
            html=d.get("html"),
            javascript=d.get("javascript"),
            jpeg=d.get("jpeg"),
            json=d.get("json"),
            latex=d.get("latex"),
            markdown=d.get("markdown"),
            pdf=d.get("pdf"),
            png=d.get("png"),
            svg=d.get("svg"),
            text=d.get("text"),
        )


@dataclass(init=False, repr=False, eq=False)
class CodeEvent(Record):
    """One event of an execution.

    type: One of start, stdout, stderr, result, exception, end, error.
    duration_ms: With end.
    error: Why the stream broke off; the last event.
    exception: What the code raised.
    execution_count: With start.
    text: With stdout and stderr.
    timed_out: With end.
    timestamp: With stdout and stderr: seconds since 1970.
    """

    type: str
    duration_ms: Optional[float] = None
    error: Optional[ErrorBody] = None
    exception: Optional[CodeError] = None
    execution_count: Optional[int] = None
    result: Optional[CodeOutput] = None
    text: Optional[str] = None
    timed_out: bool = False
    timestamp: Optional[float] = None

    def __init__(
        self,
        type: str,
        duration_ms: Optional[float] = None,
        error: Optional[ErrorBody] = None,
        exception: Optional[CodeError] = None,
        execution_count: Optional[int] = None,
        result: Optional[CodeOutput] = None,
        text: Optional[str] = None,
        timed_out: bool = False,
        timestamp: Optional[float] = None,
    ) -> None:
        self.type = type
        self.duration_ms = duration_ms
        self.error = error
        self.exception = exception
        self.execution_count = execution_count
        self.result = result
        self.text = text
        self.timed_out = timed_out
        self.timestamp = timestamp

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "CodeEvent":
        return cls(
            type=d["type"],
            duration_ms=d.get("duration_ms"),
            error=ErrorBody.from_dict(d["error"]) if d.get("error") is not None else None,
            exception=CodeError.from_dict(d["exception"]) if d.get("exception") is not None else None,
            execution_count=d.get("execution_count"),
            result=CodeOutput.from_dict(d["result"]) if d.get("result") is not None else None,
            text=d.get("text"),
            timed_out=bool(d.get("timed_out")),
            timestamp=d.get("timestamp"),
        )


@dataclass(init=False, repr=False, eq=False)
class CodeLanguages(Record):
    """What contexts can run."""

    languages: List[str]

    def __init__(
        self,
        languages: List[str],
    ) -> None:
        self.languages = languages

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "CodeLanguages":
        return cls(
            languages=list(d["languages"]),
        )


@dataclass(init=False, repr=False, eq=False)
class CodeRun(ShownRun, Record):
    """A finished execution. A notebook displays it.

    results: Everything that was shown, in order.
    execution_count: Number of this execution in its context.
    text: Value of the last expression, as text.
    truncated: More came than the buffered call keeps; the streaming one has no limit.
    """

    stdout: str
    stderr: str
    results: List[CodeOutput]
    execution_count: int
    duration_ms: float
    error: Optional[CodeError] = None
    text: Optional[str] = None
    timed_out: bool = False
    truncated: bool = False

    def __init__(
        self,
        stdout: str,
        stderr: str,
        results: List[CodeOutput],
        execution_count: int,
        duration_ms: float,
        error: Optional[CodeError] = None,
        text: Optional[str] = None,
        timed_out: bool = False,
        truncated: bool = False,
    ) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.results = results
        self.execution_count = execution_count
        self.duration_ms = duration_ms
        self.error = error
        self.text = text
        self.timed_out = timed_out
        self.truncated = truncated

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "CodeRun":
        return cls(
            stdout=d["stdout"],
            stderr=d["stderr"],
            results=[CodeOutput.from_dict(item) for item in d["results"]],
            execution_count=d["execution_count"],
            duration_ms=d["duration_ms"],
            error=CodeError.from_dict(d["error"]) if d.get("error") is not None else None,
            text=d.get("text"),
            timed_out=bool(d.get("timed_out")),
            truncated=bool(d.get("truncated")),
        )


@dataclass(init=False, repr=False, eq=False)
class Connection(Record):
    """One line of a connection log: an attempt to reach something, when it ended or was refused.

    id: Grows with time; pass as since= to go on from here.
    time: When it began.
    protocol: One of tcp, udp, dns, icmp, other.
    verdict: One of allowed, denied.
    sent_bytes: By the sandbox.
    address: IPv4 address.
    count: Attempts that this line stands for, when more than one.
    name: Name that was asked for, where one is known: from TLS, HTTP or DNS.
    reason: Why it was denied, or could not be made.
    seconds: How long it lasted.
    """

    id: int
    time: datetime
    protocol: str
    verdict: str
    sent_bytes: int
    received_bytes: int
    address: Optional[str] = None
    count: Optional[int] = None
    name: Optional[str] = None
    port: Optional[int] = None
    reason: Optional[str] = None
    seconds: Optional[float] = None

    def __init__(
        self,
        id: int,
        time: datetime,
        protocol: str,
        verdict: str,
        sent_bytes: int,
        received_bytes: int,
        address: Optional[str] = None,
        count: Optional[int] = None,
        name: Optional[str] = None,
        port: Optional[int] = None,
        reason: Optional[str] = None,
        seconds: Optional[float] = None,
    ) -> None:
        self.id = id
        self.time = time
        self.protocol = protocol
        self.verdict = verdict
        self.sent_bytes = sent_bytes
        self.received_bytes = received_bytes
        self.address = address
        self.count = count
        self.name = name
        self.port = port
        self.reason = reason
        self.seconds = seconds

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Connection":
        return cls(
            id=d["id"],
            time=parse_time(d["time"]),
            protocol=d["protocol"],
            verdict=d["verdict"],
            sent_bytes=d["sent_bytes"],
            received_bytes=d["received_bytes"],
            address=d.get("address"),
            count=d.get("count"),
            name=d.get("name"),
            port=d.get("port"),
            reason=d.get("reason"),
            seconds=d.get("seconds"),
        )


@dataclass(init=False, repr=False, eq=False)
class ConnectionLog(Record):
    """The newest part of a sandbox's connection log, oldest first.

    dropped: Lines lost since the sandbox was made, because there were too many.
    """

    connections: List[Connection]
    dropped: Optional[int] = None

    def __init__(
        self,
        connections: List[Connection],
        dropped: Optional[int] = None,
    ) -> None:
        self.connections = connections
        self.dropped = dropped

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ConnectionLog":
        return cls(
            connections=[Connection.from_dict(item) for item in d["connections"]],
            dropped=d.get("dropped"),
        )


@dataclass(init=False, repr=False, eq=False)
class ContextList(Record):
    """The contexts of a sandbox, oldest first."""

    contexts: List[CodeContext]

    def __init__(
        self,
        contexts: List[CodeContext],
    ) -> None:
        self.contexts = contexts

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ContextList":
        return cls(
            contexts=[CodeContext.from_dict(item) for item in d["contexts"]],
        )


@dataclass(init=False, repr=False, eq=False)
class FileInfo(Record):
    """One entry of a sandbox's filesystem.

    type: One of file, directory, symlink, other.
    target: Where a symlink points.
    """

    name: str
    path: str
    type: str
    size: int
    mode: str
    owner: str
    group: str
    modified: datetime
    target: Optional[str] = None

    def __init__(
        self,
        name: str,
        path: str,
        type: str,
        size: int,
        mode: str,
        owner: str,
        group: str,
        modified: datetime,
        target: Optional[str] = None,
    ) -> None:
        self.name = name
        self.path = path
        self.type = type
        self.size = size
        self.mode = mode
        self.owner = owner
        self.group = group
        self.modified = modified
        self.target = target

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "FileInfo":
        return cls(
            name=d["name"],
            path=d["path"],
            type=d["type"],
            size=d["size"],
            mode=d["mode"],
            owner=d["owner"],
            group=d["group"],
            modified=parse_time(d["modified"]),
            target=d.get("target"),
        )


@dataclass(init=False, repr=False, eq=False)
class DirList(Record):
    """The entries of a directory."""

    path: str
    entries: List[FileInfo]

    def __init__(
        self,
        path: str,
        entries: List[FileInfo],
    ) -> None:
        self.path = path
        self.entries = entries

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "DirList":
        return cls(
            path=d["path"],
            entries=[FileInfo.from_dict(item) for item in d["entries"]],
        )


@dataclass(init=False, repr=False, eq=False)
class Event(Record):
    """Something that happened to a sandbox.

    id: Grows with time; pass as since= to go on from here.
    """

    id: int
    sandbox_id: str
    type: str
    time: datetime
    data: Dict[str, str] = field(default_factory=dict)

    def __init__(
        self,
        id: int,
        sandbox_id: str,
        type: str,
        time: datetime,
        data: Optional[Dict[str, str]] = None,
    ) -> None:
        self.id = id
        self.sandbox_id = sandbox_id
        self.type = type
        self.time = time
        self.data = {} if data is None else data

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Event":
        return cls(
            id=d["id"],
            sandbox_id=d["sandbox_id"],
            type=d["type"],
            time=parse_time(d["time"]),
            data=dict(d.get("data") or {}),
        )


@dataclass(init=False, repr=False, eq=False)
class ExecResult(Record):
    """A finished command.

    stdout: Bytes that are not UTF-8 are replaced; the streaming calls give them as they are.
    exit_code: 128+n after signal n.
    """

    stdout: str
    stderr: str
    exit_code: int
    duration_ms: float
    pid: Optional[int] = None
    signal: Optional[str] = None
    timed_out: bool = False
    truncated: bool = False

    def __init__(
        self,
        stdout: str,
        stderr: str,
        exit_code: int,
        duration_ms: float,
        pid: Optional[int] = None,
        signal: Optional[str] = None,
        timed_out: bool = False,
        truncated: bool = False,
    ) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = exit_code
        self.duration_ms = duration_ms
        self.pid = pid
        self.signal = signal
        self.timed_out = timed_out
        self.truncated = truncated

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ExecResult":
        return cls(
            stdout=d["stdout"],
            stderr=d["stderr"],
            exit_code=d["exit_code"],
            duration_ms=d["duration_ms"],
            pid=d.get("pid"),
            signal=d.get("signal"),
            timed_out=bool(d.get("timed_out")),
            truncated=bool(d.get("truncated")),
        )


@dataclass(init=False, repr=False, eq=False)
class Extracted(Record):
    """What an archive held.

    path: The directory, in full.
    files: Files, directories and links that were made.
    skipped: Devices and other things that are never made.
    """

    path: str
    files: int
    bytes: int
    skipped: int

    def __init__(
        self,
        path: str,
        files: int,
        bytes: int,
        skipped: int,
    ) -> None:
        self.path = path
        self.files = files
        self.bytes = bytes
        self.skipped = skipped

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Extracted":
        return cls(
            path=d["path"],
            files=d["files"],
            bytes=d["bytes"],
            skipped=d["skipped"],
        )


@dataclass(init=False, repr=False, eq=False)
class FileEvent(Record):
    """One change below a watched directory. A rename is of the old path; the new one has a create.

    type: One of create, write, remove, rename, chmod, overflow.
    path: In full; none of overflow.
    """

    type: str
    path: Optional[str] = None

    def __init__(
        self,
        type: str,
        path: Optional[str] = None,
    ) -> None:
        self.type = type
        self.path = path

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "FileEvent":
        return cls(
            type=d["type"],
            path=d.get("path"),
        )


@dataclass(init=False, repr=False, eq=False)
class Step(Record):
    """One named part of a start and how long it took.

    ms: Milliseconds.
    """

    name: str
    ms: float

    def __init__(
        self,
        name: str,
        ms: float,
    ) -> None:
        self.name = name
        self.ms = ms

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Step":
        return cls(
            name=d["name"],
            ms=d["ms"],
        )


@dataclass(init=False, repr=False, eq=False)
class IdlePolicy(Record):
    """When a sandbox goes to sleep by itself.

    timeout_seconds: Sleep after this long without use; 0 is never.
    cpu_percent: Of one CPU: more than this is busy; default 2.
    ignore_processes: Busy processes do not count.
    ignore_streams: An open stream or terminal without a byte does not count.
    ignore_traffic: Its own network traffic does not count.
    traffic_bytes: In a look of some seconds: more than this is traffic; default 1024.
    """

    timeout_seconds: int
    cpu_percent: Optional[float] = None
    ignore_processes: Optional[bool] = None
    ignore_streams: Optional[bool] = None
    ignore_traffic: Optional[bool] = None
    traffic_bytes: Optional[int] = None

    def __init__(
        self,
        timeout_seconds: int,
        cpu_percent: Optional[float] = None,
        ignore_processes: Optional[bool] = None,
        ignore_streams: Optional[bool] = None,
        ignore_traffic: Optional[bool] = None,
        traffic_bytes: Optional[int] = None,
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self.cpu_percent = cpu_percent
        self.ignore_processes = ignore_processes
        self.ignore_streams = ignore_streams
        self.ignore_traffic = ignore_traffic
        self.traffic_bytes = traffic_bytes

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "IdlePolicy":
        return cls(
            timeout_seconds=d["timeout_seconds"],
            cpu_percent=d.get("cpu_percent"),
            ignore_processes=d.get("ignore_processes"),
            ignore_streams=d.get("ignore_streams"),
            ignore_traffic=d.get("ignore_traffic"),
            traffic_bytes=d.get("traffic_bytes"),
        )


@dataclass(init=False, repr=False, eq=False)
class SandboxRecord(Record):
    """A sandbox as the server last described it.

    status: One of creating, running, paused, hibernated, deleting, failed.
    host: Host that runs it.
    cpu: CPUs it may use at most.
    memory_mb: Memory limit, MiB.
    disk_mb: Writable disk, MiB.
    metadata: The owner's own labels.
    persistent: Has no time to live.
    ttl_seconds: Lifetime from its last setting; 0 when persistent.
    boot_mode: One of cold, restore, fork, wake.
    boot_ms: Milliseconds from the host taking the request to the guest answering.
    boot_steps: Milliseconds by step.
    error: Why it failed.
    expires_at: When its time to live runs out.
    guest_ip: Its address on the host's sandbox network.
    idle: When it goes to sleep by itself.
    parent_id: Sandbox that it was forked from.
    snapshot_id: Snapshot that it was created from, or the checkpoint that it was last taken
        at or rolled back to.
    tree_id: Fork that it came from, shared with its siblings.
    """

    id: str
    template: str
    status: str
    driver: str
    host: str
    cpu: float
    memory_mb: int
    disk_mb: int
    metadata: Dict[str, str]
    persistent: bool
    ttl_seconds: int
    created_at: datetime
    boot_mode: Optional[str] = None
    boot_ms: Optional[float] = None
    boot_steps: List[Step] = field(default_factory=list)
    error: Optional[ErrorBody] = None
    expires_at: Optional[datetime] = None
    guest_ip: Optional[str] = None
    idle: Optional[IdlePolicy] = None
    parent_id: Optional[str] = None
    snapshot_id: Optional[str] = None
    tree_id: Optional[str] = None

    def __init__(
        self,
        id: str,
        template: str,
        status: str,
        driver: str,
        host: str,
        cpu: float,
        memory_mb: int,
        disk_mb: int,
        metadata: Dict[str, str],
        persistent: bool,
        ttl_seconds: int,
        created_at: datetime,
        boot_mode: Optional[str] = None,
        boot_ms: Optional[float] = None,
        boot_steps: Optional[List[Step]] = None,
        error: Optional[ErrorBody] = None,
        expires_at: Optional[datetime] = None,
        guest_ip: Optional[str] = None,
        idle: Optional[IdlePolicy] = None,
        parent_id: Optional[str] = None,
        snapshot_id: Optional[str] = None,
        tree_id: Optional[str] = None,
    ) -> None:
        self.id = id
        self.template = template
        self.status = status
        self.driver = driver
        self.host = host
        self.cpu = cpu
        self.memory_mb = memory_mb
        self.disk_mb = disk_mb
        self.metadata = metadata
        self.persistent = persistent
        self.ttl_seconds = ttl_seconds
        self.created_at = created_at
        self.boot_mode = boot_mode
        self.boot_ms = boot_ms
        self.boot_steps = [] if boot_steps is None else boot_steps
        self.error = error
        self.expires_at = expires_at
        self.guest_ip = guest_ip
        self.idle = idle
        self.parent_id = parent_id
        self.snapshot_id = snapshot_id
        self.tree_id = tree_id

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SandboxRecord":
        return cls(
            id=d["id"],
            template=d["template"],
            status=d["status"],
            driver=d["driver"],
            host=d["host"],
            cpu=d["cpu"],
            memory_mb=d["memory_mb"],
            disk_mb=d["disk_mb"],
            metadata=dict(d["metadata"]),
            persistent=d["persistent"],
            ttl_seconds=d["ttl_seconds"],
            created_at=parse_time(d["created_at"]),
            boot_mode=d.get("boot_mode"),
            boot_ms=d.get("boot_ms"),
            boot_steps=[Step.from_dict(item) for item in (d.get("boot_steps") or [])],
            error=ErrorBody.from_dict(d["error"]) if d.get("error") is not None else None,
            expires_at=parse_time(d["expires_at"]) if d.get("expires_at") is not None else None,
            guest_ip=d.get("guest_ip"),
            idle=IdlePolicy.from_dict(d["idle"]) if d.get("idle") is not None else None,
            parent_id=d.get("parent_id"),
            snapshot_id=d.get("snapshot_id"),
            tree_id=d.get("tree_id"),
        )


@dataclass(init=False, repr=False, eq=False)
class ForkTreeRecord(Record):
    """Children that were forked at once, as the server writes them.

    tree_id: Names these siblings; pass it to promote.
    """

    tree_id: str
    parent_id: str
    children: List[SandboxRecord]

    def __init__(
        self,
        tree_id: str,
        parent_id: str,
        children: List[SandboxRecord],
    ) -> None:
        self.tree_id = tree_id
        self.parent_id = parent_id
        self.children = children

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ForkTreeRecord":
        return cls(
            tree_id=d["tree_id"],
            parent_id=d["parent_id"],
            children=[SandboxRecord.from_dict(item) for item in d["children"]],
        )


@dataclass(init=False, repr=False, eq=False)
class GitAuth(Record):
    """A name and a password or token for a remote over HTTP.

    password: A password or token.
    host: Fail unless the remote is on this host (with its port, if it has one). What runs in
        the sandbox can point a remote elsewhere: name it for pull and push.
    username: Default git, which servers take beside a token.
    """

    password: str
    host: Optional[str] = None
    username: Optional[str] = None

    def __init__(
        self,
        password: str,
        host: Optional[str] = None,
        username: Optional[str] = None,
    ) -> None:
        self.password = password
        self.host = host
        self.username = username

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "GitAuth":
        return cls(
            password=d["password"],
            host=d.get("host"),
            username=d.get("username"),
        )


@dataclass(init=False, repr=False, eq=False)
class GitBranch(Record):
    """One branch.

    remote: A branch of a remote, as last seen.
    """

    name: str
    commit: str
    current: bool
    remote: bool
    upstream: Optional[str] = None

    def __init__(
        self,
        name: str,
        commit: str,
        current: bool,
        remote: bool,
        upstream: Optional[str] = None,
    ) -> None:
        self.name = name
        self.commit = commit
        self.current = current
        self.remote = remote
        self.upstream = upstream

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "GitBranch":
        return cls(
            name=d["name"],
            commit=d["commit"],
            current=d["current"],
            remote=d["remote"],
            upstream=d.get("upstream"),
        )


@dataclass(init=False, repr=False, eq=False)
class GitBranches(Record):
    """The branches of a repository."""

    branches: List[GitBranch]

    def __init__(
        self,
        branches: List[GitBranch],
    ) -> None:
        self.branches = branches

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "GitBranches":
        return cls(
            branches=[GitBranch.from_dict(item) for item in d["branches"]],
        )


@dataclass(init=False, repr=False, eq=False)
class GitCommit(Record):
    """One commit."""

    id: str
    parents: List[str]
    author: str
    email: str
    time: datetime
    subject: str
    body: Optional[str] = None

    def __init__(
        self,
        id: str,
        parents: List[str],
        author: str,
        email: str,
        time: datetime,
        subject: str,
        body: Optional[str] = None,
    ) -> None:
        self.id = id
        self.parents = parents
        self.author = author
        self.email = email
        self.time = time
        self.subject = subject
        self.body = body

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "GitCommit":
        return cls(
            id=d["id"],
            parents=list(d["parents"]),
            author=d["author"],
            email=d["email"],
            time=parse_time(d["time"]),
            subject=d["subject"],
            body=d.get("body"),
        )


@dataclass(init=False, repr=False, eq=False)
class GitLog(Record):
    """Commits, newest first.

    truncated: The list was cut before the limit, because it is too long.
    """

    commits: List[GitCommit]
    truncated: bool

    def __init__(
        self,
        commits: List[GitCommit],
        truncated: bool,
    ) -> None:
        self.commits = commits
        self.truncated = truncated

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "GitLog":
        return cls(
            commits=[GitCommit.from_dict(item) for item in d["commits"]],
            truncated=d["truncated"],
        )


@dataclass(init=False, repr=False, eq=False)
class GitPatch(Record):
    """Changes in git's patch format.

    truncated: The patch is longer; name paths to get it in parts.
    """

    diff: str
    truncated: bool

    def __init__(
        self,
        diff: str,
        truncated: bool,
    ) -> None:
        self.diff = diff
        self.truncated = truncated

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "GitPatch":
        return cls(
            diff=d["diff"],
            truncated=d["truncated"],
        )


@dataclass(init=False, repr=False, eq=False)
class GitFile(Record):
    """A file that differs from the last commit.

    staged: What is staged of it. One of unmodified, modified, added, deleted, renamed,
        copied, type_changed, untracked, conflict.
    worktree: What is not. One of unmodified, modified, added, deleted, renamed, copied,
        type_changed, untracked, conflict.
    from_: Where it was before it was renamed or copied.
    """

    path: str
    staged: str
    worktree: str
    from_: Optional[str] = None

    def __init__(
        self,
        path: str,
        staged: str,
        worktree: str,
        from_: Optional[str] = None,
    ) -> None:
        self.path = path
        self.staged = staged
        self.worktree = worktree
        self.from_ = from_

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "GitFile":
        return cls(
            path=d["path"],
            staged=d["staged"],
            worktree=d["worktree"],
            from_=d.get("from"),
        )


@dataclass(init=False, repr=False, eq=False)
class GitStatus(Record):
    """How a repository stands.

    ahead: Commits that the upstream lacks.
    behind: Commits that only the upstream has.
    truncated: There are more files.
    branch: None when no branch is checked out.
    commit: None before the first commit.
    """

    ahead: int
    behind: int
    clean: bool
    files: List[GitFile]
    truncated: bool
    branch: Optional[str] = None
    commit: Optional[str] = None
    upstream: Optional[str] = None

    def __init__(
        self,
        ahead: int,
        behind: int,
        clean: bool,
        files: List[GitFile],
        truncated: bool,
        branch: Optional[str] = None,
        commit: Optional[str] = None,
        upstream: Optional[str] = None,
    ) -> None:
        self.ahead = ahead
        self.behind = behind
        self.clean = clean
        self.files = files
        self.truncated = truncated
        self.branch = branch
        self.commit = commit
        self.upstream = upstream

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "GitStatus":
        return cls(
            ahead=d["ahead"],
            behind=d["behind"],
            clean=d["clean"],
            files=[GitFile.from_dict(item) for item in d["files"]],
            truncated=d["truncated"],
            branch=d.get("branch"),
            commit=d.get("commit"),
            upstream=d.get("upstream"),
        )


@dataclass(init=False, repr=False, eq=False)
class GlobResult(Record):
    """The files that match, in order of their paths.

    path: Where was looked, in full.
    truncated: There are more.
    """

    path: str
    matches: List[FileInfo]
    truncated: bool

    def __init__(
        self,
        path: str,
        matches: List[FileInfo],
        truncated: bool,
    ) -> None:
        self.path = path
        self.matches = matches
        self.truncated = truncated

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "GlobResult":
        return cls(
            path=d["path"],
            matches=[FileInfo.from_dict(item) for item in d["matches"]],
            truncated=d["truncated"],
        )


@dataclass(init=False, repr=False, eq=False)
class Health(Record):
    """Whether the server is up.

    status: One of ok, starting, failed.
    detail: What it waits for.
    """

    status: str
    detail: Optional[str] = None

    def __init__(
        self,
        status: str,
        detail: Optional[str] = None,
    ) -> None:
        self.status = status
        self.detail = detail

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Health":
        return cls(
            status=d["status"],
            detail=d.get("detail"),
        )


@dataclass(init=False, repr=False, eq=False)
class LSPServer(Record):
    """A program that speaks the Language Server Protocol.

    install: One way to install it in a sandbox or a template.
    """

    program: str
    install: str

    def __init__(
        self,
        program: str,
        install: str,
    ) -> None:
        self.program = program
        self.install = install

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "LSPServer":
        return cls(
            program=d["program"],
            install=d["install"],
        )


@dataclass(init=False, repr=False, eq=False)
class LSPLanguage(Record):
    """A language, and the servers that are known for it.

    aliases: Other names that are accepted.
    servers: In order of preference.
    """

    id: str
    aliases: List[str]
    servers: List[LSPServer]

    def __init__(
        self,
        id: str,
        aliases: List[str],
        servers: List[LSPServer],
    ) -> None:
        self.id = id
        self.aliases = aliases
        self.servers = servers

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "LSPLanguage":
        return cls(
            id=d["id"],
            aliases=list(d["aliases"]),
            servers=[LSPServer.from_dict(item) for item in d["servers"]],
        )


@dataclass(init=False, repr=False, eq=False)
class LSPLanguageList(Record):
    """Every language that there can be a language server for."""

    languages: List[LSPLanguage]

    def __init__(
        self,
        languages: List[LSPLanguage],
    ) -> None:
        self.languages = languages

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "LSPLanguageList":
        return cls(
            languages=[LSPLanguage.from_dict(item) for item in d["languages"]],
        )


@dataclass(init=False, repr=False, eq=False)
class Lifecycle(Record):
    """How long a sandbox lives.

    idle_seconds: Short for idle.timeout_seconds.
    ttl_seconds: From now on.
    """

    checkpoints: Optional[CheckpointPolicy] = None
    expires_at: Optional[datetime] = None
    idle: Optional[IdlePolicy] = None
    idle_seconds: Optional[int] = None
    persistent: Optional[bool] = None
    ttl_seconds: Optional[int] = None

    def __init__(
        self,
        checkpoints: Optional[CheckpointPolicy] = None,
        expires_at: Optional[datetime] = None,
        idle: Optional[IdlePolicy] = None,
        idle_seconds: Optional[int] = None,
        persistent: Optional[bool] = None,
        ttl_seconds: Optional[int] = None,
    ) -> None:
        self.checkpoints = checkpoints
        self.expires_at = expires_at
        self.idle = idle
        self.idle_seconds = idle_seconds
        self.persistent = persistent
        self.ttl_seconds = ttl_seconds

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Lifecycle":
        return cls(
            checkpoints=CheckpointPolicy.from_dict(d["checkpoints"]) if d.get("checkpoints") is not None else None,
            expires_at=parse_time(d["expires_at"]) if d.get("expires_at") is not None else None,
            idle=IdlePolicy.from_dict(d["idle"]) if d.get("idle") is not None else None,
            idle_seconds=d.get("idle_seconds"),
            persistent=d.get("persistent"),
            ttl_seconds=d.get("ttl_seconds"),
        )


@dataclass(init=False, repr=False, eq=False)
class LinkTarget(Record):
    """What a symbolic link says."""

    path: str
    target: str

    def __init__(
        self,
        path: str,
        target: str,
    ) -> None:
        self.path = path
        self.target = target

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "LinkTarget":
        return cls(
            path=d["path"],
            target=d["target"],
        )


@dataclass(init=False, repr=False, eq=False)
class LogLine(Record):
    """One line that a process in a sandbox wrote.

    stream: One of stdout, stderr, system.
    """

    time: datetime
    stream: str
    line: str
    pid: Optional[int] = None

    def __init__(
        self,
        time: datetime,
        stream: str,
        line: str,
        pid: Optional[int] = None,
    ) -> None:
        self.time = time
        self.stream = stream
        self.line = line
        self.pid = pid

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "LogLine":
        return cls(
            time=parse_time(d["time"]),
            stream=d["stream"],
            line=d["line"],
            pid=d.get("pid"),
        )


@dataclass(init=False, repr=False, eq=False)
class Me(Record):
    """The caller.

    name: Name of the key.
    prefix: First characters of the key.
    """

    org: str
    name: str
    prefix: str
    admin: bool

    def __init__(
        self,
        org: str,
        name: str,
        prefix: str,
        admin: bool,
    ) -> None:
        self.org = org
        self.name = name
        self.prefix = prefix
        self.admin = admin

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Me":
        return cls(
            org=d["org"],
            name=d["name"],
            prefix=d["prefix"],
            admin=d["admin"],
        )


@dataclass(init=False, repr=False, eq=False)
class Metrics(Record):
    """What a sandbox uses now.

    pid: Process of the runtime on its host.
    host_cpu_percent: Since the last reading, 100 is one CPU.
    cpu_seconds: Host CPU time so far.
    host_rss_bytes: Memory charged to the sandbox on its host.
    processes: Host tasks, the runtime's own included.
    """

    pid: int
    uptime_seconds: float
    host_cpu_percent: float
    cpu_seconds: float
    host_rss_bytes: int
    memory_limit_bytes: int
    disk_used_bytes: int
    disk_limit_bytes: int
    processes: int
    rx_bytes: int
    tx_bytes: int

    def __init__(
        self,
        pid: int,
        uptime_seconds: float,
        host_cpu_percent: float,
        cpu_seconds: float,
        host_rss_bytes: int,
        memory_limit_bytes: int,
        disk_used_bytes: int,
        disk_limit_bytes: int,
        processes: int,
        rx_bytes: int,
        tx_bytes: int,
    ) -> None:
        self.pid = pid
        self.uptime_seconds = uptime_seconds
        self.host_cpu_percent = host_cpu_percent
        self.cpu_seconds = cpu_seconds
        self.host_rss_bytes = host_rss_bytes
        self.memory_limit_bytes = memory_limit_bytes
        self.disk_used_bytes = disk_used_bytes
        self.disk_limit_bytes = disk_limit_bytes
        self.processes = processes
        self.rx_bytes = rx_bytes
        self.tx_bytes = tx_bytes

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Metrics":
        return cls(
            pid=d["pid"],
            uptime_seconds=d["uptime_seconds"],
            host_cpu_percent=d["host_cpu_percent"],
            cpu_seconds=d["cpu_seconds"],
            host_rss_bytes=d["host_rss_bytes"],
            memory_limit_bytes=d["memory_limit_bytes"],
            disk_used_bytes=d["disk_used_bytes"],
            disk_limit_bytes=d["disk_limit_bytes"],
            processes=d["processes"],
            rx_bytes=d["rx_bytes"],
            tx_bytes=d["tx_bytes"],
        )


@dataclass(init=False, repr=False, eq=False)
class MetricsSample(Record):
    """One step of a series.

    time: End of the step.
    cpu_percent: During the step, 100 is one CPU.
    memory_bytes: Largest of the step.
    rx_bytes: Received during the step.
    tx_bytes: Sent during the step.
    """

    time: datetime
    cpu_percent: float
    memory_bytes: int
    memory_limit_bytes: int
    disk_used_bytes: int
    rx_bytes: int
    tx_bytes: int

    def __init__(
        self,
        time: datetime,
        cpu_percent: float,
        memory_bytes: int,
        memory_limit_bytes: int,
        disk_used_bytes: int,
        rx_bytes: int,
        tx_bytes: int,
    ) -> None:
        self.time = time
        self.cpu_percent = cpu_percent
        self.memory_bytes = memory_bytes
        self.memory_limit_bytes = memory_limit_bytes
        self.disk_used_bytes = disk_used_bytes
        self.rx_bytes = rx_bytes
        self.tx_bytes = tx_bytes

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "MetricsSample":
        return cls(
            time=parse_time(d["time"]),
            cpu_percent=d["cpu_percent"],
            memory_bytes=d["memory_bytes"],
            memory_limit_bytes=d["memory_limit_bytes"],
            disk_used_bytes=d["disk_used_bytes"],
            rx_bytes=d["rx_bytes"],
            tx_bytes=d["tx_bytes"],
        )


@dataclass(init=False, repr=False, eq=False)
class MetricsSeries(Record):
    """What a sandbox used over a while, as its server measured it.

    samples: Oldest first; none while it was asleep.
    """

    sandbox_id: str
    step_seconds: float
    samples: List[MetricsSample]

    def __init__(
        self,
        sandbox_id: str,
        step_seconds: float,
        samples: List[MetricsSample],
    ) -> None:
        self.sandbox_id = sandbox_id
        self.step_seconds = step_seconds
        self.samples = samples

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "MetricsSeries":
        return cls(
            sandbox_id=d["sandbox_id"],
            step_seconds=d["step_seconds"],
            samples=[MetricsSample.from_dict(item) for item in d["samples"]],
        )


@dataclass(init=False, repr=False, eq=False)
class Network(Record):
    """What a sandbox may reach, and the networks that it has joined.

    allow: Addresses, ranges, names and *.names with optional ports that may be reached.
    deny: The same that may not be reached.
    egress_mbps: Cap of outgoing bandwidth, megabits per second; 0 is none.
    internet: Whether what no entry names may be reached; default true, or false when allow
        has entries.
    join: Networks, by name, whose members it reaches and is reached by; at most 8.
    name: Its name in those networks: members find it as <name>.internal. It is always
        <id>.internal.
    """

    allow: List[str] = field(default_factory=list)
    deny: List[str] = field(default_factory=list)
    egress_mbps: Optional[int] = None
    internet: Optional[bool] = None
    join: List[str] = field(default_factory=list)
    name: Optional[str] = None

    def __init__(
        self,
        allow: Optional[List[str]] = None,
        deny: Optional[List[str]] = None,
        egress_mbps: Optional[int] = None,
        internet: Optional[bool] = None,
        join: Optional[List[str]] = None,
        name: Optional[str] = None,
    ) -> None:
        self.allow = [] if allow is None else allow
        self.deny = [] if deny is None else deny
        self.egress_mbps = egress_mbps
        self.internet = internet
        self.join = [] if join is None else join
        self.name = name

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Network":
        return cls(
            allow=list((d.get("allow") or [])),
            deny=list((d.get("deny") or [])),
            egress_mbps=d.get("egress_mbps"),
            internet=d.get("internet"),
            join=list((d.get("join") or [])),
            name=d.get("name"),
        )


@dataclass(init=False, repr=False, eq=False)
class NetworkMember(Record):
    """A sandbox in a network.

    address: IPv4; absent while it sleeps.
    name: Its own choice; it is also <sandbox_id>.internal.
    """

    sandbox_id: str
    address: Optional[str] = None
    name: Optional[str] = None

    def __init__(
        self,
        sandbox_id: str,
        address: Optional[str] = None,
        name: Optional[str] = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.address = address
        self.name = name

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "NetworkMember":
        return cls(
            sandbox_id=d["sandbox_id"],
            address=d.get("address"),
            name=d.get("name"),
        )


@dataclass(init=False, repr=False, eq=False)
class NetworkGroup(Record):
    """A network that links sandboxes.

    members: Sandboxes that have joined it.
    """

    name: str
    created_at: datetime
    members: List[NetworkMember]

    def __init__(
        self,
        name: str,
        created_at: datetime,
        members: List[NetworkMember],
    ) -> None:
        self.name = name
        self.created_at = created_at
        self.members = members

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "NetworkGroup":
        return cls(
            name=d["name"],
            created_at=parse_time(d["created_at"]),
            members=[NetworkMember.from_dict(item) for item in d["members"]],
        )


@dataclass(init=False, repr=False, eq=False)
class NetworkGroupList(Record):
    """The caller's networks, by name."""

    networks: List[NetworkGroup]

    def __init__(
        self,
        networks: List[NetworkGroup],
    ) -> None:
        self.networks = networks

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "NetworkGroupList":
        return cls(
            networks=[NetworkGroup.from_dict(item) for item in d["networks"]],
        )


@dataclass(init=False, repr=False, eq=False)
class NewToken(Record):
    """An API key that was just made, with its secret.

    token: The key itself; it is stored hashed and cannot be shown again.
    """

    token: str
    prefix: str
    name: str
    admin: bool
    created_at: datetime
    last_used: Optional[datetime] = None

    def __init__(
        self,
        token: str,
        prefix: str,
        name: str,
        admin: bool,
        created_at: datetime,
        last_used: Optional[datetime] = None,
    ) -> None:
        self.token = token
        self.prefix = prefix
        self.name = name
        self.admin = admin
        self.created_at = created_at
        self.last_used = last_used

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "NewToken":
        return cls(
            token=d["token"],
            prefix=d["prefix"],
            name=d["name"],
            admin=d["admin"],
            created_at=parse_time(d["created_at"]),
            last_used=parse_time(d["last_used"]) if d.get("last_used") is not None else None,
        )


@dataclass(init=False, repr=False, eq=False)
class Port(Record):
    """A TCP port of a sandbox.

    listening: Something listens on it now.
    visibility: One of public, private, closed.
    url: Of its preview.
    process: Name of the process that listens.
    """

    port: int
    listening: bool
    visibility: str
    url: str
    process: Optional[str] = None

    def __init__(
        self,
        port: int,
        listening: bool,
        visibility: str,
        url: str,
        process: Optional[str] = None,
    ) -> None:
        self.port = port
        self.listening = listening
        self.visibility = visibility
        self.url = url
        self.process = process

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Port":
        return cls(
            port=d["port"],
            listening=d["listening"],
            visibility=d["visibility"],
            url=d["url"],
            process=d.get("process"),
        )


@dataclass(init=False, repr=False, eq=False)
class PortList(Record):
    """The ports of a sandbox, in order."""

    ports: List[Port]

    def __init__(
        self,
        ports: List[Port],
    ) -> None:
        self.ports = ports

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "PortList":
        return cls(
            ports=[Port.from_dict(item) for item in d["ports"]],
        )


@dataclass(init=False, repr=False, eq=False)
class Preview(Record):
    """The address of a port's preview.

    visibility: One of public, private, closed.
    """

    port: int
    url: str
    visibility: str

    def __init__(
        self,
        port: int,
        url: str,
        visibility: str,
    ) -> None:
        self.port = port
        self.url = url
        self.visibility = visibility

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Preview":
        return cls(
            port=d["port"],
            url=d["url"],
            visibility=d["visibility"],
        )


@dataclass(init=False, repr=False, eq=False)
class PreviewURL(Record):
    """A signed address of a preview.

    url: Opens the preview until it expires; a browser is given a cookie and may go on from
        there.
    token: The same as a value of the header X-PandaStack-Preview-Token.
    """

    url: str
    token: str
    expires_at: datetime

    def __init__(
        self,
        url: str,
        token: str,
        expires_at: datetime,
    ) -> None:
        self.url = url
        self.token = token
        self.expires_at = expires_at

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "PreviewURL":
        return cls(
            url=d["url"],
            token=d["token"],
            expires_at=parse_time(d["expires_at"]),
        )


@dataclass(init=False, repr=False, eq=False)
class ProcessInfo(Record):
    """A process of a sandbox.

    pid: In the sandbox.
    cwd: Where it was started.
    terminal: It runs in a terminal.
    args_cut: More arguments follow than are shown.
    exit_code: Once it has ended; 128+n after signal n.
    signal: That ended it.
    tag: Name given at its start.
    """

    pid: int
    cmd: str
    args: List[str]
    cwd: str
    user: str
    terminal: bool
    started_at: datetime
    args_cut: bool = False
    ended_at: Optional[datetime] = None
    exit_code: Optional[int] = None
    signal: Optional[str] = None
    tag: Optional[str] = None

    def __init__(
        self,
        pid: int,
        cmd: str,
        args: List[str],
        cwd: str,
        user: str,
        terminal: bool,
        started_at: datetime,
        args_cut: bool = False,
        ended_at: Optional[datetime] = None,
        exit_code: Optional[int] = None,
        signal: Optional[str] = None,
        tag: Optional[str] = None,
    ) -> None:
        self.pid = pid
        self.cmd = cmd
        self.args = args
        self.cwd = cwd
        self.user = user
        self.terminal = terminal
        self.started_at = started_at
        self.args_cut = args_cut
        self.ended_at = ended_at
        self.exit_code = exit_code
        self.signal = signal
        self.tag = tag

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ProcessInfo":
        return cls(
            pid=d["pid"],
            cmd=d["cmd"],
            args=list(d["args"]),
            cwd=d["cwd"],
            user=d["user"],
            terminal=d["terminal"],
            started_at=parse_time(d["started_at"]),
            args_cut=bool(d.get("args_cut")),
            ended_at=parse_time(d["ended_at"]) if d.get("ended_at") is not None else None,
            exit_code=d.get("exit_code"),
            signal=d.get("signal"),
            tag=d.get("tag"),
        )


@dataclass(init=False, repr=False, eq=False)
class ProcessList(Record):
    """The processes of a sandbox, in order of their start.

    processes: Running ones in order of start, after those that have ended.
    """

    processes: List[ProcessInfo]

    def __init__(
        self,
        processes: List[ProcessInfo],
    ) -> None:
        self.processes = processes

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ProcessList":
        return cls(
            processes=[ProcessInfo.from_dict(item) for item in d["processes"]],
        )


@dataclass(init=False, repr=False, eq=False)
class Promoted(Record):
    """What a promote did.

    deleted: Siblings that were deleted.
    """

    sandbox: SandboxRecord
    tree_id: str
    deleted: List[str]

    def __init__(
        self,
        sandbox: SandboxRecord,
        tree_id: str,
        deleted: List[str],
    ) -> None:
        self.sandbox = sandbox
        self.tree_id = tree_id
        self.deleted = deleted

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Promoted":
        return cls(
            sandbox=SandboxRecord.from_dict(d["sandbox"]),
            tree_id=d["tree_id"],
            deleted=list(d["deleted"]),
        )


@dataclass(init=False, repr=False, eq=False)
class ReplacedFile(Record):
    """One file with replacements."""

    path: str
    count: int

    def __init__(
        self,
        path: str,
        count: int,
    ) -> None:
        self.path = path
        self.count = count

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ReplacedFile":
        return cls(
            path=d["path"],
            count=d["count"],
        )


@dataclass(init=False, repr=False, eq=False)
class ReplaceResult(Record):
    """What was replaced, or with dry_run would be.

    path: Where was looked, in full.
    count: Replacements altogether.
    skipped: Files above 8 MiB, which were left alone.
    truncated: There are more files than one call replaces.
    timed_out: The time was over before all files were looked at.
    """

    path: str
    files: List[ReplacedFile]
    count: int
    skipped: int
    truncated: bool
    timed_out: bool
    dry_run: bool

    def __init__(
        self,
        path: str,
        files: List[ReplacedFile],
        count: int,
        skipped: int,
        truncated: bool,
        timed_out: bool,
        dry_run: bool,
    ) -> None:
        self.path = path
        self.files = files
        self.count = count
        self.skipped = skipped
        self.truncated = truncated
        self.timed_out = timed_out
        self.dry_run = dry_run

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ReplaceResult":
        return cls(
            path=d["path"],
            files=[ReplacedFile.from_dict(item) for item in d["files"]],
            count=d["count"],
            skipped=d["skipped"],
            truncated=d["truncated"],
            timed_out=d["timed_out"],
            dry_run=d["dry_run"],
        )


@dataclass(init=False, repr=False, eq=False)
class SSHInfo(Record):
    """How to reach a sandbox by SSH.

    host: Of the server, as far as it knows.
    user: The sandbox's id.
    host_key: The server's public key in the form of known_hosts, without the host.
    fingerprint: Of the host key.
    """

    host: str
    port: int
    user: str
    host_key: str
    fingerprint: str
    command: str

    def __init__(
        self,
        host: str,
        port: int,
        user: str,
        host_key: str,
        fingerprint: str,
        command: str,
    ) -> None:
        self.host = host
        self.port = port
        self.user = user
        self.host_key = host_key
        self.fingerprint = fingerprint
        self.command = command

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SSHInfo":
        return cls(
            host=d["host"],
            port=d["port"],
            user=d["user"],
            host_key=d["host_key"],
            fingerprint=d["fingerprint"],
            command=d["command"],
        )


@dataclass(init=False, repr=False, eq=False)
class SSHKey(Record):
    """A public key that may open shells in the sandboxes of its owner.

    public_key: In the form of authorized_keys, without its comment.
    """

    fingerprint: str
    name: str
    public_key: str
    created_at: datetime

    def __init__(
        self,
        fingerprint: str,
        name: str,
        public_key: str,
        created_at: datetime,
    ) -> None:
        self.fingerprint = fingerprint
        self.name = name
        self.public_key = public_key
        self.created_at = created_at

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SSHKey":
        return cls(
            fingerprint=d["fingerprint"],
            name=d["name"],
            public_key=d["public_key"],
            created_at=parse_time(d["created_at"]),
        )


@dataclass(init=False, repr=False, eq=False)
class SSHKeyList(Record):
    """The caller's SSH keys, oldest first."""

    keys: List[SSHKey]

    def __init__(
        self,
        keys: List[SSHKey],
    ) -> None:
        self.keys = keys

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SSHKeyList":
        return cls(
            keys=[SSHKey.from_dict(item) for item in d["keys"]],
        )


@dataclass(init=False, repr=False, eq=False)
class SandboxList(Record):
    """One page of sandboxes, newest first.

    next_page: Pass as page= for the next page; absent on the last.
    """

    sandboxes: List[SandboxRecord]
    next_page: Optional[str] = None

    def __init__(
        self,
        sandboxes: List[SandboxRecord],
        next_page: Optional[str] = None,
    ) -> None:
        self.sandboxes = sandboxes
        self.next_page = next_page

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SandboxList":
        return cls(
            sandboxes=[SandboxRecord.from_dict(item) for item in d["sandboxes"]],
            next_page=d.get("next_page"),
        )


@dataclass(init=False, repr=False, eq=False)
class SearchMatch(Record):
    """One line that matches, or with names one file.

    path: In full.
    column: Of the first match in the line, in bytes from 1.
    line: From 1; none for a name.
    text: The line, of a long one a part.
    """

    path: str
    after: List[str] = field(default_factory=list)
    before: List[str] = field(default_factory=list)
    column: Optional[int] = None
    line: Optional[int] = None
    text: Optional[str] = None

    def __init__(
        self,
        path: str,
        after: Optional[List[str]] = None,
        before: Optional[List[str]] = None,
        column: Optional[int] = None,
        line: Optional[int] = None,
        text: Optional[str] = None,
    ) -> None:
        self.path = path
        self.after = [] if after is None else after
        self.before = [] if before is None else before
        self.column = column
        self.line = line
        self.text = text

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SearchMatch":
        return cls(
            path=d["path"],
            after=list((d.get("after") or [])),
            before=list((d.get("before") or [])),
            column=d.get("column"),
            line=d.get("line"),
            text=d.get("text"),
        )


@dataclass(init=False, repr=False, eq=False)
class SearchResult(Record):
    """What a search found, by path and line.

    path: Where was looked, in full.
    truncated: There are more than max_results.
    timed_out: The time was over before all files were looked at.
    """

    path: str
    matches: List[SearchMatch]
    truncated: bool
    timed_out: bool

    def __init__(
        self,
        path: str,
        matches: List[SearchMatch],
        truncated: bool,
        timed_out: bool,
    ) -> None:
        self.path = path
        self.matches = matches
        self.truncated = truncated
        self.timed_out = timed_out

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SearchResult":
        return cls(
            path=d["path"],
            matches=[SearchMatch.from_dict(item) for item in d["matches"]],
            truncated=d["truncated"],
            timed_out=d["timed_out"],
        )


@dataclass(init=False, repr=False, eq=False)
class SignedFile(Record):
    """A URL for one file that works without a key until it expires.

    method: One of GET, PUT.
    """

    url: str
    method: str
    expires_at: datetime

    def __init__(
        self,
        url: str,
        method: str,
        expires_at: datetime,
    ) -> None:
        self.url = url
        self.method = method
        self.expires_at = expires_at

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SignedFile":
        return cls(
            url=d["url"],
            method=d["method"],
            expires_at=parse_time(d["expires_at"]),
        )


@dataclass(init=False, repr=False, eq=False)
class Snapshot(Record):
    """A snapshot or checkpoint.

    kind: One of snapshot, checkpoint.
    sandbox_id: Sandbox it was taken of, which may be gone.
    memory: Holds memory and processes; else files only, which start cold and survive
        upgrades.
    host: Host that has it.
    size_bytes: What it holds.
    stored_bytes: What it added to the store; the rest is shared with other snapshots. Grows
        from 0 when it is packed, shortly after it was taken.
    pause_ms: How long the sandbox stood still for it.
    name: Unique among the owner's snapshots; of a checkpoint, within its sandbox.
    parent_id: Snapshot or checkpoint that its sandbox last came from.
    """

    id: str
    kind: str
    sandbox_id: str
    memory: bool
    template: str
    driver: str
    host: str
    cpu: float
    memory_mb: int
    disk_mb: int
    size_bytes: int
    stored_bytes: int
    pause_ms: float
    created_at: datetime
    metadata: Dict[str, str] = field(default_factory=dict)
    name: Optional[str] = None
    parent_id: Optional[str] = None

    def __init__(
        self,
        id: str,
        kind: str,
        sandbox_id: str,
        memory: bool,
        template: str,
        driver: str,
        host: str,
        cpu: float,
        memory_mb: int,
        disk_mb: int,
        size_bytes: int,
        stored_bytes: int,
        pause_ms: float,
        created_at: datetime,
        metadata: Optional[Dict[str, str]] = None,
        name: Optional[str] = None,
        parent_id: Optional[str] = None,
    ) -> None:
        self.id = id
        self.kind = kind
        self.sandbox_id = sandbox_id
        self.memory = memory
        self.template = template
        self.driver = driver
        self.host = host
        self.cpu = cpu
        self.memory_mb = memory_mb
        self.disk_mb = disk_mb
        self.size_bytes = size_bytes
        self.stored_bytes = stored_bytes
        self.pause_ms = pause_ms
        self.created_at = created_at
        self.metadata = {} if metadata is None else metadata
        self.name = name
        self.parent_id = parent_id

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Snapshot":
        return cls(
            id=d["id"],
            kind=d["kind"],
            sandbox_id=d["sandbox_id"],
            memory=d["memory"],
            template=d["template"],
            driver=d["driver"],
            host=d["host"],
            cpu=d["cpu"],
            memory_mb=d["memory_mb"],
            disk_mb=d["disk_mb"],
            size_bytes=d["size_bytes"],
            stored_bytes=d["stored_bytes"],
            pause_ms=d["pause_ms"],
            created_at=parse_time(d["created_at"]),
            metadata=dict(d.get("metadata") or {}),
            name=d.get("name"),
            parent_id=d.get("parent_id"),
        )


@dataclass(init=False, repr=False, eq=False)
class SnapshotList(Record):
    """One page of snapshots, newest first.

    next_page: Pass as page= for the next page; absent on the last.
    """

    snapshots: List[Snapshot]
    next_page: Optional[str] = None

    def __init__(
        self,
        snapshots: List[Snapshot],
        next_page: Optional[str] = None,
    ) -> None:
        self.snapshots = snapshots
        self.next_page = next_page

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SnapshotList":
        return cls(
            snapshots=[Snapshot.from_dict(item) for item in d["snapshots"]],
            next_page=d.get("next_page"),
        )


@dataclass(init=False, repr=False, eq=False)
class Template(Record):
    """An image that sandboxes start from.

    status: on_demand is built by the first create that names it. One of building, ready,
        failed, on_demand.
    aliases: More names that a create may use.
    percent: How far a build is, 0 to 100.
    progress: What a build is doing.
    snapshots: Drivers whose memory snapshot is baked on this host.
    """

    name: str
    status: str
    aliases: List[str] = field(default_factory=list)
    cpu: Optional[float] = None
    created_at: Optional[datetime] = None
    digest: Optional[str] = None
    disk_mb: Optional[int] = None
    error: Optional[ErrorBody] = None
    memory_mb: Optional[int] = None
    percent: Optional[float] = None
    progress: Optional[str] = None
    size_bytes: Optional[int] = None
    snapshots: List[str] = field(default_factory=list)

    def __init__(
        self,
        name: str,
        status: str,
        aliases: Optional[List[str]] = None,
        cpu: Optional[float] = None,
        created_at: Optional[datetime] = None,
        digest: Optional[str] = None,
        disk_mb: Optional[int] = None,
        error: Optional[ErrorBody] = None,
        memory_mb: Optional[int] = None,
        percent: Optional[float] = None,
        progress: Optional[str] = None,
        size_bytes: Optional[int] = None,
        snapshots: Optional[List[str]] = None,
    ) -> None:
        self.name = name
        self.status = status
        self.aliases = [] if aliases is None else aliases
        self.cpu = cpu
        self.created_at = created_at
        self.digest = digest
        self.disk_mb = disk_mb
        self.error = error
        self.memory_mb = memory_mb
        self.percent = percent
        self.progress = progress
        self.size_bytes = size_bytes
        self.snapshots = [] if snapshots is None else snapshots

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Template":
        return cls(
            name=d["name"],
            status=d["status"],
            aliases=list((d.get("aliases") or [])),
            cpu=d.get("cpu"),
            created_at=parse_time(d["created_at"]) if d.get("created_at") is not None else None,
            digest=d.get("digest"),
            disk_mb=d.get("disk_mb"),
            error=ErrorBody.from_dict(d["error"]) if d.get("error") is not None else None,
            memory_mb=d.get("memory_mb"),
            percent=d.get("percent"),
            progress=d.get("progress"),
            size_bytes=d.get("size_bytes"),
            snapshots=list((d.get("snapshots") or [])),
        )


@dataclass(init=False, repr=False, eq=False)
class TemplateList(Record):
    """Every template of a server."""

    templates: List[Template]

    def __init__(
        self,
        templates: List[Template],
    ) -> None:
        self.templates = templates

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "TemplateList":
        return cls(
            templates=[Template.from_dict(item) for item in d["templates"]],
        )


@dataclass(init=False, repr=False, eq=False)
class Timeline(Record):
    """The checkpoints of a sandbox, oldest first.

    current: The checkpoint that the sandbox now goes on from.
    """

    checkpoints: List[Snapshot]
    policy: CheckpointPolicy
    current: Optional[str] = None

    def __init__(
        self,
        checkpoints: List[Snapshot],
        policy: CheckpointPolicy,
        current: Optional[str] = None,
    ) -> None:
        self.checkpoints = checkpoints
        self.policy = policy
        self.current = current

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Timeline":
        return cls(
            checkpoints=[Snapshot.from_dict(item) for item in d["checkpoints"]],
            policy=CheckpointPolicy.from_dict(d["policy"]),
            current=d.get("current"),
        )


@dataclass(init=False, repr=False, eq=False)
class Token(Record):
    """An API key without its secret."""

    prefix: str
    name: str
    admin: bool
    created_at: datetime
    last_used: Optional[datetime] = None

    def __init__(
        self,
        prefix: str,
        name: str,
        admin: bool,
        created_at: datetime,
        last_used: Optional[datetime] = None,
    ) -> None:
        self.prefix = prefix
        self.name = name
        self.admin = admin
        self.created_at = created_at
        self.last_used = last_used

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Token":
        return cls(
            prefix=d["prefix"],
            name=d["name"],
            admin=d["admin"],
            created_at=parse_time(d["created_at"]),
            last_used=parse_time(d["last_used"]) if d.get("last_used") is not None else None,
        )


@dataclass(init=False, repr=False, eq=False)
class TokenList(Record):
    """The caller's API keys."""

    tokens: List[Token]

    def __init__(
        self,
        tokens: List[Token],
    ) -> None:
        self.tokens = tokens

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "TokenList":
        return cls(
            tokens=[Token.from_dict(item) for item in d["tokens"]],
        )


@dataclass(init=False, repr=False, eq=False)
class TreeNode(Record):
    """One sandbox of a lineage, which may be gone.

    status: deleted when it is gone.
    snapshot_id: Snapshot that it was created from.
    tree_id: Fork that it came from.
    """

    id: str
    template: str
    status: str
    created_at: datetime
    ended_at: Optional[datetime] = None
    parent_id: Optional[str] = None
    promoted: bool = False
    snapshot_id: Optional[str] = None
    tree_id: Optional[str] = None

    def __init__(
        self,
        id: str,
        template: str,
        status: str,
        created_at: datetime,
        ended_at: Optional[datetime] = None,
        parent_id: Optional[str] = None,
        promoted: bool = False,
        snapshot_id: Optional[str] = None,
        tree_id: Optional[str] = None,
    ) -> None:
        self.id = id
        self.template = template
        self.status = status
        self.created_at = created_at
        self.ended_at = ended_at
        self.parent_id = parent_id
        self.promoted = promoted
        self.snapshot_id = snapshot_id
        self.tree_id = tree_id

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "TreeNode":
        return cls(
            id=d["id"],
            template=d["template"],
            status=d["status"],
            created_at=parse_time(d["created_at"]),
            ended_at=parse_time(d["ended_at"]) if d.get("ended_at") is not None else None,
            parent_id=d.get("parent_id"),
            promoted=bool(d.get("promoted")),
            snapshot_id=d.get("snapshot_id"),
            tree_id=d.get("tree_id"),
        )


@dataclass(init=False, repr=False, eq=False)
class Tree(Record):
    """The lineage of a sandbox, parents before children."""

    root_id: str
    nodes: List[TreeNode]

    def __init__(
        self,
        root_id: str,
        nodes: List[TreeNode],
    ) -> None:
        self.root_id = root_id
        self.nodes = nodes

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Tree":
        return cls(
            root_id=d["root_id"],
            nodes=[TreeNode.from_dict(item) for item in d["nodes"]],
        )


@dataclass(init=False, repr=False, eq=False)
class Version(Record):
    """What a server runs.

    runtime: Build of the gVisor runtime; snapshots restore only into the same one.
    """

    version: str
    go: str
    runtime: str
    commit: Optional[str] = None

    def __init__(
        self,
        version: str,
        go: str,
        runtime: str,
        commit: Optional[str] = None,
    ) -> None:
        self.version = version
        self.go = go
        self.runtime = runtime
        self.commit = commit

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Version":
        return cls(
            version=d["version"],
            go=d["go"],
            runtime=d["runtime"],
            commit=d.get("commit"),
        )


@dataclass(init=False, repr=False, eq=False)
class VolumeMount(Record):
    """A volume attached to a sandbox."""

    name: str
    read_only: Optional[bool] = None

    def __init__(
        self,
        name: str,
        read_only: Optional[bool] = None,
    ) -> None:
        self.name = name
        self.read_only = read_only

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "VolumeMount":
        return cls(
            name=d["name"],
            read_only=d.get("read_only"),
        )
