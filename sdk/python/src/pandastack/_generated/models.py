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

from .._times import parse_time


@dataclass
class CheckpointPolicy:
    """Which checkpoints of a sandbox are kept. 0 is no limit."""

    keep_last: Optional[int] = None
    max_age_seconds: Optional[int] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "CheckpointPolicy":
        return cls(
            keep_last=d.get("keep_last"),
            max_age_seconds=d.get("max_age_seconds"),
        )


@dataclass
class FileInfo:
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


@dataclass
class DirList:
    """The entries of a directory."""

    path: str
    entries: List[FileInfo]

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "DirList":
        return cls(
            path=d["path"],
            entries=[FileInfo.from_dict(item) for item in d["entries"]],
        )


@dataclass
class Event:
    """Something that happened to a sandbox.

    id: Grows with time; pass as since= to go on from here.
    """

    id: int
    sandbox_id: str
    type: str
    time: datetime
    data: Dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Event":
        return cls(
            id=d["id"],
            sandbox_id=d["sandbox_id"],
            type=d["type"],
            time=parse_time(d["time"]),
            data=dict(d.get("data") or {}),
        )


@dataclass
class ExecResult:
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


@dataclass
class Step:
    """One named part of a start and how long it took.

    ms: Milliseconds.
    """

    name: str
    ms: float

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Step":
        return cls(
            name=d["name"],
            ms=d["ms"],
        )


@dataclass
class ErrorBody:
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

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ErrorBody":
        return cls(
            code=d["code"],
            message=d["message"],
            details=dict(d.get("details") or {}),
            hint=d.get("hint"),
            request_id=d.get("request_id"),
        )


@dataclass
class IdlePolicy:
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


@dataclass
class SandboxRecord:
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


@dataclass
class ForkTreeRecord:
    """Children that were forked at once, as the server writes them.

    tree_id: Names these siblings; pass it to promote.
    """

    tree_id: str
    parent_id: str
    children: List[SandboxRecord]

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "ForkTreeRecord":
        return cls(
            tree_id=d["tree_id"],
            parent_id=d["parent_id"],
            children=[SandboxRecord.from_dict(item) for item in d["children"]],
        )


@dataclass
class Health:
    """Whether the server is up.

    status: One of ok, starting, failed.
    detail: What it waits for.
    """

    status: str
    detail: Optional[str] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Health":
        return cls(
            status=d["status"],
            detail=d.get("detail"),
        )


@dataclass
class Lifecycle:
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


@dataclass
class LogLine:
    """One line that a process in a sandbox wrote.

    stream: One of stdout, stderr, system.
    """

    time: datetime
    stream: str
    line: str
    pid: Optional[int] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "LogLine":
        return cls(
            time=parse_time(d["time"]),
            stream=d["stream"],
            line=d["line"],
            pid=d.get("pid"),
        )


@dataclass
class Me:
    """The caller.

    name: Name of the key.
    prefix: First characters of the key.
    """

    org: str
    name: str
    prefix: str
    admin: bool

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Me":
        return cls(
            org=d["org"],
            name=d["name"],
            prefix=d["prefix"],
            admin=d["admin"],
        )


@dataclass
class Metrics:
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


@dataclass
class NewToken:
    """An API key that was just made, with its secret.

    token: The key itself; it is stored hashed and cannot be shown again.
    """

    token: str
    prefix: str
    name: str
    admin: bool
    created_at: datetime
    last_used: Optional[datetime] = None

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


@dataclass
class Promoted:
    """What a promote did.

    deleted: Siblings that were deleted.
    """

    sandbox: SandboxRecord
    tree_id: str
    deleted: List[str]

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Promoted":
        return cls(
            sandbox=SandboxRecord.from_dict(d["sandbox"]),
            tree_id=d["tree_id"],
            deleted=list(d["deleted"]),
        )


@dataclass
class SandboxList:
    """One page of sandboxes, newest first.

    next_page: Pass as page= for the next page; absent on the last.
    """

    sandboxes: List[SandboxRecord]
    next_page: Optional[str] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SandboxList":
        return cls(
            sandboxes=[SandboxRecord.from_dict(item) for item in d["sandboxes"]],
            next_page=d.get("next_page"),
        )


@dataclass
class Snapshot:
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


@dataclass
class SnapshotList:
    """One page of snapshots, newest first.

    next_page: Pass as page= for the next page; absent on the last.
    """

    snapshots: List[Snapshot]
    next_page: Optional[str] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SnapshotList":
        return cls(
            snapshots=[Snapshot.from_dict(item) for item in d["snapshots"]],
            next_page=d.get("next_page"),
        )


@dataclass
class Template:
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


@dataclass
class TemplateList:
    """Every template of a server."""

    templates: List[Template]

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "TemplateList":
        return cls(
            templates=[Template.from_dict(item) for item in d["templates"]],
        )


@dataclass
class Timeline:
    """The checkpoints of a sandbox, oldest first.

    current: The checkpoint that the sandbox now goes on from.
    """

    checkpoints: List[Snapshot]
    policy: CheckpointPolicy
    current: Optional[str] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Timeline":
        return cls(
            checkpoints=[Snapshot.from_dict(item) for item in d["checkpoints"]],
            policy=CheckpointPolicy.from_dict(d["policy"]),
            current=d.get("current"),
        )


@dataclass
class Token:
    """An API key without its secret."""

    prefix: str
    name: str
    admin: bool
    created_at: datetime
    last_used: Optional[datetime] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Token":
        return cls(
            prefix=d["prefix"],
            name=d["name"],
            admin=d["admin"],
            created_at=parse_time(d["created_at"]),
            last_used=parse_time(d["last_used"]) if d.get("last_used") is not None else None,
        )


@dataclass
class TokenList:
    """The caller's API keys."""

    tokens: List[Token]

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "TokenList":
        return cls(
            tokens=[Token.from_dict(item) for item in d["tokens"]],
        )


@dataclass
class TreeNode:
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


@dataclass
class Tree:
    """The lineage of a sandbox, parents before children."""

    root_id: str
    nodes: List[TreeNode]

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Tree":
        return cls(
            root_id=d["root_id"],
            nodes=[TreeNode.from_dict(item) for item in d["nodes"]],
        )


@dataclass
class Version:
    """What a server runs.

    runtime: Build of the gVisor runtime; snapshots restore only into the same one.
    """

    version: str
    go: str
    runtime: str
    commit: Optional[str] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Version":
        return cls(
            version=d["version"],
            go=d["go"],
            runtime=d["runtime"],
            commit=d.get("commit"),
        )


@dataclass
class VolumeMount:
    """A volume attached to a sandbox."""

    name: str
    read_only: Optional[bool] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "VolumeMount":
        return cls(
            name=d["name"],
            read_only=d.get("read_only"),
        )


class SandboxFields:
    """The fields of a sandbox's record, as they were last read."""

    record: SandboxRecord

    @property
    def boot_mode(self) -> Optional[str]:
        """One of cold, restore, fork, wake."""
        return self.record.boot_mode

    @property
    def boot_ms(self) -> Optional[float]:
        """Milliseconds from the host taking the request to the guest answering."""
        return self.record.boot_ms

    @property
    def boot_steps(self) -> List[Step]:
        """Milliseconds by step."""
        return self.record.boot_steps

    @property
    def cpu(self) -> float:
        """CPUs it may use at most."""
        return self.record.cpu

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        return self.record.created_at

    @property
    def disk_mb(self) -> int:
        """Writable disk, MiB."""
        return self.record.disk_mb

    @property
    def driver(self) -> str:
        """What isolates it, such as gvisor."""
        return self.record.driver

    @property
    def error(self) -> Optional[ErrorBody]:
        """Why it failed."""
        return self.record.error

    @property
    def expires_at(self) -> Optional[datetime]:
        """When its time to live runs out."""
        return self.record.expires_at

    @property
    def guest_ip(self) -> Optional[str]:
        """Its address on the host's sandbox network."""
        return self.record.guest_ip

    @property
    def host(self) -> str:
        """Host that runs it."""
        return self.record.host

    @property
    def id(self) -> str:
        """Names the sandbox."""
        return self.record.id

    @property
    def idle(self) -> Optional[IdlePolicy]:
        """When it goes to sleep by itself."""
        return self.record.idle

    @property
    def memory_mb(self) -> int:
        """Memory limit, MiB."""
        return self.record.memory_mb

    @property
    def metadata(self) -> Dict[str, str]:
        """The owner's own labels."""
        return self.record.metadata

    @property
    def parent_id(self) -> Optional[str]:
        """Sandbox that it was forked from."""
        return self.record.parent_id

    @property
    def persistent(self) -> bool:
        """Has no time to live."""
        return self.record.persistent

    @property
    def snapshot_id(self) -> Optional[str]:
        """Snapshot that it was created from, or the checkpoint that it was last taken at or rolled back to."""
        return self.record.snapshot_id

    @property
    def status(self) -> str:
        """One of creating, running, paused, hibernated, deleting, failed."""
        return self.record.status

    @property
    def template(self) -> str:
        """What it started from."""
        return self.record.template

    @property
    def tree_id(self) -> Optional[str]:
        """Fork that it came from, shared with its siblings."""
        return self.record.tree_id

    @property
    def ttl_seconds(self) -> int:
        """Lifetime from its last setting; 0 when persistent."""
        return self.record.ttl_seconds
