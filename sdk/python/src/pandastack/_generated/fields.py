# Made by tools/generate.py from api/openapi.json. Do not edit.

"""The record of a sandbox as properties, for its handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional

if TYPE_CHECKING:
    from datetime import datetime

    from .models import ErrorBody, IdlePolicy, Step, SandboxRecord


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
