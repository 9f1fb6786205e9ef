// What sandboxes may reach, and how they are reached: previews, SSH, web pages.

import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { ConflictError, NotFoundError, type Sandbox } from "@pandastack/sdk";
import { api, client, failure, key, origin, until } from "./server.js";

let sandbox: Sandbox;
before(async () => {
  sandbox = await client().sandboxes.create({ ttlSeconds: 900, network: { internet: false, allow: ["192.0.2.1:443"] } });
});
after(async () => {
  await sandbox?.kill();
});

/** Opens an address of a preview, whose name need not resolve here. */
function open(address: string, headers: Record<string, string> = {}): Promise<{ status: number; body: string }> {
  const url = new URL(address);
  return new Promise((resolve, reject) => {
    const options = { headers: { ...headers, host: url.host }, path: url.pathname + url.search };
    const asked = request(api, options, (answer) => {
      let body = "";
      answer.on("data", (data) => (body += data));
      answer.on("end", () => resolve({ status: answer.statusCode!, body }));
    });
    asked.on("error", reject);
    asked.end();
  });
}

test("rules and networks", async () => {
  const { networks } = client();
  const name = `ts-${process.pid}`;
  assert.deepEqual((await sandbox.network.get()).allow, ["192.0.2.1:443"]);
  const network = await networks.create(name);
  try {
    assert.deepEqual([network.name, network.members, network.createdAt instanceof Date], [name, [], true]);
    assert.ok((await failure(networks.create(name))) instanceof ConflictError);
    await sandbox.network.set({ internet: true, deny: ["192.0.2.0/24"], join: [name], name: "web" });
    const { members } = await networks.get(name);
    assert.deepEqual(members.map((m) => [m.sandboxId, m.name]), [[sandbox.id, "web"]]);
    assert.ok((await networks.list()).some((n) => n.name === name));
    assert.ok((await failure(networks.delete(name))) instanceof ConflictError, "it has a member");
    await sandbox.exec("timeout 5 python3 -c \"import socket; socket.create_connection(('192.0.2.1', 443), 2)\"");
    await until(async () => (await sandbox.network.log({ limit: 100 })).connections.some((c) => c.address === "192.0.2.1" && c.time instanceof Date));
  } finally {
    await sandbox.network.set({});
    await networks.delete(name);
  }
  assert.ok((await failure(networks.get(name))) instanceof NotFoundError);
});

test("previews", async () => {
  await sandbox.filesystem.write("/tmp/www/index.html", "previewed");
  await using server = await sandbox.runBackground("exec python3 -m http.server 8000 --directory /tmp/www");
  await until(async () => (await sandbox.ports.list()).some((p) => p.port === 8000 && p.listening));
  const url = await sandbox.previewUrl(8000);
  assert.match(url, new RegExp(`8000-${sandbox.id}`));
  assert.equal((await open(url)).body, "previewed");
  assert.deepEqual(await sandbox.previewUrls(), { 8000: url });
  assert.deepEqual(Object.keys(await sandbox.previewUrls([8000, 9000])), ["8000", "9000"]);

  assert.equal((await sandbox.ports.expose(8000, "private")).visibility, "private");
  assert.notEqual((await open(url)).status, 200);
  const { token, expiresAt } = await sandbox.previewToken(8000, { ttlSeconds: 60 });
  assert.ok(expiresAt > new Date());
  assert.equal((await open(url, { "X-PandaStack-Preview-Token": token })).body, "previewed");
  assert.match(await sandbox.signedPreviewUrl(8000, 60), /[?&]\w+=/);
  await sandbox.ports.close(8000);
  assert.notEqual((await open(url, { "X-PandaStack-Preview-Token": token })).status, 200);
  assert.match((await failure(sandbox.previewUrl(70_000))).message, /at most 65535/);
  assert.ok(server.pid);
});

test("SSH keys", async () => {
  const { sshKeys } = client();
  const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
  const added = await sshKeys.add(publicKey, { name: "laptop" });
  assert.deepEqual([added.name, added.publicKey, added.createdAt instanceof Date], ["laptop", publicKey, true]);
  assert.ok((await sshKeys.list()).some((k) => k.fingerprint === added.fingerprint));
  await sshKeys.delete(added.fingerprint);
  assert.ok((await failure(sshKeys.delete(added.fingerprint))) instanceof NotFoundError);
  const info = await sandbox.ssh().catch((e: unknown) => e);
  assert.ok((info as { user?: string }).user === sandbox.id || (info as { code?: string }).code === "request.unsupported");
});

test("web pages of listed origins", async () => {
  const ask = (from: string) =>
    fetch(api + "/v1/me", {
      method: "OPTIONS",
      headers: { origin: from, "access-control-request-method": "POST", "access-control-request-headers": "authorization,idempotency-key" },
    });
  const listed = await ask(origin);
  assert.deepEqual([listed.status, listed.headers.get("Access-Control-Allow-Origin")], [204, origin]);
  assert.match(listed.headers.get("Access-Control-Allow-Headers")!, /Idempotency-Key/);
  assert.equal((await ask("https://example.com")).headers.get("Access-Control-Allow-Origin"), null);
  const answer = await fetch(api + "/v1/me", { headers: { origin, authorization: `Bearer ${key}` } });
  assert.match(answer.headers.get("Access-Control-Expose-Headers")!, /X-Request-Id/);
});
