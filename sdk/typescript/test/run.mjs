// Starts a real server, runs the tests against it, and stops it.
//
//   node test/run.mjs [file ...]
//
// PANDASTACK_BIN is the server (default bin/pandastack of the checkout) and
// IMAGE_CACHE where its images are. Tests find it in TEST_API and
// TEST_KEY; it lets in web pages of TEST_ORIGIN.

import { spawn } from "node:child_process";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const START_LIMIT = 300_000; // the first start may bake snapshots
const root = fileURLToPath(new URL("..", import.meta.url));
const repository = process.env.PANDASTACK_REPOSITORY ?? join(root, "../..");
const binary = process.env.PANDASTACK_BIN ?? join(repository, "bin/pandastack");
const images = process.env.IMAGE_CACHE ?? "/var/cache/pandastack/images";

const origin = "https://app.example.com"; // of web pages

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function ready(data, server) {
  for (const end = Date.now() + START_LIMIT; Date.now() < end && server.exitCode === null; await sleep(100)) {
    if (!existsSync(join(data, "server.json")) || !existsSync(join(data, "admin.key"))) continue;
    const api = "http://" + JSON.parse(readFileSync(join(data, "server.json"), "utf8")).addr;
    const health = await fetch(api + "/readyz").then((r) => r.json(), () => ({}));
    if (health.status === "ok") return { api, key: readFileSync(join(data, "admin.key"), "utf8").trim() };
  }
  throw new Error("the server did not start:\n" + readFileSync(join(data, "log"), "utf8").slice(-4000));
}

let running; // the tests
function run(command, args, env) {
  running = spawn(command, args, { stdio: "inherit", env, cwd: root });
  return new Promise((resolve) => running.on("exit", (code) => resolve(code ?? 1)));
}

/** Ends the sandboxes that tests left: they go on without the server. */
async function clean({ api, key }) {
  const headers = { authorization: `Bearer ${key}` };
  const { sandboxes = [] } = await fetch(`${api}/v1/sandboxes?limit=1000`, { headers }).then((r) => r.json(), () => ({}));
  for (const { id } of sandboxes) await fetch(`${api}/v1/sandboxes/${id}`, { method: "DELETE", headers }).catch(() => undefined);
}

if (!existsSync(binary)) {
  console.error(`there is no server at ${binary}: run make build, or set PANDASTACK_BIN`);
  process.exit(2);
}
const data = mkdtempSync(join(tmpdir(), "pandastack-sdk-"));
const log = openSync(join(data, "log"), "w");
const server = spawn(binary, ["server", "--data-dir", data, "--listen", "127.0.0.1:0", "--image-cache", images, "--cors-origins", origin], { stdio: ["ignore", log, log] });
const stopped = new Promise((resolve) => server.on("exit", resolve));
// Whoever stops the tests stops what they started.
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (running ?? server).kill("SIGTERM"));
let status = 1;
let started;
try {
  started = await ready(data, server);
  const { api, key } = started;
  // What the machine's user has set is not the tests'.
  const { PANDASTACK_TOKEN, ...env } = process.env;
  Object.assign(env, { TEST_API: api, TEST_KEY: key, TEST_ORIGIN: origin, PANDASTACK_API: api, PANDASTACK_API_KEY: key, HOME: data, PANDASTACK_REPOSITORY: repository });
  // Node 20 has the WebSocket of browsers behind a flag; it is tested too.
  if (typeof WebSocket === "undefined") env.NODE_OPTIONS = `${env.NODE_OPTIONS ?? ""} --experimental-websocket`;
  const named = process.argv.slice(2);
  const files = named.length ? named : readdirSync(join(root, "build")).filter((f) => f.endsWith(".test.js")).map((f) => join("build", f));
  // Tests from elsewhere, such as those of the examples.
  if (process.env.TEST_ALSO) files.push(process.env.TEST_ALSO);
  status = await run(process.execPath, ["--test", "--test-concurrency=2", "--test-reporter=spec", ...files], env);
} finally {
  if (started) await clean(started);
  server.kill("SIGTERM");
  const killer = setTimeout(() => server.kill("SIGKILL"), 60_000);
  await stopped;
  clearTimeout(killer);
  closeSync(log);
  rmSync(data, { recursive: true, force: true });
}
process.exit(status);
