// Measures what the package adds to a request of fetch, for exec. The aim is 0.3 ms
// at the median. With its own server it fails from 3 ms on: that is never the
// machine's other work, but something in the package that waits.
//
//   node test/overhead.mjs                                        # a server that answers at once
//   TEST_API=http://... TEST_KEY=pds_... node test/overhead.mjs   # a real one

import { createServer } from "node:http";
import { PandaStack } from "@pandastack/sdk";

const rounds = Number(process.env.ROUNDS ?? 300);
const record = { id: "x", template: "base", status: "running", driver: "d", host: "h", cpu: 1, memory_mb: 1, disk_mb: 1, metadata: {}, persistent: false, ttl_seconds: 1, created_at: "2026-01-01T00:00:00Z" };
const result = { stdout: "hello\n", stderr: "", exit_code: 0, duration_ms: 1, pid: 7 };

const stand = createServer((request, response) => {
  const body = request.url.endsWith("/exec") ? result : record;
  request.resume().on("end", () => {
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(JSON.stringify(body));
  });
});
const LIMIT_MS = 3;
let { TEST_API: api, TEST_KEY: key = "pds_x" } = process.env;
const own = !api;
if (own) {
  await new Promise((resolve) => stand.listen(0, "127.0.0.1", resolve));
  api = `http://127.0.0.1:${stand.address().port}`;
}

const sandbox = await new PandaStack({ apiUrl: api, apiKey: key }).sandboxes.create({ ttlSeconds: 300 });
const url = `${api}/v1/sandboxes/${sandbox.id}/exec`;
const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
const ways = {
  "fetch": async () => (await fetch(url, { method: "POST", headers, body: '{"cmd":["true"],"timeout_seconds":30}' })).json(),
  "exec(cmd, 30)": () => sandbox.exec(["true"], 30),
  "exec(cmd)": () => sandbox.exec(["true"]),
};
const times = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
try {
  // In turn, so that what else the machine does falls on all alike.
  for (let i = -50; i < rounds; i++) {
    for (const [name, call] of Object.entries(ways)) {
      const start = performance.now();
      await call();
      if (i >= 0) times[name].push(performance.now() - start);
    }
  }
} finally {
  await sandbox.kill();
  stand.closeAllConnections();
  stand.close();
}
const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
const base = median(times.fetch);
for (const name of Object.keys(ways)) {
  const p50 = median(times[name]);
  console.log(`overhead: ${name.padEnd(14)} p50 ${p50.toFixed(3)} ms, ${(p50 - base >= 0 ? "+" : "") + (p50 - base).toFixed(3)} ms`);
}
const added = median(times["exec(cmd, 30)"]) - base;
if (own && added > LIMIT_MS) {
  console.error(`overhead: exec(cmd, 30) adds ${added.toFixed(3)} ms to a request, which is more than ${LIMIT_MS} ms`);
  process.exitCode = 1;
}
