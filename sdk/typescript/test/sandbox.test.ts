import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  AuthError,
  BadRequestError,
  ConflictError,
  NotFoundError,
  PandaStack,
  Sandbox,
  TimeoutError,
  type ErrorCode,
  type LogLine,
  type Process,
} from "@pandastack/sdk";
import { api, client, failure, until, withSandbox } from "./server.js";

let sandbox: Sandbox;
let local: string;

before(async () => {
  sandbox = await client().sandboxes.create({ metadata: { some_label: "typescript" }, env: { SHARED: "yes" }, ttlSeconds: 900 });
  local = mkdtempSync(join(tmpdir(), "pandastack-local-"));
});
after(async () => {
  await sandbox?.kill();
  rmSync(local, { recursive: true });
});

test("the static methods use the environment", async () => {
  let id: string;
  {
    await using own = await Sandbox.create("base", { ttlSeconds: 60, metadata: { static: "1" } });
    id = own.id;
    assert.deepEqual([own.status, own.template, own.ttlSeconds], ["running", "base", 60]);
    assert.ok(own.expiresAt! > own.createdAt);
    assert.equal((await Sandbox.get(id)).id, id);
    assert.deepEqual((await Sandbox.list({ metadata: { static: "1" } })).map((s) => s.id), [id]);
  }
  assert.ok((await failure(Sandbox.get(id))) instanceof NotFoundError, "await using has ended it");
});

test("list chooses", async () => {
  const { sandboxes } = client();
  const ids = async (o: Parameters<typeof sandboxes.list>[0]) => (await sandboxes.list(o)).map((s) => s.id);
  assert.deepEqual(await ids({ metadata: { some_label: "typescript" }, status: ["running", "paused"], limit: 1 }), [sandbox.id]);
  assert.ok(!(await ids({ status: "failed" })).includes(sandbox.id));
  assert.deepEqual(await ids({ template: "no-such-template" }), []);
});

test("exec", async () => {
  const result = await sandbox.exec("printf out; printf err >&2; exit 3");
  assert.deepEqual([result.stdout, result.stderr, result.exitCode, result.exit_code, result.timedOut], ["out", "err", 3, 3, false]);
  assert.ok(result.durationMs > 0 && result.pid! > 0);
  assert.equal((await sandbox.exec(["printf", "%s|", "a b", "$HOME"])).stdout, "a b|$HOME|");
  assert.equal((await sandbox.exec("printf", ["%s|", "c d"])).stdout, "c d|");
  assert.equal((await sandbox.exec("pwd; echo $A $SHARED; id -un; cat", { cwd: "/tmp", env: { A: "1" }, user: "root", stdin: "in\n" })).stdout, "/tmp\n1 yes\nroot\nin\n");
  assert.equal((await sandbox.commands.run(["no-such-program"])).exitCode, 127);
  const killed = await sandbox.exec("sleep 60", 0.2);
  assert.deepEqual([killed.timedOut, killed.exitCode], [true, 124]);
  assert.equal((await sandbox.exec("kill -9 $$")).signal, "SIGKILL");
  const e = await failure(sandbox.exec("true", { user: "nobody-here" }));
  assert.ok(e instanceof BadRequestError);
  assert.match(e.requestId, /^req_/);
});

test("every way to run a command has the same result", async () => {
  const cmd = "printf 'é\\n'; printf err >&2; exit 4";
  const wanted = ["é\n", "err", 4];
  const custom = await client({ fetch: (url, init) => fetch(url, init) }).sandboxes.get(sandbox.id);
  const results = [
    await sandbox.exec(cmd), // Node's own client: no limit
    await sandbox.exec(cmd, 10), // fetch
    await custom.exec(cmd), // a stream: this fetch may give up
    await custom.exec(cmd, 3600),
    await sandbox.exec(cmd, { onStdout: () => undefined }),
    await sandbox.execStream(cmd).wait(),
    await (await sandbox.runBackground(cmd)).wait(),
  ];
  for (const [i, r] of results.entries()) assert.deepEqual([r.stdout, r.stderr, r.exitCode], wanted, String(i));
});

test("exec can be aborted, and times out", async () => {
  const reason = new Error("enough");
  for (const options of [{}, { timeoutSeconds: 60 }, { onStdout: () => undefined }]) {
    const controller = new AbortController();
    setTimeout(() => controller.abort(reason), 200);
    assert.equal(await failure(sandbox.exec("sleep 61", { ...options, signal: controller.signal })), reason);
  }
  assert.ok((await failure(sandbox.exec("sleep 61", { timeoutMs: 200 }))) instanceof TimeoutError);
});

test("callbacks get output as it is written", async () => {
  let [out, err] = ["", ""];
  const result = await sandbox.exec("echo 1; echo 2 >&2; sleep 0.2; echo 3", {
    onStdout: async (text) => {
      await new Promise((resolve) => setTimeout(resolve, 1));
      out += text;
    },
    onStderr: (text) => void (err += text),
  });
  assert.deepEqual([out, err, result.stdout, result.stderr, result.exitCode], ["1\n3\n", "2\n", "1\n3\n", "2\n", 0]);
  const reason = new Error("no more");
  const thrown = sandbox.exec("while :; do echo x; sleep 0.05; done", {
    onStdout: () => {
      throw reason;
    },
  });
  assert.equal(await failure(thrown), reason);
});

test("execStream gives bytes and text, and leaving it kills the command", async () => {
  const random = randomBytes(300_000);
  await sandbox.filesystem.write("/tmp/random", random);
  const hash = createHash("sha256");
  const stream = sandbox.execStream("cat /tmp/random");
  for await (const { data } of stream) hash.update(data);
  assert.equal(hash.digest("hex"), createHash("sha256").update(random).digest("hex"));
  assert.equal(stream.result!.exitCode, 0);

  for await (const { text } of sandbox.execStream("echo $$; exec sleep 987")) {
    assert.match(text, /^\d+\n$/);
    break;
  }
  await until(async () => (await sandbox.exec("pgrep -f '[s]leep 987' || true")).stdout === "");

  // A character that is cut in two comes whole.
  let text = "";
  for await (const piece of sandbox.execStream("printf '\\303'; sleep 0.2; printf '\\251'")) text += piece.text;
  assert.equal(text, "é");
});

const sockets: [string, () => typeof WebSocket | undefined][] = [
  ["Node's connection", () => undefined],
  ["the runtime's WebSocket", () => WebSocket],
];
for (const [name, webSocket] of sockets) {
  test(`background commands over ${name}`, async () => {
    const handle = await client({ webSocket: webSocket() }).sandboxes.get(sandbox.id);
    const echo = await handle.runBackground("cat; exit 5");
    assert.ok(echo.pid! > 0);
    const big = "x".repeat(100_000) + "\n";
    await echo.sendStdin("hello\n");
    await echo.sendStdin(new TextEncoder().encode(big));
    await echo.closeStdin();
    const result = await echo.wait();
    assert.equal(result.exitCode, 5);
    assert.equal(result.stdout, "hello\n" + big);
    let text = "";
    for await (const output of echo) text += output.text;
    assert.equal(text, "hello\n" + big, "what was written before can be iterated over");
    assert.equal((await failure(echo.sendStdin("x"))).code, "process.not_found");
    await echo.kill();

    let seen = "";
    const slow = await handle.runBackground("trap 'echo bye; exit 6' TERM; while :; do echo tick; sleep 0.05; done", { onStdout: (t) => void (seen += t) });
    for await (const output of slow) if (output.text.includes("tick")) break;
    assert.equal((await failure(slow.wait({ timeoutMs: 100 }))).code, "request.timeout");
    await slow.terminate();
    assert.equal((await slow.wait()).exitCode, 6);
    assert.match(seen, /^tick[^]*bye\n$/);

    let killed: Process;
    {
      await using sleep = await handle.runBackground(["sleep", "986"]);
      killed = sleep;
    }
    assert.equal(killed.result!.signal, "SIGKILL");

    const left = await handle.runBackground(["sleep", "985"]);
    left.close();
    assert.equal((await failure(left.wait())).code, "client.server_unreachable");
    assert.equal((await sandbox.exec("pkill -f '[s]leep 985'")).exitCode, 0, "it goes on without the connection");

    const missing = await handle.runBackground(["no-such-program"]);
    assert.equal((await missing.wait()).exitCode, 127);
    assert.ok((await failure(handle.runBackground("true", { user: "nobody-here" }))) instanceof BadRequestError);
    const wrong = await client({ webSocket: webSocket(), apiKey: "pds_wrong" }).sandboxes.list().catch((e: unknown) => e);
    assert.ok(wrong instanceof AuthError);
  });

  test(`a background command that cannot start over ${name}`, async () => {
    const gone = await client().sandboxes.create({ ttlSeconds: 60 });
    const handle = await client({ webSocket: webSocket() }).sandboxes.get(gone.id);
    await gone.kill();
    assert.equal((await failure(handle.runBackground("true"))).code, "sandbox.not_found");
  });
}

test("a reader that is slow slows the command down, and gets all of it", async () => {
  const lines = 400_000;
  const process = await sandbox.runBackground(`seq ${lines}`);
  let [size, held] = [0, 0];
  for await (const { data } of process) {
    size += data.length;
    if (held++ % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
  }
  assert.equal(size, Array.from({ length: lines }, (_, i) => String(i + 1).length + 1).reduce((a, b) => a + b));
});

test("a result keeps the last 16 MiB of a stream", async () => {
  const bytes = 40 << 20;
  const command = `head -c ${bytes} /dev/zero | tr '\\0' a; printf end`;
  let seen = 0;
  const result = await sandbox.exec(command, { onStdout: (text) => void (seen += text.length) });
  assert.deepEqual([seen, result.stdout.length, result.truncated], [bytes + 3, 16 << 20, true]);
  assert.ok(result.stdout.endsWith("aend"));
  const background = await sandbox.runBackground(command);
  const kept = await background.wait();
  assert.deepEqual([kept.stdout.length, kept.truncated], [16 << 20, true]);
  let left = 0;
  for await (const { data } of background) left += data.length;
  assert.ok(left > 8 << 20 && left <= 16 << 20, `${left} bytes wait to be iterated over`);
});

test("files", async () => {
  const fs = sandbox.filesystem;
  const info = await fs.write("dir/notes.txt", "héllo");
  assert.deepEqual([info.name, info.type, info.size, info.owner], ["notes.txt", "file", 6, "user"]);
  assert.ok(info.modified instanceof Date);
  assert.equal(await fs.read("dir/notes.txt"), "héllo");
  const bytes = randomBytes(70_000);
  for (const data of [new Uint8Array(bytes), bytes, new Blob([bytes]), new Uint8Array(bytes).buffer, new Blob([bytes]).stream(), chunksOf(bytes)]) {
    await fs.write("bytes", data);
    assert.deepEqual(Buffer.from(await fs.read("bytes", { format: "bytes" })), bytes);
  }
  const parts: Uint8Array[] = [];
  for await (const part of await fs.read("bytes", { format: "stream" })) parts.push(part);
  assert.deepEqual(Buffer.concat(parts), bytes);
  assert.match((await failure(fs.read("bytes"))).message, /not UTF-8 text/);
  await fs.write("bom", "\ufeffx");
  assert.equal(await fs.read("bom"), "\ufeffx");
  await fs.write("empty", "");
  assert.equal(await fs.read("empty"), "");

  assert.deepEqual((await fs.list("dir")).map((f) => f.name), ["notes.txt"]);
  await fs.mkdir("dir/a/b");
  await fs.mkdir("dir/a/b");
  assert.ok((await fs.list("dir", { depth: 3 })).some((f) => f.path.endsWith("dir/a/b")));
  assert.ok((await fs.list()).some((f) => f.name === "dir"));
  assert.equal((await fs.rename("dir/notes.txt", "dir/moved.txt")).name, "moved.txt");
  assert.deepEqual([await fs.exists("dir/notes.txt"), await fs.exists("dir/moved.txt")], [false, true]);
  await fs.remove("dir");
  assert.equal((await failure(fs.stat("dir"))).code, "file.not_found" satisfies ErrorCode);
  assert.equal((await fs.write("/root/x", "1", { user: "root" })).owner, "root");
  assert.equal((await failure(fs.read("/tmp"))).code, "file.is_directory");
});

async function* chunksOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 10_000) yield bytes.subarray(at, at + 10_000);
}

test("upload and download", async () => {
  const fs = sandbox.filesystem;
  const bytes = randomBytes(3 << 20);
  const source = join(local, "source");
  writeFileSync(source, bytes);
  assert.equal((await fs.upload(source, "up")).size, bytes.length);
  const target = join(local, "target");
  writeFileSync(target, "old", { mode: 0o600 });
  assert.equal(await fs.download("up", target), bytes.length);
  assert.ok(readFileSync(target).equals(bytes));
  assert.equal(statSync(target).mode & 0o777, 0o600);
  await failure(fs.download("no-such-file", target));
  assert.ok(readFileSync(target).equals(bytes), "a download that fails leaves what was there");
  const parts: Uint8Array[] = [];
  await fs.download("up", new WritableStream({ write: (chunk) => void parts.push(chunk) }));
  assert.ok(Buffer.concat(parts).equals(bytes));
  assert.equal((await failure(fs.upload(join(local, "none"), "up2"))).code, "ENOENT");
  const reason = new Error("the source broke");
  const broken = async function* () {
    yield new Uint8Array(10);
    throw reason;
  };
  assert.equal(await failure(fs.write("up2", broken())), reason);
  assert.deepEqual(readdirSync(local).sort(), ["source", "target"]);
});

test("logs, events, metrics", async () => {
  await withSandbox(async (own) => {
    await own.exec("echo first; echo second >&2");
    assert.match(await own.logs(), /first\n[^]*second|second\n[^]*first/);
    assert.doesNotMatch(await own.logs("stdout"), /second/);
    assert.equal((await own.logs({ tail: 1 })).split("\n").length, 2);
    const lines: LogLine[] = [];
    const follow = own.logs({ follow: true });
    for await (const line of follow) {
      lines.push(line);
      if (lines.length === 2) await own.exec("echo third");
      if (line.line === "third") break;
    }
    assert.ok(lines[0]!.time instanceof Date);
    for await (const line of own.logs("stdout", true)) {
      assert.equal(line.stream, "stdout");
      break;
    }
    const events = await own.events();
    assert.ok(events.some((e) => e.type === "sandbox.running" && e.time instanceof Date));
    assert.deepEqual(await own.events({ since: events.at(-1)!.id }), []);
    await own.pause();
    const types: string[] = [];
    const controller = new AbortController();
    for await (const event of own.events({ since: events.at(-1)!.id, follow: true, signal: controller.signal })) {
      types.push(event.type);
      if (event.type === "sandbox.paused") await own.resume();
      if (event.type === "sandbox.resumed") break;
    }
    assert.deepEqual(types, ["sandbox.paused", "sandbox.resumed"]);
    const metrics = await own.metrics();
    assert.ok(metrics.hostRssBytes > 0 && metrics.memoryLimitBytes > 0 && metrics.uptimeSeconds > 0);

    const waiting = own.events({ follow: true, since: Date.now() > 0 ? new Date() : undefined });
    const next = waiting.next();
    setTimeout(() => void waiting.return(), 200);
    assert.equal((await next).done, true);
  });
});

test("lifecycle", async () => {
  await withSandbox(async (own) => {
    assert.equal((await own.lifecycle()).ttlSeconds, 600);
    assert.equal((await own.setTtl(120)).ttlSeconds, 120);
    assert.equal((await own.setPersistent()).persistent, true);
    assert.equal((await own.refresh()).expiresAt, undefined);
    assert.equal((await own.setPersistent(false)).persistent, false);
    assert.equal((await own.setIdle(300)).idle!.timeoutSeconds, 300);
    const set = await own.setLifecycle({ checkpoints: { keepLast: 3 }, idle: { timeoutSeconds: 60, ignoreStreams: true } });
    assert.deepEqual([set.checkpoints!.keepLast, set.idle!.ignoreStreams], [3, true]);
    assert.equal((await own.pause()).status, "paused");
    assert.ok((await failure(own.exec("true", 5))) instanceof ConflictError);
    assert.equal((await own.resume()).status, "running");
    assert.equal((await own.exec("echo on")).stdout, "on\n");
  });
});

test("me, tokens, templates, version", async () => {
  const admin = client();
  assert.equal((await admin.me()).admin, true);
  assert.deepEqual([(await admin.health()).status, (await admin.ready()).status], ["ok", "ok"]);
  assert.ok((await new PandaStack({ apiUrl: api }).version()).go);
  const made = await admin.tokens.create("typescript");
  assert.ok((await admin.tokens.list()).some((t) => t.prefix === made.prefix && t.createdAt instanceof Date));
  const user = client({ apiKey: made.token });
  assert.equal((await user.me()).admin, false);
  assert.equal((await failure(user.tokens.create("more"))).code, "auth.forbidden");
  await admin.tokens.revoke(made.prefix);
  const e = await failure(user.me());
  assert.ok(e instanceof AuthError && e.statusCode === 401);
  assert.ok((await admin.templates.list()).some((t) => t.name === "base"));
  assert.equal((await admin.templates.get("base")).status, "ready");
  assert.equal((await failure(admin.sandboxes.create("no-such-template"))).code, "template.not_found");
});
