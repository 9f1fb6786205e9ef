// The real server that run.mjs started, and servers that answer as a test wants.

import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { PandaStack, type ClientOptions, type Sandbox } from "@pandastack/sdk";

export const api = process.env["TEST_API"]!;
export const key = process.env["TEST_KEY"]!;
/** Of the web pages that the server lets in. */
export const origin = process.env["TEST_ORIGIN"]!;
export const repository = process.env["PANDASTACK_REPOSITORY"]!;

export function client(more: ClientOptions = {}): PandaStack {
  return new PandaStack({ apiUrl: api, apiKey: key, ...more });
}

/** Runs a test with a sandbox of its own. */
export async function withSandbox(test: (sandbox: Sandbox) => Promise<void>): Promise<void> {
  await using sandbox = await client().sandboxes.create({ ttlSeconds: 600 });
  await test(sandbox);
}

export interface Fake extends AsyncDisposable {
  url: string;
  requests: IncomingMessage[];
  client(more?: ClientOptions): PandaStack;
}

/** Starts a server that answers as the test says. WebSockets get what frames are, if there are any. */
export async function fake(answer: (request: IncomingMessage, response: ServerResponse, n: number) => void, frames?: (path: string) => Buffer): Promise<Fake> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => answer(request, response, requests.push(request)));
  server.on("upgrade", (request, socket) => {
    socket.on("error", () => undefined); // the client may be gone
    if (!frames) {
      socket.destroy();
      return;
    }
    const key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    const head = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Accept: " + createHash("sha1").update(key).digest("base64")];
    const protocol = request.headers["sec-websocket-protocol"]?.split(",")[0];
    if (protocol) head.push("Sec-WebSocket-Protocol: " + protocol);
    socket.write(head.join("\r\n") + "\r\n\r\n");
    socket.resume().end(frames(request.url!));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    requests,
    client: (more = {}) => new PandaStack({ apiUrl: url, apiKey: "pds_test", ...more }),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

export const record = {
  id: "k3v9x0q2m7c1b8n4t6zd",
  template: "base",
  status: "running",
  driver: "gvisor",
  host: "h",
  cpu: 1,
  memory_mb: 512,
  disk_mb: 1024,
  metadata: { some_label: "x" },
  persistent: false,
  ttl_seconds: 60,
  created_at: "2026-01-02T03:04:05.678Z",
};

/** The value that a promise rejects with. */
export async function failure(promise: Promise<unknown>): Promise<any> {
  try {
    await promise;
  } catch (e) {
    return e;
  }
  throw new Error("it did not fail");
}

/** Waits for something to become so. */
export async function until(holds: () => Promise<boolean>): Promise<void> {
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("it did not happen");
}
