import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { inspect } from "node:util";
import * as sdk from "@pandastack/sdk";
import { failure, fake, json, repository } from "./server.js";

test("what is generated is current", () => {
  const { status, stderr } = spawnSync(process.execPath, ["tools/generate.mjs", "--check"], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
});

test("the version is the package's", () => {
  assert.equal(sdk.VERSION, JSON.parse(readFileSync("package.json", "utf8")).version);
});

test("every code of the server's catalogue has its class", async () => {
  const rows = [...readFileSync(repository + "/docs/errors.md", "utf8").matchAll(/^\| `([a-z_.]+)` \| (\d{3}) \| (yes|no) \| ([a-z_]+) \|/gm)];
  assert.ok(rows.length > 40);
  await using server = await fake((request, response) => {
    const [, code, status] = rows[Number(request.url!.split("/").pop())]!;
    json(response, Number(status), { error: { code, message: "m", hint: "h", request_id: "req_1", details: { a: 1 } } });
  });
  const wanted: Record<string, string> = {
    "auth.token_revoked": "AuthError",
    "sandbox.not_found": "NotFoundError",
    "file.is_directory": "BadRequestError",
    "file.permission_denied": "BadRequestError",
    "request.unknown_field": "BadRequestError",
    "sandbox.invalid_state": "ConflictError",
    "snapshot.exists": "ConflictError",
    "quota.vcpu_exceeded": "QuotaError",
    "rate_limit.api": "QuotaError",
    "capacity.unavailable": "CapacityError",
    "host.unreachable": "CapacityError",
    "file.no_space": "CapacityError",
    "request.timeout": "TimeoutError",
    internal: "ServerError",
    "snapshot.corrupt": "ServerError",
    "client.server_unreachable": "NetworkError",
  };
  const client = server.client({ retries: 0 });
  for (const [i, row] of rows.entries()) {
    const [code, status, retry] = [row[1]!, Number(row[2]), row[3] === "yes"];
    const e = await failure(client.templates.get(String(i)));
    assert.ok(e instanceof sdk.PandaStackError, code);
    assert.deepEqual([e.code, e.message, e.requestId, e.statusCode, e.details["a"]], [code, "m", "req_1", status, 1]);
    assert.equal(e.retryable, retry, code);
    assert.notEqual(e.constructor, sdk.PandaStackError, `${code} has a class of its own`);
    assert.equal(e.name, e.constructor.name);
    const family = row[4]!.replace(/(^|_)([a-z])/g, (_, __, c: string) => c.toUpperCase()).replace("Connection", "Network");
    assert.equal(e.name, family + "Error", code);
    assert.equal((sdk as Record<string, unknown>)[e.name], e.constructor, `${e.name} is exported`);
    if (Object.hasOwn(wanted, code)) assert.equal(e.name, wanted[code], code);
    delete wanted[code];
  }
  assert.deepEqual(wanted, {}, "codes that the catalogue no longer has");
});

test("an unknown code goes by its status", async () => {
  await using server = await fake((request, response) => {
    json(response, Number(request.url!.split("/").pop()), { error: { code: "new.thing", message: "m" } });
  });
  const named: [number, string][] = [[400, "BadRequestError"], [401, "AuthError"], [404, "NotFoundError"], [409, "ConflictError"], [429, "QuotaError"], [500, "ServerError"], [504, "TimeoutError"], [507, "CapacityError"]];
  for (const [status, name] of named) {
    assert.equal((await failure(server.client().templates.get(String(status)))).name, name);
  }
});

test("an error prints what helps, and no key", async () => {
  await using server = await fake((_, response) => {
    json(response, 404, { error: { code: "sandbox.not_found", message: "there is no sandbox x", hint: "list them" } }, { "X-Request-Id": "req_9" });
  });
  const client = server.client({ apiKey: "pds_secret" });
  const e = await failure(client.sandboxes.get("x"));
  assert.equal(e.requestId, "req_9");
  assert.equal(e.response.status, 404);
  const text = inspect([e, client], { depth: 9, showHidden: false });
  assert.match(text, /NotFoundError: there is no sandbox x/);
  assert.match(text, /list them/);
  assert.doesNotMatch(text, /pds_secret/);
});
