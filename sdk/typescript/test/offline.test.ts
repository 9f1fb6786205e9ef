import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createRawServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { AuthError, BadRequestError, Client, NetworkError, PandaStack, Sandbox, TimeoutError, type Data } from "@pandastack/sdk";
import { failure, fake, json, record, until } from "./server.js";

test("Client is another name of PandaStack", () => assert.equal(Client, PandaStack));

test("a record is in camelCase, with dates, and labels as they are", async () => {
  await using server = await fake((_, response) => json(response, 200, { ...record, some_new_field: 1, expires_at: null }));
  const sandbox = await server.client().sandboxes.get("x");
  assert.equal(sandbox.memoryMb, 512);
  assert.deepEqual(sandbox.createdAt, new Date(record.created_at));
  assert.deepEqual(sandbox.metadata, { some_label: "x" });
  assert.equal((sandbox.record as any).someNewField, 1);
  assert.equal(sandbox.expiresAt, undefined);
  assert.equal(JSON.parse(JSON.stringify(sandbox)).id, record.id);
});

test("something that is no server says so in a sentence", async () => {
  await using server = await fake((request, response) => {
    const [status, kind, body, more] = {
      "/v1/templates/html": [200, "text/html", "<html>", {}],
      "/v1/templates/gateway": [502, "text/html", "<html>bad gateway", {}],
      "/v1/templates/moved": [301, "text/html", "", { Location: "https://example.com/" }],
      "/v1/templates/cut": [200, "application/json", '{"name": ', {}],
      "/v1/templates/other": [200, "application/json", '{"hello": "world"}', {}],
      "/v1/templates/list": [200, "application/json", "[]", {}],
    }[request.url!] as [number, string, string, Record<string, string>];
    response.writeHead(status, { "Content-Type": kind, ...more });
    response.end(body);
  });
  const client = server.client();
  for (const name of ["html", "gateway", "moved", "cut", "other", "list"]) {
    const e = await failure(client.templates.get(name));
    assert.ok(e instanceof NetworkError, name);
    assert.equal(e.code, "client.not_a_pandastack_server");
    assert.ok(e.hint);
  }
  assert.match((await failure(client.templates.get("moved"))).message, /redirects to https:\/\/example.com/);
  assert.equal(server.requests.length, 7, "none of these is tried again");
});

test("an older server is named as the likely cause", async () => {
  await using server = await fake((_, response) => json(response, 404, { error: { code: "request.not_found", message: "m", hint: "h" } }));
  assert.match((await failure(server.client().me())).hint, /older/);
});

test("a GET is tried again where that can help", async () => {
  await using server = await fake((_, response, n) => {
    if (n < 3) json(response, 503, { error: { code: "capacity.unavailable", message: "m" } });
    else json(response, 200, { name: "base", status: "ready" });
  });
  assert.equal((await server.client().templates.get("base")).name, "base");
  assert.equal(server.requests.length, 3);
  assert.equal((await failure(server.client({ retries: 0 }).templates.get("base").then(() => { throw new Error("answered"); }))).message, "answered");
});

test("a create is tried again, and is one create to the server", async () => {
  await using server = await fake((request, response, n) => {
    if (n === 1) request.socket.destroy();
    else if (n === 2) json(response, 503, { error: { code: "capacity.unavailable", message: "m" } });
    else json(response, 201, record);
  });
  const client = server.client();
  assert.equal((await client.sandboxes.create()).id, record.id);
  await client.sandboxes.create();
  const keys = server.requests.map((r) => r.headers["idempotency-key"] as string);
  assert.match(keys[0]!, /^[0-9a-f]{32}$/);
  assert.deepEqual([keys[1], keys[2], keys[3] === keys[0]], [keys[0], keys[0], false]);
});

test("a connection that breaks is tried again for a GET only", async () => {
  await using server = await fake((request, response, n) => {
    if (n === 1 || request.method !== "GET") request.socket.destroy();
    else json(response, 200, { name: "base", status: "ready" });
  });
  assert.equal((await server.client().templates.get("base")).name, "base");
  const before = server.requests.length;
  const e = await failure(server.client().sandboxes.fork("x"));
  assert.ok(e instanceof NetworkError);
  assert.match(e.message, /ended before the answer did/);
  assert.equal(server.requests.length, before + 1);
});

test("what may not be tried again is not", async () => {
  const answers: [number, string][] = [[500, "internal"], [503, "host.setup_incomplete"], [429, "quota.sandboxes_exceeded"], [404, "template.not_found"]];
  for (const [status, code] of answers) {
    await using server = await fake((_, response) => json(response, status, { error: { code, message: "m" } }));
    await failure(server.client().templates.get("x"));
    assert.equal(server.requests.length, 1, code);
  }
  await using server = await fake((_, response) => json(response, 503, { error: { code: "capacity.unavailable", message: "m" } }));
  await failure(server.client().sandboxes.fork("x"));
  assert.equal(server.requests.length, 1, "a POST");
});

test("a Retry-After that is too long is not waited for", async () => {
  await using server = await fake((_, response) => json(response, 429, { error: { code: "rate_limit.api", message: "m" } }, { "Retry-After": "3600" }));
  await failure(server.client().templates.get("x"));
  assert.equal(server.requests.length, 1);
});

async function closedPort(): Promise<string> {
  const server = createRawServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

test("no server: one sentence, and what to try", async () => {
  const client = new PandaStack({ apiUrl: await closedPort(), apiKey: "pds_x", retries: 1 });
  for (const call of [() => client.me(), () => client.sandboxes.create(), () => client.sandboxes.fork("x")]) {
    const e = await failure(call());
    assert.ok(e instanceof NetworkError);
    assert.equal(e.code, "client.server_unreachable");
    assert.match(e.message, /^no connection to the server at http:.*: connection refused$/);
    assert.match(e.hint, /pandastack server/);
  }
  const name = new PandaStack({ apiUrl: "http://nowhere.invalid", apiKey: "pds_x", retries: 0 });
  assert.match((await failure(name.me())).message, /does not resolve|does not answer/);
});

test("a server that does not speak HTTP", async () => {
  const server = createRawServer((socket) => {
    socket.on("error", () => undefined); // the client hangs up on it
    socket.write("SSH-2.0-OpenSSH_9.6\r\n", () => socket.destroySoon());
    setTimeout(() => socket.destroy(), 500);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const e = await failure(new PandaStack({ apiUrl: `http://${address}`, apiKey: "pds_x" }).me());
  await new Promise((resolve) => server.close(resolve));
  assert.equal(e.code, "client.not_a_pandastack_server");
  assert.match(e.message, /does not speak http/);
  await using plain = await fake((_, response) => json(response, 200, {}));
  const tls = await failure(new PandaStack({ apiUrl: plain.url.replace("http", "https"), apiKey: "pds_x", retries: 0 }).me());
  assert.match(tls.message, /does not speak https/);
});

test("a server that does not answer in time", async () => {
  await using server = await fake(() => undefined);
  const e = await failure(server.client({ timeoutMs: 200 }).me());
  assert.ok(e instanceof TimeoutError);
  assert.equal(e.code, "request.timeout");
  assert.match(e.message, /within 0.2 s/);
  assert.ok((await failure(server.client().me({ timeoutMs: 100 }))) instanceof TimeoutError);
  assert.ok((await failure(server.client().sandboxes.create({ timeoutMs: 100 }))) instanceof TimeoutError);
});

test("a body that stops coming", async () => {
  await using server = await fake((_, response) => {
    response.writeHead(200, { "Content-Type": "application/json", "Content-Length": "1000" });
    response.write("{");
  });
  assert.ok((await failure(server.client({ timeoutMs: 200 }).me())) instanceof TimeoutError);
});

test("an aborted call rejects with the reason of its signal", async () => {
  await using server = await fake(() => undefined);
  const client = server.client();
  const reason = new Error("enough");
  const controller = new AbortController();
  setTimeout(() => controller.abort(reason), 50);
  assert.equal(await failure(client.me({ signal: controller.signal })), reason);
  const before = server.requests.length;
  assert.equal(await failure(client.sandboxes.create({ signal: controller.signal })), reason);
  assert.equal(server.requests.length, before, "nothing is sent");
  assert.equal((await failure(client.me({ signal: AbortSignal.timeout(50) }))).name, "TimeoutError");
});

test("exec in every form", async () => {
  const bodies: any[] = [];
  await using server = await fake((request, response) => {
    let text = "";
    request.on("data", (d) => (text += d));
    request.on("end", () => {
      if (request.method === "GET") return json(response, 200, record);
      bodies.push(JSON.parse(text));
      json(response, 200, { stdout: "o", stderr: "e", exit_code: 3, duration_ms: 1.5 });
    });
  });
  const sandbox = await server.client().sandboxes.get("x");
  const result = await sandbox.exec("echo hi", 30);
  assert.deepEqual([result.stdout, result.stderr, result.exitCode, result.exit_code, result.durationMs, result.duration_ms], ["o", "e", 3, 3, 1.5, 1.5]);
  assert.deepEqual([result.timedOut, result.truncated], [false, false]);
  await sandbox.exec(["a", "b"]);
  await sandbox.exec("a", ["b", "c"], { timeoutSeconds: 1, cwd: "/tmp", env: { A_b: "1" }, user: "root", stdin: "in" });
  await sandbox.exec("a", undefined, 2);
  await sandbox.commands.run("a", { timeoutSeconds: 3, stdin: new TextEncoder().encode("é") });
  assert.deepEqual(bodies, [
    { cmd: "echo hi", timeout_seconds: 30 },
    { cmd: ["a", "b"] },
    { cmd: "a", args: ["b", "c"], timeout_seconds: 1, cwd: "/tmp", env: { A_b: "1" }, user: "root", stdin: "in" },
    { cmd: "a", timeout_seconds: 2 },
    { cmd: "a", timeout_seconds: 3, stdin: "é" },
  ]);
});

test("fork takes options or metadata", async () => {
  const bodies: any[] = [];
  await using server = await fake((request, response) => {
    let text = "";
    request.on("data", (d) => (text += d));
    request.on("end", () => {
      bodies.push(JSON.parse(text));
      json(response, 201, request.url!.endsWith("fork") ? record : { tree_id: "t", parent_id: "p", children: [record, record] });
    });
  });
  const { sandboxes } = server.client();
  await sandboxes.fork("x");
  await sandboxes.fork("x", { metadata: { a: "1" }, ttlSeconds: 5, checkpoint: { id: "snap-1" } });
  await sandboxes.fork("x", { task: "a", env: "prod" });
  await sandboxes.forkTree("x", { count: 2, metadata: { a: "1" } });
  const tree = await sandboxes.forkTree("x", 2, { task: "a" });
  assert.deepEqual(bodies, [
    {},
    { metadata: { a: "1" }, ttl_seconds: 5, checkpoint: "snap-1" },
    { metadata: { task: "a", env: "prod" } },
    { count: 2, metadata: { a: "1" } },
    { count: 2, metadata: { task: "a" } },
  ]);
  assert.deepEqual([tree.treeId, tree.parentId, [...tree].length], ["t", "p", 2]);
});

test("wrong arguments never become a request", async () => {
  await using server = await fake((_, response) => json(response, 200, record));
  const client = server.client();
  const sandbox = await client.sandboxes.get("x");
  const any = (v: unknown) => v as any;
  const wrong: [string, () => unknown, RegExp][] = [
    ["cmd", () => sandbox.exec(any(5)), /cmd is a string or an array/],
    ["empty cmd", () => sandbox.exec(""), /cmd is empty/],
    ["empty list", () => sandbox.exec([]), /cmd is empty/],
    ["words", () => sandbox.exec(any(["a", 1])), /cmd is an array of strings/],
    ["options", () => sandbox.exec("a", any("30")), /options of exec are an object/],
    ["seconds", () => sandbox.exec("a", { timeoutSeconds: any("30") }), /timeoutSeconds is a number, not string/],
    ["negative", () => sandbox.exec("a", -1), /at least 0/],
    ["spelling", () => sandbox.exec("a", any({ timeout_seconds: 3 })), /did you mean timeoutSeconds/],
    ["env", () => sandbox.exec("a", { env: any({ A: 1 }) }), /A is number/],
    ["stdin", () => sandbox.exec("a", { stdin: new Uint8Array([255]) }), /not UTF-8/],
    ["callback", () => sandbox.exec("a", { onStdout: any("x") }), /onStdout is a function/],
    ["signal", () => sandbox.exec("a", { signal: any(1) }), /signal is an AbortSignal/],
    ["ttl", () => client.sandboxes.create({ ttlSeconds: any("60") }), /ttlSeconds is a number/],
    ["fraction", () => client.sandboxes.create({ ttlSeconds: 1.5 }), /whole number/],
    ["metadata", () => client.sandboxes.create({ metadata: any({ a: 1 }) }), /a is number/],
    ["unknown", () => client.sandboxes.create(any({ tempalte: "x" })), /create has no option tempalte/],
    ["idle", () => client.sandboxes.create({ idle: any({ timeout_seconds: 1 }) }), /idle has no option timeout_seconds; did you mean timeoutSeconds/],
    ["volumes", () => client.sandboxes.create({ volumes: any("v") }), /volumes is an array/],
    ["id", () => client.sandboxes.get(""), /id is empty/],
    ["dots", () => client.sandboxes.get(".."), /not the name of anything/],
    ["status", () => client.sandboxes.list({ status: any("awake") }), /status is one of/],
    ["limit", () => client.sandboxes.list({ limit: 0 }), /at least 1/],
    ["path", () => sandbox.filesystem.read("a\0b"), /NUL/],
    ["data", () => sandbox.filesystem.write("a", any(5)), /data is a string, bytes/],
    ["format", () => sandbox.filesystem.read("a", { format: any("json") }), /format is one of/],
    ["target", () => sandbox.filesystem.download("a", any(5)), /target is a path or a WritableStream/],
    ["count", () => sandbox.forkTree(0), /at least 1/],
    ["fork", () => sandbox.fork(any("x")), /options of fork are an object/],
    ["mixed", () => sandbox.fork(any({ ttlSeconds: 1, task: "a" })), /fork has no option task/],
    ["logs", () => sandbox.logs(any("all")), /stream is one of/],
    ["ttl 0", () => sandbox.setTtl(0), /at least 1/],
    ["token", () => client.tokens.create(any(undefined)), /name is a string, not undefined/],
    ["client", () => Sandbox.create({ client: any({}) }), /client is a PandaStack/],
    ["code", () => sandbox.runCode(any(5)), /code is a string/],
    ["two contexts", () => sandbox.runCode("x", { language: "python", context: "c" }), /not both/],
    ["result", () => sandbox.runCode("x", { onResult: any(1) }), /onResult is a function/],
    ["signal name", () => sandbox.processes.signal(1, any({})), /signal is a string/],
    ["process", () => sandbox.processes.kill(0), /at least 1/],
    ["rows", () => sandbox.pty({ rows: 0 }), /at least 1/],
    ["no limit", () => sandbox.runCode("x", { timeoutSeconds: any("") }), /timeoutSeconds is a number above 0, not string/],
    ["null limit", () => sandbox.runCode("x", { timeoutSeconds: any(null) }), /above 0, not null/],
    ["NaN limit", () => sandbox.runCodeStream("x", { timeoutSeconds: NaN }), /above 0, not NaN/],
    ["zero limit", () => sandbox.runCode("x", { timeoutSeconds: 0 }), /above 0, not 0/],
    ["columns", () => sandbox.pty(any({ columns: 1 })), /pty has no option columns/],
    ["language", () => sandbox.lsp(".."), /not the name of anything/],
    ["port", () => sandbox.previewUrl(70_000), /at most 65535/],
    ["visibility", () => sandbox.ports.expose(80, any("closed")), /visibility is one of/],
    ["rules", () => sandbox.network.set(any({ egress_mbps: 1 })), /did you mean egressMbps/],
    ["allow", () => sandbox.network.set({ allow: any("a") }), /allow is an array/],
    ["operation", () => sandbox.filesystem.signedUrl("a", { operation: any("list") }), /operation is one of/],
    ["mode", () => sandbox.filesystem.chmod("a", -1), /at least 0/],
    ["range", () => sandbox.filesystem.read("a", { length: 0 }), /at least 1/],
    ["url", () => sandbox.git.clone(any(undefined)), /url is a string/],
    ["message", () => sandbox.git.commit(""), /message is empty/],
    ["auth", () => sandbox.git.pull({ auth: any(5) }), /auth is an object/],
  ];
  for (const [name, call, pattern] of wrong) {
    const e = await failure((async () => call())());
    assert.ok(e instanceof TypeError || e instanceof RangeError, `${name}: ${e}`);
    assert.match(e.message, pattern, name);
  }
  assert.equal(server.requests.length, 1);
});

test("settings come from arguments, the environment, the config file", async () => {
  const home = mkdtempSync(join(tmpdir(), "pandastack-home-"));
  const saved = { ...process.env };
  let authorization: string | undefined;
  await using server = await fake((request, response) => {
    authorization = request.headers.authorization;
    json(response, 200, { org: "o", name: "n", prefix: "p", admin: false });
  });
  try {
    process.env["HOME"] = home;
    for (const name of ["PANDASTACK_API", "PANDASTACK_API_KEY", "PANDASTACK_TOKEN"]) delete process.env[name];
    assert.equal(new PandaStack().baseUrl, "http://127.0.0.1:8080");
    assert.ok((await failure(new PandaStack().me())) instanceof AuthError);

    mkdirSync(join(home, ".config/pandastack"), { recursive: true });
    const file = join(home, ".config/pandastack/config.json");
    for (const name of ["api_key", "apiKey", "token"]) {
      writeFileSync(file, JSON.stringify({ api: server.url, [name]: "pds_file" }));
      await new PandaStack().me();
      assert.equal(authorization, "Bearer pds_file");
    }
    process.env["PANDASTACK_TOKEN"] = "pds_token";
    await new PandaStack().me();
    assert.equal(authorization, "Bearer pds_token");
    process.env["PANDASTACK_API_KEY"] = "pds_key";
    await new PandaStack().me();
    assert.equal(authorization, "Bearer pds_key");
    await new PandaStack({ token: "pds_given" }).me();
    assert.equal(authorization, "Bearer pds_given");
    process.env["PANDASTACK_API"] = "http://127.0.0.1:1/prefix/";
    assert.equal(new PandaStack().baseUrl, "http://127.0.0.1:1/prefix");
    assert.equal(new PandaStack({ apiUrl: server.url }).baseUrl, server.url);

    delete process.env["PANDASTACK_API_KEY"];
    delete process.env["PANDASTACK_TOKEN"];
    writeFileSync(file, "{");
    assert.throws(() => new PandaStack(), /config.json is not JSON/);
    assert.doesNotThrow(() => new PandaStack({ apiKey: "pds_x" }));
  } finally {
    process.env = saved;
    rmSync(home, { recursive: true });
  }
  const any = (v: unknown) => v as any;
  assert.throws(() => new PandaStack({ apiUrl: "localhost:8080" }), /not an http or https URL/);
  assert.throws(() => new PandaStack({ apiUrl: "http://a@b" }), /no user/);
  assert.throws(() => new PandaStack({ apiKey: "pds_a\n" }), /characters that no key has/);
  assert.throws(() => new PandaStack({ apiKey: "a", token: "b" }), /two names of one thing/);
  assert.throws(() => new PandaStack(any({ api_key: "a" })), /no option api_key/);
  assert.throws(() => new PandaStack(any("pds_a")), /options of a client are an object/);
  assert.throws(() => new PandaStack({ timeoutMs: 0 }), /timeoutMs/);
  assert.throws(() => new PandaStack({ retries: -1 }), /retries/);
});

test("ready tells a server that starts from one that is none", async () => {
  await using server = await fake((_, response, n) => {
    if (n === 1) json(response, 503, { status: "starting", detail: "baking" });
    else json(response, 503, { hello: "world" });
  });
  assert.deepEqual(await server.client({ retries: 0 }).ready(), { status: "starting", detail: "baking" });
  assert.ok((await failure(server.client({ retries: 0 }).ready())) instanceof NetworkError);
});

test("streams that break say so", async () => {
  const start = 'event: start\ndata: {"type":"start","pid":7}\n\n';
  const out = `event: stdout\r\ndata: {"type":"stdout","data":"${Buffer.from("é").toString("base64")}"}\r\n\r\n`;
  await using server = await fake((request, response) => {
    if (request.method === "GET") return json(response, 200, record);
    response.writeHead(200, { "Content-Type": request.headers["user-agent"]?.startsWith("html") ? "text/html" : "text/event-stream" });
    let text = "";
    request.on("data", (d) => (text += d));
    request.on("end", () => {
      const cmd = JSON.parse(text).cmd as string;
      response.write(": hello\n\n" + start + out.slice(0, 40));
      setTimeout(() => {
        response.write(out.slice(40));
        if (cmd === "cut") response.end();
        if (cmd === "reset") setTimeout(() => response.socket!.destroy(), 100);
        if (cmd === "error") response.end('event: error\ndata: {"type":"error","error":{"code":"sandbox.died","message":"m"}}\n\n');
        if (cmd === "junk") response.end("data: {]\n\n");
        if (cmd === "odd") response.end('data: {"type":"exit"}\n\n');
        if (cmd === "well") response.end('data: {"type":"exit","result":{"stdout":"","stderr":"","exit_code":0,"duration_ms":1}}\n\n');
      }, 20);
    });
  });
  const sandbox = await server.client().sandboxes.get("x");
  const wanted: [string, string, RegExp][] = [
    ["cut", "client.server_unreachable", /before the command ended/],
    ["reset", "client.server_unreachable", /ended before/],
    ["error", "sandbox.died", /m/],
    ["junk", "client.not_a_pandastack_server", /not what this version/],
    ["odd", "client.not_a_pandastack_server", /not what this version/],
  ];
  for (const [cmd, code, message] of wanted) {
    const stream = sandbox.execStream(cmd);
    assert.deepEqual((await stream.next()).value?.text, "é", cmd);
    assert.equal(stream.pid, 7);
    const e = await failure(stream.next());
    assert.equal(e.code, code, cmd);
    assert.match(e.message, message, cmd);
  }
  const well = sandbox.execStream("well");
  assert.equal((await well.wait()).stdout, "é");
  const html = await server.client({ userAgent: "html" }).sandboxes.get("x");
  assert.equal((await failure(html.execStream("well").wait())).code, "client.not_a_pandastack_server");

  // A stream that is left while somebody waits for its next piece ends there.
  const hung = sandbox.execStream("hang");
  await hung.next();
  const next = hung.next();
  await hung.return();
  assert.equal((await next).done, true);

  // A signal that only the stream holds works also when memory is collected.
  setFlagsFromString("--expose-gc");
  const collected = setInterval(runInNewContext("gc"), 20);
  const began = Date.now();
  assert.ok((await failure(sandbox.execStream("hang", { signal: AbortSignal.timeout(200) }).wait())).name === "TimeoutError");
  clearInterval(collected);
  assert.ok(Date.now() - began < 30_000);
});

test("a background command says why it did not start", async () => {
  await using server = await fake((request, response) => {
    if (request.url!.endsWith("/ws")) return json(response, 404, { error: { code: "sandbox.not_found", message: "gone" } });
    json(response, 200, record);
  });
  const sandbox = await server.client().sandboxes.get("x");
  const e = await failure(sandbox.runBackground("a"));
  assert.equal(e.code, "client.server_unreachable");
  assert.match(e.message, /ended before the answer/);
  assert.ok(!(e instanceof BadRequestError));
});

/** A frame of a server that closes a WebSocket. */
function closing(code: number, reason = ""): Buffer {
  return Buffer.concat([Buffer.from([0x88, 2 + reason.length, code >> 8, code & 255]), Buffer.from(reason)]);
}

test("a WebSocket that is closed says why", async () => {
  const ends: Record<string, [frames: Buffer, code: string | undefined, message: RegExp]> = {
    well: [closing(1000), undefined, /^$/],
    bare: [Buffer.from([0x88, 0]), undefined, /^$/],
    died: [closing(1008, "sandbox.died: the language server ended"), "sandbox.died", /^the language server ended$/],
    odd: [closing(1011, "what is this: x"), "client.server_unreachable", /before the language server ended/],
    cut: [Buffer.alloc(0), "client.server_unreachable", /before the language server ended/],
  };
  await using server = await fake((_, response) => json(response, 200, record), (path) => ends[path.split("/").pop()!]![0]);
  for (const webSocket of [undefined, WebSocket]) {
    const sandbox = await server.client({ webSocket }).sandboxes.get("x");
    for (const [name, [, code, message]] of Object.entries(ends)) {
      const connection = await sandbox.lsp(name);
      const read = (async () => { for await (const _ of connection); })();
      if (code === undefined) {
        await read;
        continue;
      }
      const e = await failure(read);
      assert.equal(e.code, code, name);
      assert.match(e.message, message, name);
      assert.doesNotMatch(e.hint, /command|logs/, name);
    }
  }
});

test("a command and a terminal end with why they were closed", async () => {
  await using server = await fake((_, response) => json(response, 200, record), () => closing(1008, "sandbox.died: gone"));
  const sandbox = await server.client().sandboxes.get("x");
  assert.equal((await failure(sandbox.runBackground("a"))).code, "sandbox.died");
  assert.equal((await failure((await sandbox.pty()).wait())).code, "sandbox.died");
});

const info = { name: "a", path: "/a", type: "file", size: 1, mode: "-rw-r--r--", owner: "user", group: "user", modified: record.created_at };

/** Pieces that come one after another, each after so long. */
async function* slowly(count: number, ms: number): AsyncGenerator<Uint8Array, void, undefined> {
  for (let i = 0; i < count; i++) {
    await new Promise((resolve) => setTimeout(resolve, ms));
    yield new Uint8Array(1000).fill(i);
  }
}

test("what is sent may take longer than the answer", async () => {
  const sizes: number[] = [];
  await using server = await fake((request, response) => {
    if (request.method === "GET") return json(response, 200, record);
    let size = 0;
    request.on("data", (d: Buffer) => (size += d.length));
    request.on("end", () => {
      sizes.push(size);
      if (request.url!.includes("/archive")) json(response, 200, { files: 1, bytes: 1, count: 1, size: 1 });
      else json(response, 200, info);
    });
  });
  const sandbox = await server.client().sandboxes.get("x");
  const patient = { timeoutMs: 2000 };
  await Promise.all([
    sandbox.filesystem.write("a", slowly(6, 600), patient),
    sandbox.filesystem.upload(slowly(2, 3000), "a", patient),
    sandbox.filesystem.append("a", ReadableStream.from(slowly(6, 600)) as ReadableStream<Uint8Array>, patient),
    sandbox.processes.sendStdin(7, slowly(6, 600), patient),
  ]);
  assert.deepEqual(sizes.sort((a, b) => a - b), [2000, 6000, 6000, 6000]);

  // A source that fails is what went wrong, whoever carries it.
  const broken = new Error("the disk is broken");
  async function* breaks(): AsyncGenerator<Uint8Array, void, undefined> {
    yield* slowly(1, 1);
    throw broken;
  }
  assert.equal(await failure(sandbox.filesystem.write("a", breaks())), broken);
  assert.equal(await failure(sandbox.processes.sendStdin(7, breaks())), broken);
});

test("a server that stops taking is not waited for, nor its source kept", async () => {
  await using server = await fake((request, response) => {
    if (request.method === "GET") json(response, 200, record);
    else request.pause();
  });
  const sandbox = await server.client().sandboxes.get("x");
  for (const send of [(d: Data) => sandbox.filesystem.write("a", d, { timeoutMs: 1000 }), (d: Data) => sandbox.processes.sendStdin(7, d, { timeoutMs: 1000 })]) {
    let ended = false;
    async function* endless(): AsyncGenerator<Uint8Array, void, undefined> {
      try {
        for (;;) yield new Uint8Array(1 << 20);
      } finally {
        ended = true;
      }
    }
    assert.ok((await failure(send(endless()))) instanceof TimeoutError);
    await until(async () => ended);
  }
});

test("input goes in every form, and not by a fetch that gives up", async () => {
  const bodies: string[] = [];
  await using server = await fake((request, response) => {
    if (request.method === "GET") return json(response, 200, record);
    if (request.url!.includes("/gone/")) return json(response, 404, { error: { code: "process.not_found", message: "m" } });
    let text = "";
    request.on("data", (d) => (text += d));
    request.on("end", () => {
      bodies.push(text);
      response.writeHead(204).end();
    });
  });
  const sandbox = await server.client().sandboxes.get("x");
  const saved = globalThis.fetch;
  globalThis.fetch = () => Promise.reject(new Error("not by this one"));
  try {
    await sandbox.processes.sendStdin(7, "text");
    await sandbox.processes.sendStdin(7, "", { close: true });
    await sandbox.processes.sendStdin(7, new TextEncoder().encode("bytes"));
    await sandbox.processes.sendStdin(7, new Blob(["blob"]));
    await sandbox.processes.sendStdin(7, new Blob(["str", "eam"]).stream());
    // An answer that does not wait for the input ends the call, and the input.
    let ended = false;
    async function* hangs(): AsyncGenerator<Uint8Array, void, undefined> {
      try {
        for (;;) yield* slowly(1, 50);
      } finally {
        ended = true;
      }
    }
    assert.equal((await failure(sandbox.processes.sendStdin("gone", hangs()))).code, "process.not_found");
    await until(async () => ended);
  } finally {
    globalThis.fetch = saved;
  }
  assert.deepEqual(bodies, ["text", "", "bytes", "blob", "stream"]);
});

test("an answer waits for its reader", async () => {
  await using server = await fake((request, response) => {
    if (request.url === "/v1/sandboxes/x") return json(response, 200, record);
    const watch = request.url!.includes("/watch");
    response.writeHead(200, { "Content-Type": watch ? "text/event-stream" : "application/octet-stream" });
    response.end(watch ? 'data: {"type":"create","path":"/a"}\n\n' : "content");
  });
  const { filesystem } = await server.client().sandboxes.get("x");
  const watch = await filesystem.watch("a", { timeoutMs: 2000 });
  const content = await filesystem.read("a", { format: "stream", timeoutMs: 2000 });
  await new Promise((resolve) => setTimeout(resolve, 3000));
  assert.equal((await watch.next()).value?.path, "/a");
  assert.equal(await new Response(content).text(), "content");
});

test("a download with nowhere to go is dropped", async () => {
  let open = 0;
  await using server = await fake((request, response) => {
    if (request.url === "/v1/sandboxes/x") return json(response, 200, record);
    open++;
    response.on("close", () => open--);
    response.writeHead(200, { "Content-Type": request.url!.includes("/archive") ? "application/gzip" : "application/octet-stream" });
    response.write("the first of many");
  });
  const sandbox = await server.client().sandboxes.get("x");
  const locked = new WritableStream<Uint8Array>();
  locked.getWriter();
  assert.equal((await failure(sandbox.filesystem.download("a", "/nowhere/at/all"))).code, "ENOENT");
  assert.equal((await failure(sandbox.filesystem.downloadArchive("a", "/nowhere/at/all"))).code, "ENOENT");
  assert.ok((await failure(sandbox.filesystem.download("a", locked))) instanceof TypeError);
  await until(async () => open === 0);
});

test("a page is not the content of a file", async () => {
  await using server = await fake((request, response) => {
    if (request.url === "/v1/sandboxes/x") return json(response, 200, record);
    response.writeHead(200, { "Content-Type": "text/html" });
    response.end("<html>sign in");
  });
  const { filesystem } = await server.client().sandboxes.get("x");
  const target = join(tmpdir(), "pandastack-page-" + process.pid);
  for (const call of [
    () => filesystem.read("a"),
    () => filesystem.read("a", { format: "bytes", offset: 1 }),
    () => filesystem.read("a", { format: "stream" }),
    () => filesystem.download("a", target),
    () => filesystem.downloadArchive("a", target),
  ]) {
    assert.equal((await failure(call())).code, "client.not_a_pandastack_server");
  }
  assert.ok(!existsSync(target));
});
