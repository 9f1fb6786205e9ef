/**
 * Connections to what runs beside the caller: commands, terminals, language
 * servers.
 *
 * They are WebSockets, because only those carry input too. Node 20 has no
 * stable one, and the others tell neither why a server refused nor let a slow
 * reader slow the sender down; so Node has the small client of nodesocket.ts,
 * and Bun, Deno and browsers have their own. No package is needed for either.
 */

import { connectNode } from "./nodesocket.js";
import { isNode } from "./platform.js";
import { NetworkError } from "./errors.js";
import { Deadline, SLOW_MS, answerError, closeError, noAnswer, transportError, type Request, type Transport } from "./transport.js";

/** An open connection. */
export interface Channel {
  /** Number of the process behind it, where the server said it and this runtime lets it be read. */
  readonly pid?: number | undefined;
  send(data: string | Uint8Array): Promise<void>;
  close(): void;
  /** Lets the server wait with more, where that can be said. */
  pause(): void;
  resume(): void;
}

/**
 * What becomes of a connection. closed is called last, with the cause unless the
 * server ended it as it should; it counts the first time.
 */
export interface Listener {
  message(data: string | Uint8Array): void;
  closed(cause?: unknown): void;
}

/** The subprotocols of the server. */
export type Protocol = "pds-exec" | "pds-pty" | "lsp";

/** Opens a connection. */
export async function connect(transport: Transport, r: Request, protocol: Protocol, listener: Listener): Promise<Channel> {
  const limit = transport.patience({ ...r, atLeastMs: SLOW_MS });
  const deadline = new Deadline(limit, r.signal);
  try {
    r.signal?.throwIfAborted();
    const given = transport.settings.webSocket;
    if (isNode && !given) {
      const opened = await connectNode(transport.url(r), transport.headers(r), listener, deadline.signal);
      if (!(opened instanceof Response)) return opened;
      throw answerError(transport.settings, opened, await opened.text());
    }
    return await connectGlobal(transport, r, protocol, listener, given ?? globalThis.WebSocket, deadline.signal);
  } catch (e) {
    r.signal?.throwIfAborted();
    throw deadline.passed ? noAnswer(transport.settings, limit) : transportError(transport.settings, e);
  } finally {
    deadline.release();
  }
}

/** Opens a connection with the WebSocket of the runtime. The key goes as a subprotocol: there are no headers. */
async function connectGlobal(
  transport: Transport,
  r: Request,
  protocol: Protocol,
  listener: Listener,
  Socket: typeof globalThis.WebSocket | undefined,
  signal: AbortSignal,
): Promise<Channel> {
  if (!Socket) throw new NetworkError("this runtime has no WebSocket", { code: "client.server_unreachable", hint: "Pass one as the client's webSocket." });
  transport.headers(r); // refuses a call without a key
  const socket = new Socket(transport.url(r).replace(/^http/, "ws"), [protocol, "bearer." + transport.settings.key]);
  socket.binaryType = "arraybuffer";
  try {
    await opened(socket, signal);
  } catch (e) {
    socket.close();
    signal.throwIfAborted();
    throw (await refusal(transport, r)) ?? e;
  }
  socket.onmessage = ({ data }) => listener.message(typeof data === "string" ? data : new Uint8Array(data as ArrayBuffer));
  socket.onclose = ({ code, reason }) => listener.closed(closeError(code, reason));
  socket.onerror = (e) => listener.closed((e as { error?: unknown }).error ?? new Error("the WebSocket failed"));
  return {
    send: (data) => {
      if (socket.readyState !== socket.OPEN) return Promise.reject(new Error("the connection is closed"));
      socket.send(data as string | Uint8Array<ArrayBuffer>);
      return drained(socket);
    },
    close: () => socket.close(),
    pause: () => undefined,
    resume: () => undefined,
  };
}

function opened(socket: WebSocket, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = () => reject(new Error("the WebSocket did not open"));
    signal.addEventListener("abort", fail, { once: true });
    socket.onopen = () => {
      signal.removeEventListener("abort", fail);
      resolve();
    };
    socket.onerror = fail;
    socket.onclose = fail;
  });
}

const BUFFERED_LIMIT = 1 << 20;

/** Waits until what was sent has mostly left: a WebSocket says no more than how much has not. */
async function drained(socket: WebSocket): Promise<void> {
  while (socket.bufferedAmount > BUFFERED_LIMIT && socket.readyState === socket.OPEN) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Asks the server in words why it refused: a WebSocket does not tell. */
async function refusal(transport: Transport, r: Request): Promise<unknown> {
  try {
    // The sandbox itself first: an endpoint that wants a WebSocket may say only that.
    await transport.do({ ...r, method: "GET", path: r.path.slice(0, 3), query: undefined });
    (await transport.send({ ...r, method: "GET" })).cancel();
  } catch (e) {
    if ((e as { statusCode?: number }).statusCode !== 426) return e;
  }
  return new NetworkError(`the server at ${transport.settings.baseUrl} answers, but a WebSocket to it does not open`, {
    code: "client.server_unreachable",
    hint: "A proxy on the way may not let WebSockets through.",
  });
}
