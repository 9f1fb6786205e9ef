// Every operation of the API has a call here that makes its request, or a reason why none is needed.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PandaStack, type Sandbox } from "@pandastack/sdk";
import { json, record, repository } from "./server.js";

type Call = (sandbox: Sandbox, client: PandaStack) => unknown;

const CALLS: Record<string, Call> = {
  health: (_, client) => client.health(),
  ready: (_, client) => client.ready(),
  version: (_, client) => client.version(),
  prometheusMetrics: (_, client) => client.prometheusMetrics(),
  me: (_, client) => client.me(),
  listTokens: (_, client) => client.tokens.list(),
  createToken: (_, client) => client.tokens.create("n"),
  revokeToken: (_, client) => client.tokens.revoke("x"),
  listTemplates: (_, client) => client.templates.list(),
  getTemplate: (_, client) => client.templates.get("x"),
  createSandbox: (_, client) => client.sandboxes.create(),
  listSandboxes: (_, client) => client.sandboxes.list(),
  getSandbox: (_, client) => client.sandboxes.get("x"),
  deleteSandbox: (sandbox) => sandbox.kill(),
  pauseSandbox: (sandbox) => sandbox.pause(),
  resumeSandbox: (sandbox) => sandbox.resume(),
  getLifecycle: (sandbox) => sandbox.lifecycle(),
  setLifecycle: (sandbox) => sandbox.setTtl(60),
  hibernateSandbox: (sandbox) => sandbox.hibernate(),
  wakeSandbox: (sandbox) => sandbox.wake(),
  getMetrics: (sandbox) => sandbox.metrics(),
  getMetricsSeries: (sandbox) => sandbox.metricsSeries({ range: "15m", step: 60 }),
  getLogs: (sandbox) => sandbox.logs(),
  getEvents: (sandbox) => sandbox.events(),
  createSnapshot: (sandbox) => sandbox.snapshot(),
  listSnapshots: (sandbox) => sandbox.snapshots(),
  importSnapshot: (_, client) => client.snapshots.import(new Uint8Array(1)),
  getSnapshot: (_, client) => client.snapshots.get("x"),
  deleteSnapshot: (_, client) => client.snapshots.delete("x"),
  exportSnapshot: (_, client) => client.snapshots.export("x"),
  forkSandbox: (sandbox) => sandbox.fork(),
  forkTree: (sandbox) => sandbox.forkTree(2),
  promoteSandbox: (sandbox) => sandbox.promote(),
  getTree: (sandbox) => sandbox.tree(),
  createCheckpoint: (sandbox) => sandbox.checkpoint(),
  listCheckpoints: (sandbox) => sandbox.checkpoints(),
  deleteCheckpoint: (sandbox) => sandbox.deleteCheckpoint("x"),
  restoreSandbox: (sandbox) => sandbox.restore(),
  exec: (sandbox) => sandbox.exec("true", 1),
  execStream: (sandbox) => sandbox.execStream("true").wait(),
  execWebSocket: (sandbox) => sandbox.runBackground("true"),
  execTerminal: (sandbox) => sandbox.pty(),
  runCode: (sandbox) => sandbox.runCode("1", { timeoutSeconds: 1 }),
  sandboxLanguages: (sandbox) => sandbox.languages(),
  createContext: (sandbox) => sandbox.contexts.create(),
  listContexts: (sandbox) => sandbox.contexts.list(),
  deleteContext: (sandbox) => sandbox.contexts.delete("x"),
  restartContext: (sandbox) => sandbox.contexts.restart("x"),
  interruptContext: (sandbox) => sandbox.contexts.interrupt("x"),
  replLanguages: (_, client) => client.languages(),
  listProcesses: (sandbox) => sandbox.processes.list(),
  attachProcess: (sandbox) => sandbox.processes.attach(1).wait(),
  killProcess: (sandbox) => sandbox.processes.kill(1),
  feedProcess: (sandbox) => sandbox.processes.sendStdin(1, "x"),
  closeStdin: (sandbox) => sandbox.processes.closeStdin(1),
  signalProcess: (sandbox) => sandbox.processes.signal(1, "SIGINT"),
  readFile: (sandbox) => sandbox.filesystem.read("x"),
  writeFile: (sandbox) => sandbox.filesystem.write("x", ""),
  removeFile: (sandbox) => sandbox.filesystem.remove("x"),
  statFile: (sandbox) => sandbox.filesystem.stat("x"),
  listDir: (sandbox) => sandbox.filesystem.list(),
  makeDir: (sandbox) => sandbox.filesystem.mkdir("x"),
  moveFile: (sandbox) => sandbox.filesystem.move("x", "y"),
  appendFile: (sandbox) => sandbox.filesystem.append("x", "y"),
  copyFile: (sandbox) => sandbox.filesystem.copy("x", "y"),
  changeMode: (sandbox) => sandbox.filesystem.chmod("x", 0o755),
  changeOwner: (sandbox) => sandbox.filesystem.chown("x", { owner: "root" }),
  makeLink: (sandbox) => sandbox.filesystem.symlink("x", "y"),
  readLink: (sandbox) => sandbox.filesystem.readlink("x"),
  globFiles: (sandbox) => sandbox.filesystem.glob("*"),
  searchFiles: (sandbox) => sandbox.filesystem.search("x"),
  replaceInFiles: (sandbox) => sandbox.filesystem.replace("x", "y"),
  getArchive: (sandbox) => sandbox.filesystem.downloadArchive("x"),
  putArchive: (sandbox) => sandbox.filesystem.uploadArchive(new Uint8Array(1), "x"),
  watchFiles: (sandbox) => sandbox.filesystem.watch("x"),
  signFile: (sandbox) => sandbox.filesystem.signedUrl("x"),
  listNetworks: (_, client) => client.networks.list(),
  createNetwork: (_, client) => client.networks.create("x"),
  getNetwork: (_, client) => client.networks.get("x"),
  deleteNetwork: (_, client) => client.networks.delete("x"),
  getSandboxNetwork: (sandbox) => sandbox.network.get(),
  setSandboxNetwork: (sandbox) => sandbox.network.set({ internet: false }),
  getNetworkLog: (sandbox) => sandbox.network.log(),
  listPorts: (sandbox) => sandbox.ports.list(),
  exposePort: (sandbox) => sandbox.ports.expose(8000),
  closePort: (sandbox) => sandbox.ports.close(8000),
  previewSandbox: (sandbox) => sandbox.previewUrl(8000),
  signPreview: (sandbox) => sandbox.signedPreviewUrl(8000, 60),
  listSSHKeys: (_, client) => client.sshKeys.list(),
  addSSHKey: (_, client) => client.sshKeys.add("x"),
  deleteSSHKey: (_, client) => client.sshKeys.delete("x"),
  getSSHInfo: (sandbox) => sandbox.ssh(),
  lspLanguages: (_, client) => client.lspLanguages(),
  lspWebSocket: (sandbox) => sandbox.lsp("x"),
  gitClone: (sandbox) => sandbox.git.clone("x"),
  gitStatus: (sandbox) => sandbox.git.status(),
  gitDiff: (sandbox) => sandbox.git.diff(),
  gitAdd: (sandbox) => sandbox.git.add(),
  gitCommit: (sandbox) => sandbox.git.commit("x"),
  gitBranch: (sandbox) => sandbox.git.branches(),
  gitCheckout: (sandbox) => sandbox.git.checkout("x"),
  gitPull: (sandbox) => sandbox.git.pull(),
  gitPush: (sandbox) => sandbox.git.push(),
  gitLog: (sandbox) => sandbox.git.log(),
};

// Why an operation has no call.
const NONE: Record<string, string> = {
  snapshotSandbox: "another path of createSnapshot",
  listSandboxSnapshots: "listSnapshots with the id of the sandbox",
  putDir: "another method of makeDir",
  repl: "another path of runCode",
  runInSession: "another path of runCode",
  createSession: "another path of createContext",
  listSessions: "another path of listContexts",
  deleteSession: "another path of deleteContext",
  readSigned: "for whoever has a signed URL, without this package",
  writeSigned: "for whoever has a signed URL, without this package",
  mcp: "for MCP clients",
  mcpStream: "for MCP clients",
  mcpEnd: "for MCP clients",
  mcpV1: "for MCP clients",
  mcpV1Stream: "for MCP clients",
  mcpV1End: "for MCP clients",
  sandboxMCP: "for MCP clients",
  sandboxMCPStream: "for MCP clients",
  sandboxMCPEnd: "for MCP clients",
};

interface Operation {
  operationId: string;
}

const { paths } = JSON.parse(readFileSync(repository + "/api/openapi.json", "utf8")) as { paths: Record<string, Record<string, Operation>> };
const operations = new Map(
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]): [string, string] => [operationId, `${method.toUpperCase()} ${path}`]),
  ),
);

test("every operation has a call or a reason", () => {
  const holes = [...operations.keys()].filter((id) => !(id in CALLS) && !(id in NONE));
  assert.deepEqual(holes, [], "operations of api/openapi.json that nothing here calls");
  const gone = [...Object.keys(CALLS), ...Object.keys(NONE)].filter((id) => !operations.has(id));
  assert.deepEqual(gone, [], "names that are no operation");
  assert.deepEqual(Object.keys(CALLS).filter((id) => id in NONE), []);
});

test("every call makes the request of its operation", async () => {
  let seen = "";
  const server = createServer((request, response) => {
    const url = new URL(request.url!, "http://x");
    seen ||= `${request.method} ${url.pathname}`;
    request.resume();
    if (url.pathname === "/v1/sandboxes/handle") json(response, 200, { ...record, id: "handle" });
    else json(response, 418, { error: { code: "test.seen", message: "m" } });
  });
  server.on("upgrade", (request, socket) => {
    seen ||= `GET ${new URL(request.url!, "http://x").pathname}`;
    socket.end("HTTP/1.1 418 No\r\nContent-Length: 0\r\n\r\n");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const client = new PandaStack({ apiUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, apiKey: "pds_x", retries: 0 });
    const sandbox = await client.sandboxes.get("handle");
    for (const [id, call] of Object.entries(CALLS)) {
      seen = "";
      await Promise.resolve(call(sandbox, client)).catch(() => undefined); // this server can do nothing
      const [method, path] = operations.get(id)?.split(" ") as [string, string];
      const wanted = new RegExp(`^${method} ${path.replace(/[.]/g, "\\.").replace(/\{\w+\}/g, "[^/]+")}$`);
      assert.match(seen, wanted, id);
    }
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});
