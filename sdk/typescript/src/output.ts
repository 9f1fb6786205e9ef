/** What a command writes. */

import { decode } from "./check.js";
import { isObject } from "./errors.js";
import type { ExecResultRecord } from "./generated/models.js";

/** A piece of what a command wrote, as it came. */
export interface Output {
  stream: "stdout" | "stderr";
  data: Uint8Array;
  /** The bytes as UTF-8. A character cut in two comes with its last byte; what is no UTF-8 is replaced. */
  text: string;
}

/** A command that has ended. */
export interface ExecResult extends ExecResultRecord {
  /** Whether the server ended it because timeoutSeconds were over. */
  timedOut: boolean;
  /** Whether there was more output than a result keeps, 16 MiB of each stream. */
  truncated: boolean;
  /** The same as exitCode. */
  exit_code: number;
  /** The same as durationMs. */
  duration_ms: number;
}

/** Bytes of each stream that a result has, as with the buffered call. */
export const KEPT = 16 << 20;

export function result(value: unknown): ExecResult {
  const r = decode<ExecResultRecord>("ExecResult", value);
  return {
    ...r,
    timedOut: r.timedOut ?? false,
    truncated: r.truncated ?? false,
    exit_code: r.exitCode,
    duration_ms: r.durationMs,
  };
}

/** The last bytes of a stream, in one buffer however small the pieces are. */
class Tail {
  truncated = false;
  #buffer = new Uint8Array(0);
  #size = 0;

  add(data: Uint8Array): void {
    // Twice as much is held, so that moving it is rare.
    if (this.#size + data.length > 2 * KEPT) this.#drop();
    const needed = this.#size + data.length;
    if (needed > this.#buffer.length) {
      const larger = new Uint8Array(Math.max(needed, Math.min(2 * this.#buffer.length, 2 * KEPT), 1 << 10));
      larger.set(this.#buffer.subarray(0, this.#size));
      this.#buffer = larger;
    }
    this.#buffer.set(data, this.#size);
    this.#size = needed;
  }

  /** Forgets all but the last bytes. */
  #drop(): void {
    if (this.#size <= KEPT) return;
    this.#buffer.copyWithin(0, this.#size - KEPT, this.#size);
    this.#size = KEPT;
    this.truncated = true;
  }

  text(): string {
    this.#drop();
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.#buffer.subarray(0, this.#size));
  }
}

/** Bytes that wait for someone who iterates, before the sender is asked to wait. */
export const QUEUE_LIMIT = 1 << 20;
/** What each piece costs beside its bytes, so that many small ones count too. */
const PIECE_COST = 256;

/** Pieces that wait to be read, the first first. */
export class Queue<T> {
  readonly #bytesOf: (piece: T) => number;
  #pieces: (T | undefined)[] = [];
  #first = 0;
  /** What they take, in bytes. */
  size = 0;

  constructor(bytesOf: (piece: T) => number) {
    this.#bytesOf = bytesOf;
  }

  push(piece: T): void {
    this.#pieces.push(piece);
    this.size += this.#bytesOf(piece) + PIECE_COST;
  }

  shift(): T | undefined {
    const piece = this.#pieces[this.#first];
    if (piece === undefined) return undefined;
    this.#pieces[this.#first++] = undefined;
    this.size -= this.#bytesOf(piece) + PIECE_COST;
    if (this.#first > 1024 && this.#first * 2 > this.#pieces.length) {
      this.#pieces = this.#pieces.slice(this.#first);
      this.#first = 0;
    }
    return piece;
  }
}

/** Pieces of output that wait to be read. */
export const outputQueue = (): Queue<Output> => new Queue((piece) => piece.data.length);

/** Reads the events of one command: pieces of output, then how it ended. */
export class Collector {
  pid: number | undefined;
  /** Bytes of earlier output that the server no longer had. */
  skipped = 0;
  result: ExecResult | undefined;
  readonly #tails = { stdout: new Tail(), stderr: new Tail() };
  readonly #decoders = {
    stdout: new TextDecoder("utf-8", { ignoreBOM: true }),
    stderr: new TextDecoder("utf-8", { ignoreBOM: true }),
  };

  /** Notes an event and gives the output in it. A TypeError says that it is none. */
  take(event: unknown): Output | undefined {
    if (!isObject(event) || typeof event["type"] !== "string") throw new TypeError("an event has a type");
    const stream = event["type"];
    if (stream === "stdout" || stream === "stderr") {
      const data = fromBase64(event["data"] ?? "");
      this.#tails[stream].add(data);
      return { stream, data, text: this.#decoders[stream].decode(data, { stream: true }) };
    }
    if (stream === "start" && typeof event["pid"] === "number") this.pid = event["pid"];
    if (stream === "start" && typeof event["skipped"] === "number") this.skipped = event["skipped"];
    if (stream === "exit") this.result = this.#result(event["result"]);
    return undefined;
  }

  #result(said: unknown): ExecResult {
    const r = result(said);
    const { stdout, stderr } = this.#tails;
    return { ...r, stdout: stdout.text(), stderr: stderr.text(), truncated: stdout.truncated || stderr.truncated };
  }
}

export function fromBase64(text: unknown): Uint8Array {
  if (typeof text !== "string") throw new TypeError("bytes are base64");
  const native = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array }).fromBase64;
  if (native) return native(text);
  let raw: string;
  try {
    raw = atob(text);
  } catch (e) {
    throw new TypeError("bytes are base64", { cause: e });
  }
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}
