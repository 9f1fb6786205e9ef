# Made by tools/unasync.py from _async/resources.py. Do not edit.

"""What a server has: sandboxes, snapshots, templates and keys."""

from __future__ import annotations

import json
import os
from typing import IO, TYPE_CHECKING, Any, Iterator, List, Mapping, Sequence

from .. import _check, _core
from .._core import Request
from .._lazy import models
from . import _io
from .filesystem import BYTES, opened, save
from .sandbox import ForkTree, Sandbox

if TYPE_CHECKING:
    from .._generated.models import (
        CheckpointPolicy,
        IdlePolicy,
        Network,
        NewToken,
        Promoted,
        SandboxRecord,
        Snapshot,
        SSHKey,
        Template,
        Token,
        VolumeMount,
    )
    from .filesystem import LocalPath
    from .transport import Transport

STATES = ("creating", "running", "paused", "hibernated", "deleting", "failed")
PAGE = 1000  # records to ask for at a time at most


class Sandboxes:
    """Makes and finds sandboxes."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        template: str | None = None,
        *,
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
    ) -> Sandbox:
        """Starts a sandbox and returns when commands can run in it.

        template: what it starts from; the server's default is base.
        from_snapshot: a Snapshot, or its id or name, to start from instead.
        ttl_seconds: deleted after this long; default 3600.
        persistent: no time to live.
        metadata: labels. env: environment of every process.
        driver: isolation driver, such as gvisor; default the server's choice.
        cpu, memory_mb, disk_mb: CPUs, MiB and MiB; default the template's.
        idle_timeout_seconds: hibernate after this long without use; idle says
        in detail when. checkpoints: which to keep.
        volumes: names, or VolumeMount(name, read_only). egress_mbps: cap on
        outgoing traffic.
        network: Network(internet=False), Network(allow=["packages.example.com"])
        and so on, what it may reach (see SandboxNetwork). networks: names of
        networks to join.

        Raises NotFoundError (template.not_found, snapshot.not_found),
        ConflictError (snapshot.incompatible), QuotaError, CapacityError,
        BadRequestError.
        """
        body = _check.create(
            template,
            ttl_seconds,
            metadata,
            env,
            persistent,
            driver,
            cpu,
            memory_mb,
            disk_mb,
            from_snapshot,
            idle_timeout_seconds,
            idle,
            checkpoints,
            volumes,
            egress_mbps,
            network,
            networks,
        )
        request = Request("POST", ("v1", "sandboxes"), json=body, timeout=_core.SLOWER, key=_core.new_key())
        return Sandbox(self._transport, self._transport.call(request, models.SandboxRecord.from_dict))

    def get(self, sandbox_id: str) -> Sandbox:
        """Finds a sandbox by its id (NotFoundError)."""
        request = Request("GET", ("v1", "sandboxes", _check.identifier("sandbox_id", sandbox_id)))
        return Sandbox(self._transport, self._transport.call(request, models.SandboxRecord.from_dict))

    def list(
        self,
        *,
        metadata: Mapping[str, str] | None = None,
        status: str | Sequence[str] | None = None,
        template: str | None = None,
        limit: int | None = None,
    ) -> List[Sandbox]:
        """Gives the caller's sandboxes, newest first.

        metadata: labels that all must match. status: one or several of
        creating, running, paused, hibernated, deleting, failed. limit: at most
        so many.
        """
        query: dict[str, Any] = {}
        if metadata is not None:
            query["metadata"] = json.dumps(_check.labels("metadata", metadata))
        if status is not None:
            states = [status] if isinstance(status, str) else list(status)
            query["status"] = ",".join(_check.choice("status", s, STATES) for s in states)
        if template is not None:
            query["template"] = _check.text("template", template, empty=False)
        left = None if limit is None else _check.whole("limit", limit, low=1)
        out: List[Sandbox] = []
        for record in self._records(query, left):
            out.append(Sandbox(self._transport, record))
        return out

    def _records(self, query: dict[str, Any], left: int | None) -> Iterator[SandboxRecord]:
        while True:
            query["limit"] = PAGE if left is None else min(PAGE, left)
            page = self._transport.call(Request("GET", ("v1", "sandboxes"), query), models.SandboxList.from_dict)
            for record in page.sandboxes:
                yield record
            if left is not None:
                left -= len(page.sandboxes)
            if not page.next_page or page.next_page == query.get("page") or (left is not None and left <= 0):
                return
            query["page"] = page.next_page

    def delete(self, sandbox_id: str) -> None:
        """Ends a sandbox and all in it (NotFoundError)."""
        request = Request("DELETE", ("v1", "sandboxes", _check.identifier("sandbox_id", sandbox_id)), timeout=_core.SLOWER)
        self._transport.do(request)

    def fork(
        self,
        sandbox_id: str,
        *,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        persistent: bool | None = None,
        checkpoint: str | Snapshot | None = None,
    ) -> Sandbox:
        """Makes a child of a sandbox. See Sandbox.fork."""
        return self._handle(sandbox_id).fork(
            metadata=metadata, env=env, ttl_seconds=ttl_seconds, persistent=persistent, checkpoint=checkpoint
        )

    def fork_tree(
        self,
        sandbox_id: str,
        count: int,
        *,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        persistent: bool | None = None,
        checkpoint: str | Snapshot | None = None,
    ) -> ForkTree:
        """Makes count children of a sandbox at one moment. See Sandbox.fork_tree."""
        return self._handle(sandbox_id).fork_tree(
            count, metadata=metadata, env=env, ttl_seconds=ttl_seconds, persistent=persistent, checkpoint=checkpoint
        )

    def promote(
        self, sandbox_id: str, tree_id: str | None = None, *, cleanup_siblings: bool = False
    ) -> Promoted:
        """Marks a sandbox as the child of its tree to go on with. See Sandbox.promote."""
        return self._handle(sandbox_id).promote(tree_id, cleanup_siblings=cleanup_siblings)

    def _handle(self, sandbox_id: str) -> Sandbox:
        """A handle that was not read from the server, for one call."""
        record = models.SandboxRecord.__new__(models.SandboxRecord)
        record.id = _check.identifier("sandbox_id", sandbox_id)
        return Sandbox(self._transport, record)


class Snapshots:
    """Finds, removes and moves snapshots. Sandbox.snapshot makes one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, *, sandbox_id: str | None = None, kind: str | None = None, limit: int | None = None
    ) -> List[Snapshot]:
        """Gives the caller's snapshots, newest first.

        sandbox_id: taken of this sandbox, which may be gone. kind: snapshot or
        checkpoint; default both. limit: at most so many.
        """
        query: dict[str, Any] = {}
        if sandbox_id is not None:
            query["sandbox_id"] = _check.identifier("sandbox_id", sandbox_id)
        if kind is not None:
            query["kind"] = _check.choice("kind", kind, ("snapshot", "checkpoint"))
        left = None if limit is None else _check.whole("limit", limit, low=1)
        return snapshot_pages(self._transport, ("v1", "snapshots"), query, left)

    def get(self, snapshot: str) -> Snapshot:
        """Finds a snapshot by its id or name (NotFoundError)."""
        return self._transport.call(Request("GET", self._path(snapshot)), models.Snapshot.from_dict)

    def delete(self, snapshot: str | Snapshot) -> None:
        """Removes a snapshot. Sandboxes that were made from it go on (NotFoundError, ConflictError)."""
        self._transport.do(Request("DELETE", self._path(snapshot)))

    def export(self, snapshot: str | Snapshot, target: LocalPath | IO[bytes]) -> int:
        """Writes a snapshot as one file, to a path or a file object, and gives its length.

        import_ takes that file on any server.
        """
        if not isinstance(target, (str, os.PathLike)) and not hasattr(target, "write"):
            raise TypeError(f"target is a path or a file, not {type(target).__name__}")
        request = Request(
            "GET", (*self._path(snapshot), "export"), accept="application/octet-stream", timeout=_core.SLOWER
        )
        return save(self._transport, opened(self._transport, request, BYTES), target)

    def import_(self, source: LocalPath | IO[bytes], *, name: str | None = None) -> Snapshot:
        """Makes a snapshot of a file that export wrote, a path or a file object."""
        query = None if name is None else {"name": _check.text("name", name, empty=False)}
        if isinstance(source, (str, os.PathLike)):
            file = _io.in_thread(open, source, "rb")
            try:
                return self._import(file, query)
            finally:
                file.close()
        if not hasattr(source, "read"):
            raise TypeError(f"source is a path or a file, not {type(source).__name__}")
        return self._import(source, query)

    def _import(self, file: Any, query: dict[str, str] | None) -> Snapshot:
        request = Request("POST", ("v1", "snapshots", "import"), query, content=file, timeout=_core.SLOWER)
        return self._transport.call(request, models.Snapshot.from_dict)

    def _path(self, snapshot: object) -> tuple[str, ...]:
        return ("v1", "snapshots", _check.identifier("snapshot", snapshot))


def snapshot_pages(
    transport: Transport, path: tuple[str, ...], query: dict[str, Any], left: int | None
) -> List[Snapshot]:
    """All pages of a list of snapshots, or as many as hold those that are left."""
    out: List[Snapshot] = []
    while True:
        query["limit"] = PAGE if left is None else min(PAGE, left - len(out))
        page = transport.call(Request("GET", path, query), models.SnapshotList.from_dict)
        out += page.snapshots
        if not page.next_page or page.next_page == query.get("page") or (left is not None and len(out) >= left):
            return out
        query["page"] = page.next_page


class Templates:
    """Finds the images that sandboxes start from."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[Template]:
        """Gives every template of the server."""
        return (self._transport.call(Request("GET", ("v1", "templates")), models.TemplateList.from_dict)).templates

    def get(self, name: str) -> Template:
        """Gives one template (NotFoundError). While it is being built, progress and percent say how far it is."""
        path = ("v1", "templates", _check.identifier("name", name))
        return self._transport.call(Request("GET", path), models.Template.from_dict)


class Tokens:
    """Makes and revokes API keys."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str, *, admin: bool = False) -> NewToken:
        """Makes a key. Its secret is in the answer and nowhere else."""
        body = {"name": _check.text("name", name, empty=False), "admin": _check.truth("admin", admin)}
        return self._transport.call(Request("POST", ("v1", "me", "tokens"), json=body), models.NewToken.from_dict)

    def list(self) -> List[Token]:
        """Gives the caller's keys without their secrets."""
        return (self._transport.call(Request("GET", ("v1", "me", "tokens")), models.TokenList.from_dict)).tokens

    def revoke(self, prefix: str) -> None:
        """Ends a key, named by its prefix (NotFoundError)."""
        self._transport.do(Request("DELETE", ("v1", "me", "tokens", _check.identifier("prefix", prefix))))


class SSHKeys:
    """The public keys that open shells in the caller's sandboxes over SSH."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def add(self, public_key: str, *, name: str | None = None) -> SSHKey:
        """Lets the holder of a key in, as long as the API key of this client is valid.

        public_key: one line as in authorized_keys. name: default its comment.
        """
        body = {"public_key": _check.text("public_key", public_key, empty=False).strip()}
        if name is not None:
            body["name"] = _check.text("name", name)
        return self._transport.call(Request("POST", ("v1", "ssh-keys"), json=body), models.SSHKey.from_dict)

    def list(self) -> List[SSHKey]:
        """Gives the keys, oldest first."""
        return (self._transport.call(Request("GET", ("v1", "ssh-keys")), models.SSHKeyList.from_dict)).keys

    def delete(self, fingerprint: str | SSHKey) -> None:
        """Removes a key, named by its fingerprint (NotFoundError). Connections made with it end within a minute."""
        if isinstance(fingerprint, models.SSHKey):
            fingerprint = fingerprint.fingerprint
        # The server takes the letters that stand for themselves in a URL.
        name = _check.identifier("fingerprint", fingerprint).replace("+", "-").replace("/", "_")
        self._transport.do(Request("DELETE", ("v1", "ssh-keys", name)))
