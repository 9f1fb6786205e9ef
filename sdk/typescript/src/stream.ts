/** Answers that are read while they come. */

import { decode } from "./check.js";
import { coded, described, isObject } from "./errors.js";
import type { SchemaName } from "./generated/schemas.js";
import { Collector, type ExecResult, type Output } from "./output.js";
import { SILENCE_MS, cutShort, unknownAnswer, type Answer, type Request, type Transport } from "./transport.js";

/** One event holds at most 32 KiB of output today; this is far from it. */
const EVENT_LIMIT = 16 << 20;

interface ServerEvent {
  name: string;
  data: unknown;
}

async function begun(transport: Transport, r: Request): Promise<Answer> {
  const answer = await transport.send({ ...r, accept: "text/event-stream" });
  if (answer.kind !== "text/event-stream") throw answer.unexpected();
  return answer;
}

/** The events of a server-sent stream, with their data read as JSON. */
export async function* serverEvents(transport: Transport, r: Request, given?: Answer): AsyncGenerator<ServerEvent, void, undefined> {
  const answer = given ?? (await begun(transport, r));
  let [name, data] = ["", ""];
  for await (const line of lines(answer, Math.max(transport.settings.timeoutMs, SILENCE_MS), transport)) {
    if (line === "") {
      if (data !== "") yield { name, data: parsed(transport, answer, data) };
      [name, data] = ["", ""];
    } else if (line.startsWith("event:")) {
      name = line.slice(6).trimStart();
    } else if (line.startsWith("data:")) {
      data += (data && "\n") + line.slice(5).trimStart();
    }
    if (data.length > EVENT_LIMIT) throw unknownAnswer(transport.settings, answer.response, undefined);
  }
}

async function* lines(answer: Answer, silenceMs: number, transport: Transport): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of answer.chunks(silenceMs)) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop()!;
    if (rest.length > EVENT_LIMIT) throw unknownAnswer(transport.settings, answer.response, undefined);
    for (const part of parts) yield part.endsWith("\r") ? part.slice(0, -1) : part;
  }
}

function parsed(transport: Transport, answer: Answer, data: string): unknown {
  try {
    return JSON.parse(data);
  } catch (e) {
    throw unknownAnswer(transport.settings, answer.response, e);
  }
}

/** The error that an event of the name error is about: bare, or within an envelope. */
export function eventError(data: unknown): Error {
  const failure = isObject(data) && isObject(data["error"]) ? data["error"] : data;
  return described(failure) ?? coded("internal", "the server ended the stream with an error");
}

/**
 * Ends a request when its caller's signal says so, or when its reader leaves. It
 * listens rather than use AbortSignal.any, with which runtimes may forget a
 * signal that nobody else holds, such as that of AbortSignal.timeout.
 */
class Closing {
  readonly #controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  /** Whether the reader has left. */
  left = false;

  constructor(caller: AbortSignal | undefined) {
    this.#caller = caller;
    if (caller?.aborted) this.#forward();
    else caller?.addEventListener("abort", this.#forward);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  readonly #forward = (): void => this.#controller.abort(this.#caller?.reason);

  leave(): void {
    this.left = true;
    this.#controller.abort();
    this.release();
  }

  /** Ends the listening: there is nothing left to end. */
  release(): void {
    this.#caller?.removeEventListener("abort", this.#forward);
  }
}

/** What is read while it comes. Leaving the loop over it, or return(), closes the connection. */
export abstract class Live<T> implements AsyncIterableIterator<T>, AsyncDisposable {
  readonly #closing: Closing;
  readonly #items: AsyncGenerator<T, void, undefined>;

  /** @internal */
  constructor(r: Request, read: (r: Request) => AsyncGenerator<T, void, undefined>, closing = new Closing(r.signal)) {
    this.#closing = closing;
    this.#items = read({ ...r, signal: closing.signal });
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    try {
      const { done, value } = await this.#items.next();
      if (!done) return { value };
      this.#closing.release();
      return { done, value: undefined };
    } catch (e) {
      this.#closing.release();
      if (!this.#closing.left) throw e;
      return { done: true, value: undefined };
    }
  }

  /** Closes the connection. Whoever waits for the next piece is told that there is none. */
  async return(): Promise<IteratorResult<T, undefined>> {
    this.#closing.leave();
    await this.#items.return().catch(() => undefined); // it has been told why
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}

/** Records that are read while they come. */
export class Stream<T> extends Live<T> {
  /** @internal */
  constructor(transport: Transport, schema: SchemaName, r: Request, given?: Answer, closing?: Closing) {
    super(r, (request) => records<T>(transport, schema, request, given), closing);
  }

  /**
   * Sends the request now rather than when the first record is asked for.
   * @internal
   */
  static async begin<T>(transport: Transport, schema: SchemaName, r: Request): Promise<Stream<T>> {
    const closing = new Closing(r.signal);
    try {
      return new Stream<T>(transport, schema, r, await begun(transport, { ...r, signal: closing.signal }), closing);
    } catch (e) {
      closing.release();
      throw e;
    }
  }
}

async function* records<T>(transport: Transport, schema: SchemaName, r: Request, given?: Answer): AsyncGenerator<T, void, undefined> {
  for await (const { name, data } of serverEvents(transport, r, given)) {
    if (name === "error") throw eventError(data);
    let record: T;
    try {
      record = decode<T>(schema, data);
    } catch (e) {
      throw unknownAnswer(transport.settings, undefined, e);
    }
    yield record;
  }
}

/**
 * The output of a command while it runs. The command starts when the first
 * piece is asked for; leaving the loop before its end kills it.
 */
export class ExecStream extends Live<Output> {
  readonly #collector: Collector;

  /** @internal */
  constructor(transport: Transport, r: Request) {
    const collector = new Collector();
    super(r, (request) => pieces(transport, collector, request));
    this.#collector = collector;
  }

  /** The process in the sandbox, once it runs. */
  get pid(): number | undefined {
    return this.#collector.pid;
  }

  /** Bytes of earlier output that the server no longer had, where it was followed later. */
  get skipped(): number {
    return this.#collector.skipped;
  }

  /** How the command ended, with the last 16 MiB of each stream; undefined until then. */
  get result(): ExecResult | undefined {
    return this.#collector.result;
  }

  /** Reads what is left, and says how the command ended. */
  async wait(): Promise<ExecResult> {
    while (!(await this.next()).done);
    if (!this.result) throw cutShort();
    return this.result;
  }
}

async function* pieces(transport: Transport, collector: Collector, r: Request): AsyncGenerator<Output, void, undefined> {
  // Read to its end, so that the connection can be used again.
  for await (const { data } of serverEvents(transport, r)) {
    if (isObject(data) && data["type"] === "error") throw eventError(data);
    let output: Output | undefined;
    try {
      output = collector.take(data);
    } catch (e) {
      throw unknownAnswer(transport.settings, undefined, e);
    }
    if (output) yield output;
  }
  if (!collector.result) throw cutShort();
}
