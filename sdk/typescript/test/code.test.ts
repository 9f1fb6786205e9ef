// Code in contexts, terminals, processes, language servers and repositories, on the real server.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { BadRequestError, ConflictError, NotFoundError, type CodeOutput, type Sandbox } from "@pandastack/sdk";
import { client, failure, repository, until } from "./server.js";

let sandbox: Sandbox;
before(async () => {
  sandbox = await client().sandboxes.create({ ttlSeconds: 900, env: { COLOUR: "blue" } });
});
after(async () => {
  await sandbox?.kill();
});

const shown = `
class Shown:
    def __repr__(self): return "shown"
    def _repr_html_(self): return "<b>shown</b>"
    def _repr_png_(self): return b"\\x89PNG"
print("out")
Shown()
`;

test("code keeps its state, and shows results in every form", async () => {
  await sandbox.runCode("import os; x = 40");
  const run = await sandbox.runCode("print(x + 2, os.environ['COLOUR'], os.environ['A'])", { env: { A: "a" } });
  assert.deepEqual([run.stdout, run.stderr, run.results, run.error, run.timedOut], ["42 blue a\n", "", [], undefined, false]);
  assert.equal((await sandbox.runCode("x + 1")).text, "41");
  assert.equal((await sandbox.runCode("const y = 3; y * 2", "javascript")).text, "6");

  const { results, text } = await sandbox.runCode(shown, { timeoutSeconds: 60 });
  assert.equal(text, "shown");
  const [result] = results as [CodeOutput];
  assert.deepEqual(result.formats, ["text", "html", "png"]);
  assert.deepEqual(Buffer.from(result.bytes("png")!), Buffer.from("\x89PNG", "latin1"));
  assert.equal(result.bytes("pdf"), undefined);
  assert.deepEqual(result.toMimeBundle()["text/html"], "<b>shown</b>");
  assert.equal(result.isMainResult, true);

  const failed = await sandbox.runCode("1 / 0");
  assert.deepEqual([failed.error!.name, failed.error!.value], ["ZeroDivisionError", "division by zero"]);
  assert.match(failed.error!.traceback, /1 \/ 0/);
  assert.ok((await failure(sandbox.runCode("1", "cobol"))) instanceof BadRequestError);
  assert.ok((await sandbox.languages()).includes("python"));
  assert.ok((await client().languages()).includes("typescript"));
});

test("code that is streamed", async () => {
  let [out, err, forms, raised] = ["", "", "", ""];
  const run = await sandbox.runCode(`import sys; print("e", file=sys.stderr)\n${shown.trim()}`, {
    onStdout: (text) => void (out += text),
    onStderr: async (text) => void (err += text),
    onResult: (result) => void (forms += result.formats.join()),
    onError: (error) => void (raised += error.name),
  });
  assert.deepEqual([out, err, forms, raised], ["out\n", "e\n", "text,html,png", ""]);
  assert.deepEqual([run.stdout, run.stderr, run.text, run.results.length], [out, err, "shown", 1]);
  assert.ok(run.durationMs > 0 && run.executionCount > 0);

  const types: string[] = [];
  const stream = sandbox.runCodeStream("print(1)\nraise KeyError('k')");
  for await (const event of stream) types.push(event.type);
  assert.deepEqual(types, ["start", "stdout", "exception", "end"]);
  assert.equal(stream.run.error!.name, "KeyError");

  // Leaving it interrupts the code, and its context keeps its state.
  for await (const { text } of sandbox.runCodeStream("import time\nn = 7\nprint(n, flush=True)\ntime.sleep(600)")) if (text) break;
  assert.equal((await sandbox.runCode("n")).text, "7");
  const timed = await sandbox.runCode("import time; time.sleep(600)", { timeoutSeconds: 0.5 });
  assert.deepEqual([timed.timedOut, timed.error!.name], [true, "KeyboardInterrupt"]);
  const reason = new Error("enough");
  const controller = new AbortController();
  setTimeout(() => controller.abort(reason), 300);
  assert.equal(await failure(sandbox.runCode("time.sleep(600)", { signal: controller.signal })), reason);
  assert.equal((await sandbox.runCodeStream("n + 1").wait()).text, "8");
});

test("contexts are apart", async () => {
  const { contexts } = sandbox;
  const own = await contexts.create({ cwd: "/tmp", env: { B: "b" } });
  assert.deepEqual([own.language, own.cwd], ["python", "/tmp"]);
  await sandbox.runCode("z = 1", { context: own });
  assert.equal((await sandbox.runCode("z", { context: own.id })).text, "1");
  assert.equal((await sandbox.runCode("z")).error!.name, "NameError");
  assert.ok((await contexts.list()).some((c) => c.id === own.id));

  const running = sandbox.runCode("import time; print('go'); time.sleep(600)", { context: own, onStdout: () => contexts.interrupt(own) });
  assert.equal((await running).error!.name, "KeyboardInterrupt");
  assert.equal((await sandbox.runCode("z", { context: own })).text, "1");
  await contexts.restart(own);
  assert.equal((await sandbox.runCode("z", { context: own })).error!.name, "NameError");
  await contexts.delete(own);
  const e = await failure(sandbox.runCode("1", { context: own }));
  assert.ok(e instanceof NotFoundError);
  assert.equal(e.code, "context.not_found");
  assert.match((await failure(sandbox.runCode("1", { context: own, language: "python" }))).message, /not both/);
});

test("processes", async () => {
  const { processes } = sandbox;
  const background = await sandbox.runBackground("trap 'echo bye; exit 6' TERM; echo ready; while read line; do echo got $line; done; sleep 0.1", { tag: "loop" });
  const [listed] = (await processes.list()).filter((p) => p.tag === "loop");
  assert.deepEqual([listed!.pid, listed!.terminal, listed!.startedAt instanceof Date], [background.pid, false, true]);

  const attached = processes.attach(listed!);
  assert.equal((await attached.next()).value?.text, "ready\n");
  assert.deepEqual([attached.pid, attached.skipped], [background.pid, 0]);
  await attached.sendStdin("one\n");
  assert.equal((await attached.next()).value?.text, "got one\n");
  await attached.return();
  await processes.signal("loop", "SIGTERM");
  assert.equal((await background.wait()).exitCode, 6);
  assert.equal((await processes.attach("loop").wait()).stdout, "ready\ngot one\nbye\n", "one that has ended is found");
  assert.ok((await processes.list({ all: true })).some((p) => p.tag === "loop" && p.exitCode === 6));

  const second = await sandbox.runBackground("cat; exec sleep 977");
  await processes.sendStdin(second.pid!, "x", { close: true });
  for await (const { text } of second) {
    assert.equal(text, "x");
    break;
  }
  await second.signal("SIGINT");
  assert.equal((await second.wait()).signal, "SIGINT");
  const pid = await processes.start("cat; exec sleep 975", { keepStdin: true });
  await using joined = await processes.connect(pid);
  assert.equal(joined.pid, pid);
  await joined.sendStdin("joined");
  await joined.closeStdin();
  for await (const { text } of joined) {
    assert.equal(text, "joined");
    break;
  }
  await joined.kill();
  assert.equal((await joined.wait()).signal, "SIGKILL");

  const third = await sandbox.runBackground(["sleep", "976"]);
  await processes.kill(third.pid!);
  assert.equal((await third.wait()).signal, "SIGKILL");
  assert.equal((await failure(processes.kill(third.pid!))).code, "process.not_found");

  const kept = sandbox.execStream("cat", { keepStdin: true, tag: "kept" });
  const ended = kept.wait();
  await until(async () => (await processes.list()).some((p) => p.tag === "kept"));
  await processes.sendStdin("kept", "later");
  await processes.closeStdin("kept");
  assert.equal((await ended).stdout, "later");
});

for (const [name, webSocket] of [["Node's connection", () => undefined], ["the runtime's WebSocket", () => WebSocket]] as const) {
  test(`a terminal over ${name}`, async () => {
    const handle = await client({ webSocket: webSocket() }).sandboxes.get(sandbox.id);
    const decoder = new TextDecoder();
    let shown = "";
    const pty = await handle.pty({ rows: 30, cols: 100, cwd: "/tmp", onData: (data) => void (shown += decoder.decode(data, { stream: true })) });
    const shows = (text: RegExp) => until(async () => text.test(shown));
    assert.ok(pty.tag && (webSocket() || pty.pid! > 0));
    await pty.write("stty size; pwd; tty >/dev/null && echo is-$((1+1))-tty\n");
    await shows(/30 100[^]*\/tmp[^]*is-2-tty/);
    await pty.resize({ rows: 40, cols: 120 });
    await pty.write("stty size; X=kept\n");
    await shows(/40 120/);

    // It goes on without the connection, and shows what was there.
    pty.close();
    const again = await handle.pty({ tag: pty.tag });
    await again.write("echo $X-still; exit 3\n");
    let seen = "";
    for await (const data of again) seen += new TextDecoder().decode(data);
    assert.match(seen, /40 120[^]*kept-still/);
    assert.deepEqual(await again.wait(), { exitCode: 3 });
    assert.equal((await failure(again.write("x"))).code, "process.not_found");

    // A block that ends closes the connection, and no more.
    let left;
    {
      await using cat = await handle.pty({ cmd: "cat" });
      left = cat;
    }
    assert.equal(left.result, undefined);
    const cat = await handle.pty({ tag: left.tag });
    await cat.kill();
    assert.equal((await cat.wait()).signal, "SIGKILL");
    assert.equal((await failure(handle.pty({ pid: 999_999 }))).constructor.name, webSocket() ? "NetworkError" : "NotFoundError");
  });
}

test("a terminal in a sandbox that is gone", async () => {
  const gone = await client().sandboxes.create({ ttlSeconds: 60 });
  const handles = await Promise.all([undefined, WebSocket].map((webSocket) => client({ webSocket }).sandboxes.get(gone.id)));
  await gone.kill();
  for (const handle of handles) {
    assert.equal((await failure(handle.pty())).code, "sandbox.not_found");
  }
});

test("a language server", async () => {
  assert.ok((await client().lspLanguages()).some((l) => l.id === "python" && l.servers.length > 0));
  const e = await failure(sandbox.lsp("python"));
  assert.ok(e instanceof ConflictError);
  assert.equal(e.code, "lsp.not_installed");
  await sandbox.filesystem.write(".local/bin/pylsp", readFileSync(repository + "/cmd/pandastack/testdata/lsp_server.py"));
  await sandbox.filesystem.chmod(".local/bin/pylsp", "755");
  for (const webSocket of [undefined, WebSocket]) {
    const handle = await client({ webSocket }).sandboxes.get(sandbox.id);
    await using server = await handle.lsp("python");
    await server.send({ jsonrpc: "2.0", id: 1, method: "initialize", params: { capabilities: {} } });
    for await (const message of server) {
      assert.equal(message["id"], 1);
      break;
    }
    await server.send({ jsonrpc: "2.0", id: 2, method: "shutdown" });
    await server.send({ jsonrpc: "2.0", method: "exit" });
    const left = [];
    for await (const message of server) left.push(message["id"]);
    assert.deepEqual(left, [2]);

    // One that dies ends the loop with what happened to it.
    await using dying = await handle.lsp("python");
    await dying.send({ jsonrpc: "2.0", id: 1, method: "initialize", params: { capabilities: {} } });
    const died = await failure((async () => {
      for await (const message of dying) if (message["id"] === 1) await dying.send({ jsonrpc: "2.0", id: 2, method: "test/crash" });
    })());
    assert.ok(died instanceof ConflictError, String(died));
    assert.equal(died.code, "sandbox.died");
  }
});

test("repositories", async () => {
  const { git } = sandbox;
  await sandbox.exec("git init -q --bare -b main /tmp/origin.git && git config --global user.name Tester && git config --global user.email t@example.com && git config --global init.defaultBranch main");
  const repo = { path: "/tmp/work" };
  assert.equal((await failure(git.status({ path: "/tmp" }))).code, "git.not_a_repository");
  await sandbox.exec("git init -q /tmp/work && cd /tmp/work && git remote add origin /tmp/origin.git");
  await sandbox.filesystem.write("/tmp/work/a.txt", "one\n");
  assert.deepEqual((await git.status(repo)).files.map((f) => [f.path, f.worktree]), [["a.txt", "untracked"]]);
  assert.deepEqual((await git.add("a.txt", repo)).files.map((f) => f.staged), ["added"]);
  const first = await git.commit("first", { ...repo, authorName: "Ada", authorEmail: "ada@example.com" });
  assert.deepEqual([first.subject, first.author, first.time instanceof Date], ["first", "Ada", true]);
  assert.ok((await failure(git.commit("again", repo))) instanceof ConflictError);
  await sandbox.filesystem.write("/tmp/work/a.txt", "two\n");
  assert.match((await git.diff(repo)).diff, /-one\n\+two/);
  assert.deepEqual((await git.createBranch("side", repo)).map((b) => b.name).sort(), ["main", "side"]);
  assert.equal((await git.checkout("other", { ...repo, create: true })).branch, "other");
  await git.commit("second", { ...repo, all: true });
  assert.deepEqual((await git.log({ ...repo, limit: 1 })).map((c) => c.subject), ["second"]);
  await git.push({ ...repo, setUpstream: true });
  await git.pull(repo);
  assert.ok((await git.branches(repo)).some((b) => b.current && b.name === "other"));
  assert.ok(!(await git.deleteBranch("side", { ...repo, force: true })).some((b) => b.name === "side"));
  assert.equal((await git.clone("http://127.0.0.1:1/x.git", { path: "/tmp/c" }).catch((e: any) => e)).code, "git.remote_unreachable");
  assert.match((await failure(git.clone("x", { user: 5 } as any))).message, /user is a string/);
});

test("what an MCP client needs", async () => {
  const { type, url, headers } = sandbox.mcpConfig();
  assert.equal(type, "http");
  const body = { jsonrpc: "2.0", id: 1, method: "initialize", params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } } };
  for (const address of [url, client().mcpConfig().url]) {
    const response = await fetch(address, {
      method: "POST",
      headers: { ...headers, "Content-Type": "application/json", Accept: "application/json, text/event-stream" },
      body: JSON.stringify(body),
    });
    assert.equal(response.status, 200, address);
    assert.match(await response.text(), /protocolVersion/);
  }
  assert.match(await client().prometheusMetrics(), /^pandastack_/m);
});

test("metrics over a while", async () => {
  const series = await sandbox.metricsSeries({ range: 900, step: "1m" });
  assert.deepEqual([series.sandboxId, series.stepSeconds, Array.isArray(series.samples)], [sandbox.id, 60, true]);
});
