// What files can beside being read and written.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ConflictError, type Filesystem, type Sandbox } from "@pandastack/sdk";
import { client, failure } from "./server.js";

let sandbox: Sandbox;
let fs: Filesystem;
before(async () => {
  sandbox = await client().sandboxes.create({ ttlSeconds: 900 });
  fs = sandbox.filesystem;
});
after(async () => {
  await sandbox?.kill();
});

test("parts of files", async () => {
  await fs.append("log", "one ");
  await fs.append("log", new TextEncoder().encode("two"));
  assert.equal(await fs.read("log"), "one two");
  assert.equal(await fs.read("log", { offset: 4 }), "two");
  assert.equal(await fs.read("log", { length: 3 }), "one");
  assert.equal(new TextDecoder().decode(await fs.read("log", { offset: 1, length: 2, format: "bytes" })), "ne");
  await fs.write("log", "2", { offset: 4 });
  assert.equal(await fs.read("log"), "one 2");
  await fs.write("log", "new", { atomic: true });
  assert.equal(await fs.read("log"), "new");
});

test("copies, permissions, owners, links", async () => {
  await fs.write("tree/a/one", "1");
  assert.ok((await fs.copy("tree", "twin")) >= 3);
  assert.equal(await fs.read("twin/a/one"), "1");
  assert.ok((await failure(fs.copy("tree/a/one", "twin/a/one"))) instanceof ConflictError);
  await fs.copy("tree/a/one", "twin/a/one", { overwrite: true });
  assert.equal((await fs.move("twin", "moved")).name, "moved");
  assert.equal(await fs.chmod("moved/a/one", 0o640), 1);
  assert.equal((await fs.stat("moved/a/one")).mode, "-rw-r-----");
  assert.ok((await fs.chmod("moved", "755", { recursive: true })) >= 3);
  await fs.chown("/home/user/moved/a/one", { owner: "root", group: "root", user: "root" });
  assert.equal((await fs.stat("/home/user/moved/a/one")).owner, "root");
  await fs.symlink("moved/a/one", "link");
  assert.equal(await fs.readlink("link"), "moved/a/one");
  const { type, target } = await fs.stat("link");
  assert.deepEqual([type, target], ["file", "/home/user/moved/a/one"], "what it leads to, and where that is");
});

test("finding and replacing", async () => {
  await fs.write("src/a.py", "import os\nprint('one')\n");
  await fs.write("src/lib/b.py", "print('two')\n");
  await fs.write("src/c.txt", "print\n");
  const home = { path: "/home/user/src" };
  assert.deepEqual((await fs.glob("**/*.py", home)).matches.map((m) => m.name), ["a.py", "b.py"]);
  const found = await fs.search("print\\('(\\w+)'\\)", { ...home, include: ["*.py"], context: 1 });
  assert.deepEqual(found.matches.map((m) => [m.path.replace(home.path, ""), m.line, m.before]), [["/a.py", 2, ["import os"]], ["/lib/b.py", 1, undefined]]);
  assert.equal((await fs.replace("print", "say", { ...home, literal: true, dryRun: true })).count, 3);
  const done = await fs.replace("print\\('(\\w+)'\\)", "say($1)", home);
  assert.deepEqual([done.count, done.files.length], [2, 2]);
  assert.equal(await fs.read("src/lib/b.py"), "say(two)\n");
  assert.match((await failure(fs.search("x", { ignore_case: true } as any))).message, /did you mean ignoreCase/);
});

test("archives", async () => {
  const local = mkdtempSync(join(tmpdir(), "pandastack-archive-"));
  try {
    await fs.write("pack/deep/file", "packed");
    const file = join(local, "pack.tar.gz");
    const size = await fs.downloadArchive("pack", file);
    assert.equal(statSync(file).size, size);
    const extracted = await fs.uploadArchive(file, "unpacked");
    assert.ok(extracted.files >= 1 && extracted.bytes === 6);
    assert.equal(await fs.read("unpacked/deep/file"), "packed");
    await fs.uploadArchive(await fs.downloadArchive("pack"), "piped");
    assert.equal(await fs.read("piped/deep/file"), "packed");
    assert.equal((await failure(fs.downloadArchive("no-such-directory"))).code, "file.not_found");
  } finally {
    rmSync(local, { recursive: true });
  }
});

test("watching a directory", async () => {
  await fs.mkdir("watched/below");
  const watch = await fs.watch("watched", { recursive: true });
  await fs.write("watched/below/new", "x");
  for await (const { type, path } of watch) {
    if (type === "create" && path === "/home/user/watched/below/new") break;
  }
  const plain = await fs.watch("watched");
  const next = (async () => {
    for await (const event of plain) if (event.type === "remove") return event.path;
    return undefined;
  })();
  await fs.remove("watched/below");
  assert.equal(await next, "/home/user/watched/below");
  assert.equal((await failure(fs.watch("no-such-directory"))).code, "file.not_found");
  const aborted = await fs.watch("watched", { signal: AbortSignal.timeout(200) });
  assert.equal((await failure(aborted.next())).name, "TimeoutError");
});

test("signed URLs need no key", async () => {
  await fs.write("shared", "signed");
  const read = await fs.signedUrl("/home/user/shared", { expiresSeconds: 60 });
  assert.ok(read.method === "GET" && read.expiresAt > new Date());
  assert.equal(await (await fetch(read.url)).text(), "signed");
  const write = await fs.signedUrl("/home/user/shared", { operation: "write" });
  assert.equal((await fetch(write.url, { method: write.method, body: "put" })).status, 200);
  assert.equal(await fs.read("shared"), "put");
  assert.equal((await fetch(read.url, { method: "PUT", body: "x" })).status, 401);
});
