import assert from "node:assert/strict";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ConflictError, NotFoundError, type Sandbox } from "@pandastack/sdk";
import { client, failure, withSandbox } from "./server.js";

const marked = async (sandbox: Sandbox) => (await sandbox.exec("cat mark")).stdout;

test("forks go on from where the sandbox is", async () => {
  await withSandbox(async (parent) => {
    await parent.filesystem.write("mark", "1");
    await using child = await parent.fork({ metadata: { role: "child" } });
    assert.deepEqual([child.parentId, child.metadata, await marked(child)], [parent.id, { role: "child" }, "1"]);
    await using labelled = await client().sandboxes.fork(parent.id, { role: "other" });
    assert.deepEqual(labelled.metadata, { role: "other" });
    await parent.filesystem.write("mark", "2");
    assert.equal(await marked(child), "1");

    const [a, b] = await parent.fork(2);
    assert.deepEqual([await marked(a!), await marked(b!)], ["2", "2"]);
    await Promise.all([a!.kill(), b!.kill()]);

    const tree = await parent.forkTree({ count: 2, metadata: { try: "x" } });
    assert.deepEqual([tree.parentId, tree.children.length], [parent.id, 2]);
    const [winner, loser] = tree.children;
    const promoted = await winner!.promote({ treeId: tree.treeId, cleanupSiblings: true });
    assert.deepEqual([promoted.sandbox.id, promoted.deleted], [winner!.id, [loser!.id]]);
    const lineage = await winner!.tree();
    assert.equal(lineage.rootId, parent.id);
    assert.ok(lineage.nodes.some((n) => n.id === winner!.id && n.promoted));
    await winner!.kill();
    assert.ok((await failure(client().sandboxes.promote(parent.id, { treeId: "none" }))).code);
  });
});

test("a timeline of checkpoints", async () => {
  await withSandbox(async (sandbox) => {
    await sandbox.filesystem.write("mark", "1");
    const first = await sandbox.checkpoint("first");
    assert.deepEqual([first.name, first.kind, first.sandboxId], ["first", "checkpoint", sandbox.id]);
    await sandbox.filesystem.write("mark", "2");
    const second = await sandbox.checkpoint();
    assert.equal((await sandbox.restore("first")).id, sandbox.id);
    assert.equal(await marked(sandbox), "1");
    await sandbox.restore(second);
    assert.equal(await marked(sandbox), "2");
    await using branch = await sandbox.fork({ checkpoint: first });
    assert.equal(await marked(branch), "1");
    const timeline = await sandbox.checkpoints();
    assert.deepEqual(timeline.checkpoints.map((c) => c.id), [first.id, second.id]);
    assert.equal(timeline.current, second.id);
    await sandbox.deleteCheckpoint("first");
    assert.ok((await failure(sandbox.restore("first"))) instanceof NotFoundError);
  });
});

test("snapshots start others, and move", async () => {
  const { sandboxes, snapshots } = client();
  const local = mkdtempSync(join(tmpdir(), "pandastack-snap-"));
  const name = `ts-${Date.now()}`;
  try {
    await withSandbox(async (sandbox) => {
      await sandbox.filesystem.write("mark", "kept");
      await sandbox.runBackground(["sleep", "900"]).then((p) => p.close());
      const snapshot = await sandbox.snapshot(name);
      assert.ok(snapshot.createdAt instanceof Date && snapshot.memory && snapshot.pauseMs > 0);
      assert.ok((await failure(sandbox.snapshot({ name }))) instanceof ConflictError);
      const files = await sandbox.snapshot({ memory: false, metadata: { a_b: "c" } });
      assert.deepEqual([files.memory, files.metadata], [false, { a_b: "c" }]);
      assert.deepEqual((await sandbox.snapshots()).map((s) => s.id), [files.id, snapshot.id]);
      assert.equal((await snapshots.get(name)).id, snapshot.id);
      assert.ok((await snapshots.list({ kind: "snapshot", limit: 1 })).length === 1);

      await using other = await sandboxes.create({ fromSnapshot: snapshot, ttlSeconds: 60 });
      assert.equal(await marked(other), "kept");
      assert.equal((await other.exec("pgrep -x sleep")).exitCode, 0, "its processes go on");

      const file = join(local, "export");
      const size = await snapshots.export(files, file);
      assert.equal(statSync(file).size, size);
      const imported = await snapshots.import(file, { name: name + "-path" });
      const piped = await snapshots.import(await snapshots.export(files.id), { name: name + "-stream" });
      await using third = await sandboxes.create({ fromSnapshot: name + "-path", ttlSeconds: 60 });
      assert.equal(await marked(third), "kept");
      for (const s of [imported, piped, files, snapshot]) await snapshots.delete(s);
      assert.ok((await failure(snapshots.get(snapshot.id))) instanceof NotFoundError);
      assert.ok((await failure(snapshots.import(new TextEncoder().encode("junk")))).statusCode >= 400);
    });
  } finally {
    rmSync(local, { recursive: true });
  }
});

test("a hibernated sandbox wakes when it is used", async () => {
  await withSandbox(async (sandbox) => {
    await sandbox.filesystem.write("mark", "1");
    assert.equal((await sandbox.hibernate()).status, "hibernated");
    assert.equal(await marked(sandbox), "1");
    assert.equal((await sandbox.refresh()).status, "running");
    await sandbox.hibernate();
    assert.equal((await sandbox.wake()).status, "running");
  });
});
