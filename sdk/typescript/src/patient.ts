/**
 * Requests whose answer may be hours in coming, such as that of a command
 * without a time limit, or of input for one that does not read it. The fetch of
 * Node gives up after five minutes and has no setting for it, so Node's own HTTP
 * client makes them there.
 */

import { isNode, hasNode, nodeModule, type NodeAnswer, type NodeHTTP, type NodeRequest } from "./platform.js";

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** A buffered exec has at most two streams of 16 MiB, each byte escaped to six. */
const ANSWER_LIMIT = 256 << 20;
/** Idle connections are closed before a server or a proxy on the way does. */
const IDLE_MS = 4000;

/** Undefined where only the ordinary fetch will do. */
export function patientFetch(): Fetch | undefined {
  if (isNode) return proxied() ? undefined : nodeFetch;
  // Bun waits for five minutes unless told otherwise; others ignore the option.
  return hasNode ? (url, init) => globalThis.fetch(url, { ...init, timeout: false } as RequestInit) : undefined;
}

/** Whether the program has told fetch to take another way, such as a proxy. */
function proxied(): boolean {
  const dispatcher = (globalThis as Record<symbol, unknown>)[Symbol.for("undici.globalDispatcher.1")];
  return typeof dispatcher === "object" && dispatcher !== null && dispatcher.constructor.name !== "Agent";
}

const agents = new Map<NodeHTTP, object>();

function agentOf(http: NodeHTTP): object {
  let agent = agents.get(http);
  if (!agent) agents.set(http, (agent = new http.Agent({ keepAlive: true, timeout: IDLE_MS })));
  return agent;
}

function nodeFetch(url: string, init: RequestInit): Promise<Response> {
  const http = nodeModule(url.startsWith("https:") ? "node:https" : "node:http");
  if (!http) return globalThis.fetch(url, init);
  return new Promise((resolve, reject) => {
    const body = bodyOf(init.body);
    const headers = { ...(init.headers as Record<string, string>), ...(body instanceof Uint8Array ? { "content-length": String(body.length) } : {}) };
    const request = http.request(url, { method: init.method, headers, agent: agentOf(http), signal: init.signal });
    request.on("error", reject);
    request.on("response", (answer) => {
      collect(answer).then(
        (response) => {
          // The server has said all without waiting for the rest of the body.
          if (!request.writableEnded) request.destroy();
          resolve(response);
        },
        (e: unknown) => {
          request.destroy();
          reject(e);
        },
      );
    });
    if (body instanceof Uint8Array) request.end(body);
    else sendStream(request, body).catch((e: Error) => request.destroy(e));
  });
}

function bodyOf(body: RequestInit["body"]): Uint8Array | ReadableStream<Uint8Array> {
  if (body instanceof Uint8Array) return body;
  if (body instanceof Blob) return body.stream();
  return body instanceof ReadableStream ? body : new TextEncoder().encode((body as string | undefined) ?? "");
}

/** Sends a body as fast as the server takes it, until it or the request ends. */
async function sendStream(request: NodeRequest, body: ReadableStream<Uint8Array>): Promise<void> {
  const reader = body.getReader();
  let gone = false;
  let taken = (): void => undefined;
  request.on("close", () => {
    gone = true;
    taken();
    reader.cancel().catch(() => undefined); // nobody wants the rest
  });
  for (;;) {
    const { done, value } = await reader.read();
    if (gone) return;
    if (done) break;
    await new Promise<void>((resolve, reject) => {
      taken = resolve;
      request.write(value, (error) => (error ? reject(error) : resolve()));
    });
  }
  request.end();
}

/** Reads an answer of Node's client. */
export async function collect(answer: NodeAnswer, limit = ANSWER_LIMIT): Promise<Response> {
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for await (const chunk of answer) {
    chunks.push(chunk as Uint8Array<ArrayBuffer>);
    if ((size += chunk.length) > limit) throw new Error("the answer is too long");
  }
  const headers = new Headers();
  for (const [name, value] of Object.entries(answer.headers)) if (value !== undefined) headers.set(name, String(value));
  return new Response(size > 0 ? new Blob(chunks) : null, { status: answer.statusCode, headers });
}
