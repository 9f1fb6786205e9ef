"""Snapshots, forks, checkpoints and sleep against real sandboxes."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Iterator

import pytest

from conftest import Server
from pandastack import AsyncPandaStack, ConflictError, NotFoundError, PandaStack, Sandbox


@pytest.fixture
def parent(client: PandaStack) -> Iterator[Sandbox]:
    with client.sandboxes.create(metadata={"of": "parent"}) as sandbox:
        sandbox.filesystem.write("state", "before")
        yield sandbox


def test_snapshot(client: PandaStack, parent: Sandbox, tmp_path: Path) -> None:
    taken = parent.snapshot("warm", metadata={"a": "b"})
    assert (taken.name, taken.kind, taken.sandbox_id, taken.memory) == ("warm", "snapshot", parent.id, True)
    assert taken.id.startswith("snap-") and taken.metadata == {"a": "b"}
    parent.filesystem.write("state", "after")
    with pytest.raises(ConflictError):
        parent.snapshot("warm")
    assert [s.id for s in parent.snapshots()] == [taken.id]
    assert client.snapshots.get("warm").id == taken.id
    assert taken.id in [s.id for s in client.snapshots.list(sandbox_id=parent.id, kind="snapshot")]
    for source in (taken, taken.id, "warm"):
        with client.sandboxes.create(from_snapshot=source) as copy:
            assert copy.filesystem.read("state") == "before" and copy.snapshot_id == taken.id
    file = tmp_path / "warm.snapshot"
    assert client.snapshots.export(taken, file) == file.stat().st_size
    client.snapshots.delete(taken)
    with pytest.raises(NotFoundError):
        client.snapshots.get("warm")
    again = client.snapshots.import_(file, name="imported")
    assert again.name == "imported"
    with client.sandboxes.create(from_snapshot="imported") as copy:
        assert copy.filesystem.read("state") == "before"
    client.snapshots.delete("imported")
    with pytest.raises(Exception):
        client.snapshots.import_(io.BytesIO(b"no snapshot"))


def test_files_only(client: PandaStack, parent: Sandbox) -> None:
    taken = parent.snapshot(memory=False)
    assert taken.memory is False
    with client.sandboxes.create(from_snapshot=taken) as copy:
        assert copy.filesystem.read("state") == "before"
    client.snapshots.delete(taken.id)


def test_fork(client: PandaStack, parent: Sandbox) -> None:
    with parent.fork(metadata={"of": "child"}, env={"B": "c"}) as child:
        assert (child.parent_id, child.metadata) == (parent.id, {"of": "child"})
        child.filesystem.write("state", "child")
        assert child.exec("echo $B").stdout == "c\n"
        assert parent.filesystem.read("state") == "before"
    with client.sandboxes.fork(parent.id) as child:
        assert child.filesystem.read("state") == "before" and child.metadata == {"of": "parent"}
    children = parent.fork(2)
    assert isinstance(children, list) and len(children) == 2
    for child in children:
        with child:
            assert child.filesystem.read("state") == "before"


def test_fork_tree_and_promote(client: PandaStack, parent: Sandbox) -> None:
    tree = parent.fork_tree(2, metadata={"of": "tree"})
    assert tree.parent_id == parent.id and len(tree) == 2 and [s.id for s in tree] == [s.id for s in tree.children]
    with tree[0] as winner:
        done = winner.promote(tree.tree_id, cleanup_siblings=True)
        assert done.deleted == [tree[1].id] and done.tree_id == tree.tree_id
        with pytest.raises(NotFoundError):
            client.sandboxes.get(tree[1].id)
        lineage = winner.tree()
        assert lineage.root_id == parent.id
        assert [n.promoted for n in lineage.nodes if n.id == winner.id] == [True]
    other = client.sandboxes.fork_tree(parent.id, 1)
    with other[0] as child:
        assert client.sandboxes.promote(child.id).sandbox.id == child.id


def test_checkpoints(parent: Sandbox) -> None:
    first = parent.checkpoint("first")
    parent.filesystem.write("state", "second")
    parent.checkpoint()
    parent.filesystem.write("state", "third")
    timeline = parent.checkpoints()
    assert [c.name for c in timeline.checkpoints] == ["first", None]
    assert parent.restore() is parent and parent.filesystem.read("state") == "second"
    assert parent.restore("first").filesystem.read("state") == "before"
    assert parent.restore(first).filesystem.read("state") == "before"
    assert parent.checkpoints().current == first.id
    with parent.fork(checkpoint="first") as child:
        assert child.filesystem.read("state") == "before"
    parent.delete_checkpoint(timeline.checkpoints[1])
    assert len(parent.checkpoints().checkpoints) == 1
    with pytest.raises(NotFoundError):
        parent.restore("never")


def test_sleep(parent: Sandbox) -> None:
    parent.run_background("sleep 4711").close()
    assert parent.hibernate().status == "hibernated"
    assert parent.wake().status == "running"
    parent.hibernate()
    assert parent.exec(["pgrep", "-f", "sleep 4711"]).exit_code == 0, "a request wakes it, with its processes"
    assert parent.set_idle(600).idle_seconds == 600
    assert parent.set_lifecycle(idle={"timeout_seconds": 0}).ttl_seconds == 3600


def test_async(server: Server) -> None:
    async def main() -> None:
        async with AsyncPandaStack(api_url=server.url, api_key=server.key) as client:
            async with await client.sandboxes.create() as parent:
                await parent.filesystem.write("state", "before")
                for child in [await parent.fork(), *await parent.fork(2), *await parent.fork_tree(1)]:
                    async with child:
                        assert await child.filesystem.read("state") == "before"
                taken = await parent.snapshot()
                async with await client.sandboxes.create(from_snapshot=taken) as copy:
                    assert await copy.filesystem.read("state") == "before"
                await client.snapshots.delete(taken)

    asyncio.run(main())
