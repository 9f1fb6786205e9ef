/**
 * A WebSocket client (RFC 6455) over Node's own HTTP client: text and binary
 * messages, fragments, pings, and closing; no extensions. It shows the server's
 * answer when it refuses, and stops reading when it is told to.
 */

import type { Channel, Listener } from "./socket.js";
import { nodeModule, type NodeSocket } from "./platform.js";
import { collect } from "./patient.js";
import { SILENCE_MS, closeError } from "./transport.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const MESSAGE_LIMIT = 16 << 20;
const REFUSAL_LIMIT = 1 << 20;
const CLOSE_WAIT_MS = 2000;

const CONTINUATION = 0;
const TEXT = 1;
const BINARY = 2;
const CLOSE = 8;
const PING = 9;
const PONG = 10;

/** Opens a connection, or gives the answer of a server that refuses one. */
export function connectNode(
  url: string,
  headers: Record<string, string>,
  listener: Listener,
  signal: AbortSignal,
): Promise<Channel | Response> {
  const http = nodeModule(url.startsWith("https:") ? "node:https" : "node:http")!;
  const crypto = nodeModule("node:crypto")!;
  const key = crypto.randomBytes(16).toString("base64");
  const accept = crypto.createHash("sha1").update(key + GUID).digest("base64");
  return new Promise((resolve, reject) => {
    const handshake = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": key };
    // A connection of its own: one that was kept from before may just be closing.
    const request = http.request(url, { method: "GET", headers: { ...headers, ...handshake }, agent: false });
    const stop = () => request.destroy(new Error("the connection was not made in time"));
    signal.addEventListener("abort", stop, { once: true });
    request.on("error", reject);
    let answered = false;
    request.on("close", () => {
      if (!answered) reject(new Error("the connection ended before the answer did"));
    });
    request.on("response", (answer) => {
      answered = true;
      collect(answer, REFUSAL_LIMIT).then(resolve, reject);
    });
    request.on("upgrade", (answer, socket, head) => {
      answered = true;
      signal.removeEventListener("abort", stop);
      if (answer.headers["sec-websocket-accept"] !== accept) {
        socket.destroy();
        reject(new Error("the server does not speak WebSocket"));
        return;
      }
      resolve(new NodeChannel(socket, head, listener, Number(answer.headers["x-process-id"]) || undefined));
    });
    request.end();
  });
}

class NodeChannel implements Channel {
  readonly pid: number | undefined;
  readonly #socket: NodeSocket;
  readonly #listener: Listener;
  readonly #decoder = new TextDecoder();
  #unread: Uint8Array;
  #fragments: Uint8Array[] = [];
  #fragmentsSize = 0;
  #binary = false;
  #ended = false;
  #paused = false;
  /** What the server said when it closed the connection. */
  #said: { cause: Error | undefined } | undefined;

  constructor(socket: NodeSocket, head: Uint8Array, listener: Listener, pid: number | undefined) {
    this.pid = pid;
    this.#socket = socket;
    this.#listener = listener;
    this.#unread = new Uint8Array(0);
    socket.setNoDelay(true);
    // The server pings every 15 s.
    socket.setTimeout(SILENCE_MS, () => {
      if (!this.#paused) this.#end(new Error("the server has not been heard of"));
    });
    socket.on("data", (data: Uint8Array) => this.#receive(data));
    socket.on("error", (e: unknown) => this.#end(e));
    socket.on("close", () => this.#end(new Error("the connection ended and nobody had closed it")));
    // After whoever waits for the connection has it.
    if (head.length > 0) queueMicrotask(() => this.#receive(head));
    socket.resume();
  }

  send(data: string | Uint8Array): Promise<void> {
    const text = typeof data === "string";
    return this.#write(text ? TEXT : BINARY, text ? new TextEncoder().encode(data) : data);
  }

  pause(): void {
    this.#paused = true;
    this.#socket.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#socket.resume();
  }

  close(): void {
    if (this.#ended) return;
    const gone = () => this.#end();
    this.#write(CLOSE, new Uint8Array([3, 232])).then(() => this.#socket.end(), gone);
    this.resume();
    // The other side may take its time to agree; nobody waits for it.
    const timer: unknown = setTimeout(gone, CLOSE_WAIT_MS);
    (timer as { unref?(): void }).unref?.();
  }

  #end(cause?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#socket.destroy();
    this.#listener.closed(this.#said ? this.#said.cause : cause);
  }

  #write(opcode: number, payload: Uint8Array): Promise<void> {
    if (this.#ended) return Promise.reject(new Error("the connection is closed"));
    return new Promise((resolve, reject) => {
      this.#socket.write(frame(opcode, payload), (error) => (error ? reject(error) : resolve()));
    });
  }

  #receive(data: Uint8Array): void {
    this.#unread = this.#unread.length === 0 ? data : joined([this.#unread, data], this.#unread.length + data.length);
    try {
      while (!this.#ended && this.#readFrame());
    } catch (e) {
      this.#end(e);
    }
  }

  /** Takes one frame of what was received; false if there is no whole one. */
  #readFrame(): boolean {
    const data = this.#unread;
    if (data.length < 2) return false;
    const [first, second] = [data[0]!, data[1]!];
    if (first & 0x70 || second & 0x80) throw new Error("the server sent a frame that is not one");
    let [size, at] = [second & 0x7f, 2];
    const view = new DataView(data.buffer, data.byteOffset, data.length);
    if (size >= 126) {
      at = size === 126 ? 4 : 10;
      if (data.length < at) return false;
      size = at === 4 ? view.getUint16(2) : Number(view.getBigUint64(2));
    }
    if (size + this.#fragmentsSize > MESSAGE_LIMIT) throw new Error("the server sent a message that is too long");
    if (data.length < at + size) return false;
    this.#unread = data.subarray(at + size);
    this.#handle(first & 15, (first & 0x80) !== 0, data.subarray(at, at + size));
    return true;
  }

  #handle(opcode: number, final: boolean, payload: Uint8Array): void {
    switch (opcode) {
      case PING:
        this.#write(PONG, payload.slice()).catch((e: unknown) => this.#end(e));
        return;
      case PONG:
        return;
      case CLOSE:
        this.#said = { cause: reasonOf(payload) };
        this.#write(CLOSE, payload.slice(0, 2)).then(() => this.#end(), () => this.#end());
        return;
      case CONTINUATION:
      case TEXT:
      case BINARY:
        if (opcode !== CONTINUATION) this.#binary = opcode === BINARY;
        this.#fragments.push(payload.slice());
        this.#fragmentsSize += payload.length;
        if (final) this.#deliver();
        return;
    }
    throw new Error("the server sent a frame that is not known");
  }

  #deliver(): void {
    const message = joined(this.#fragments, this.#fragmentsSize);
    this.#fragments = [];
    this.#fragmentsSize = 0;
    this.#listener.message(this.#binary ? message : this.#decoder.decode(message));
  }
}

/** What the last frame of a server says. One without a code is as good as 1005. */
function reasonOf(payload: Uint8Array): Error | undefined {
  if (payload.length < 2) return undefined;
  return closeError(payload[0]! * 256 + payload[1]!, new TextDecoder().decode(payload.subarray(2)));
}

/** A frame from a client, which is always masked. */
function frame(opcode: number, payload: Uint8Array): Uint8Array {
  const size = payload.length;
  const head = size < 126 ? 2 : size < 1 << 16 ? 4 : 10;
  const out = new Uint8Array(head + 4 + size);
  const view = new DataView(out.buffer);
  out[0] = 0x80 | opcode;
  out[1] = 0x80 | (head === 2 ? size : head === 4 ? 126 : 127);
  if (head === 4) view.setUint16(2, size);
  if (head === 10) view.setBigUint64(2, BigInt(size));
  const mask = nodeModule("node:crypto")!.randomBytes(4);
  out.set(mask, head);
  for (let i = 0; i < size; i++) out[head + 4 + i] = payload[i]! ^ mask[i & 3]!;
  return out;
}

function joined(parts: Uint8Array[], size: number): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const out = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
