/** Terminals of a sandbox. */

import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import { Condition } from "./condition.js";
import { NotFoundError, TimeoutError, isObject } from "./errors.js";
import { QUEUE_LIMIT, Queue } from "./output.js";
import type { Processes } from "./processes.js";
import { connect, type Channel } from "./socket.js";
import { eventError } from "./stream.js";
import { cutShort, newName, transportError, unknownAnswer, type Request, type Transport } from "./transport.js";

const INPUT_CHUNK = 32 << 10;

export interface TerminalOptions extends CallOptions {
  /** A line for the shell; default the user's shell itself. */
  cmd?: string | undefined;
  /** Default 24. */
  rows?: number | undefined;
  /** Default 80. */
  cols?: number | undefined;
  /** Default the user's home directory. */
  cwd?: string | undefined;
  /** Default the sandbox's user. */
  user?: string | undefined;
  /** Kind of terminal; default xterm-256color. */
  term?: string | undefined;
  /** Attach to the terminal of this process. */
  pid?: number | undefined;
  /** Attach to the terminal of the process with this tag, or start it. */
  tag?: string | undefined;
  /** Called with what the terminal shows, as it comes. */
  onData?: ((data: Uint8Array) => void) | undefined;
}

/** How the process in a terminal ended. */
export interface TerminalResult {
  /** 128+n after signal n. */
  exitCode: number;
  /** The signal that ended it. */
  signal?: string | undefined;
}

/**
 * A process in a terminal of the sandbox. Iterate over it for the bytes that it
 * shows; while nobody does, the last 1 MiB is kept. It goes on when the
 * connection is closed, and pty({ pid }) or pty({ tag }) attaches to it again,
 * beginning with the last of what it has shown; only kill() ends it. `await
 * using` closes the connection.
 */
export class Terminal implements AsyncIterable<Uint8Array>, AsyncDisposable {
  readonly #transport: Transport;
  readonly #processes: Processes;
  readonly #name: string | number;
  readonly #onData: ((data: Uint8Array) => void) | undefined;
  readonly #changed = new Condition();
  readonly #queue = new Queue<Uint8Array>((data) => data.length);
  #channel!: Channel;
  #iterating = 0;
  #failure: unknown;
  #ended = false;
  #result: TerminalResult | undefined;

  private constructor(transport: Transport, processes: Processes, name: string | number, onData: TerminalOptions["onData"]) {
    this.#transport = transport;
    this.#processes = processes;
    this.#name = name;
    this.#onData = onData;
  }

  /** @internal */
  static async open(transport: Transport, processes: Processes, path: readonly string[], options: TerminalOptions): Promise<Terminal> {
    const { signal, timeoutMs, onData, ...given } = check.options<TerminalOptions>("pty", options, [...QUERY, "onData"]);
    check.callback("onData", onData);
    // A browser is not told the number of the process, so that it goes by a name.
    const tag = given.tag ?? (given.pid === undefined ? `pty-${newName()}` : undefined);
    const query = { ...asked(given), tag: tag === undefined ? undefined : check.text("tag", tag) };
    const terminal = new Terminal(transport, processes, tag ?? given.pid!, onData);
    const request: Request = { method: "GET", path, query, signal, timeoutMs };
    terminal.#channel = await connect(transport, request, "pds-pty", {
      message: (data) => terminal.#take(data),
      closed: (cause) => terminal.#end(cause),
    });
    return terminal;
  }

  /** The process in the sandbox, where this runtime lets it be read: not in browsers, where the tag is its name. */
  get pid(): number | undefined {
    return this.#channel.pid ?? (typeof this.#name === "number" ? this.#name : undefined);
  }

  /** The tag of the process, unless it was attached to by its number. */
  get tag(): string | undefined {
    return typeof this.#name === "string" ? this.#name : undefined;
  }

  /** How the process ended; undefined until then. */
  get result(): TerminalResult | undefined {
    return this.#result;
  }

  #take(data: string | Uint8Array): void {
    if (this.#ended) return;
    if (typeof data !== "string") this.#show(data);
    else this.#hear(data);
    this.#changed.notify();
  }

  #show(data: Uint8Array): void {
    try {
      this.#onData?.(data);
    } catch (e) {
      this.#failure = e;
      this.#end();
      return;
    }
    this.#queue.push(data);
    // Who iterates is to have all of it; a screen that nobody watches scrolls.
    if (this.#iterating > 0 && this.#queue.size > QUEUE_LIMIT) this.#channel.pause();
    while (this.#iterating === 0 && this.#queue.size > QUEUE_LIMIT) this.#queue.shift();
  }

  /** Reads what the server says of the process. */
  #hear(text: string): void {
    let said: unknown;
    try {
      said = JSON.parse(text);
    } catch (e) {
      this.#failure = unknownAnswer(this.#transport.settings, undefined, e);
      this.#end();
      return;
    }
    if (!isObject(said)) return;
    if (said["type"] === "error") this.#failure = eventError(said);
    if (said["type"] === "exit" && typeof said["code"] === "number") {
      const signal = said["signal"];
      this.#result = { exitCode: said["code"], ...(typeof signal === "string" && signal ? { signal } : {}) };
      this.#end();
    }
  }

  #end(cause?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure ??= cutShort(cause, "the terminal", "The process may go on; attach to it again by its tag or its number.");
    this.#channel?.close();
    this.#changed.notify();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    this.#iterating++;
    try {
      for (;;) {
        await this.#changed.until(() => this.#queue.size > 0 || this.#ended);
        const data = this.#queue.shift();
        if (!data) break;
        if (this.#queue.size <= QUEUE_LIMIT && !this.#ended) this.#channel.resume();
        yield data;
      }
    } finally {
      this.#iterating--;
      if (!this.#ended) this.#channel.resume();
    }
    if (!this.#result) throw this.#failure;
  }

  /** Types. */
  async write(data: string | Uint8Array): Promise<void> {
    if (typeof data !== "string" && !(data instanceof Uint8Array)) throw new TypeError("data is a string or a Uint8Array");
    const raw = typeof data === "string" ? new TextEncoder().encode(data) : data;
    for (let at = 0; at < raw.length; at += INPUT_CHUNK) await this.#send(raw.subarray(at, at + INPUT_CHUNK));
  }

  /** Changes the size of the terminal. */
  async resize(size: { rows: number; cols: number }): Promise<void> {
    const { rows, cols } = size;
    await this.#send(JSON.stringify({ type: "resize", rows: check.whole("rows", rows, 1), cols: check.whole("cols", cols, 1) }));
  }

  async #send(message: string | Uint8Array): Promise<void> {
    if (this.#ended) throw new NotFoundError("the terminal is closed", { code: "process.not_found", hint: "Its result says how it ended." });
    try {
      await this.#channel.send(message);
    } catch (e) {
      throw transportError(this.#transport.settings, e);
    }
  }

  /** Waits for the process to end. When timeoutMs are over it rejects with TimeoutError and the process goes on. */
  async wait({ timeoutMs, signal }: CallOptions = {}): Promise<TerminalResult> {
    if (!(await this.#changed.until(() => this.#ended, timeoutMs, signal))) {
      throw new TimeoutError(`the terminal did not end within ${timeoutMs! / 1000} s`, { code: "request.timeout", hint: "It goes on; wait again, or kill() it." });
    }
    if (!this.#result) throw this.#failure;
    return this.#result;
  }

  /** Ends the process and all that descends from it. One that has ended is left alone. */
  async kill(options?: CallOptions): Promise<void> {
    if (this.#result) return;
    try {
      await this.#processes.kill(this.#name, options);
    } catch (e) {
      if (!(e instanceof NotFoundError) || e.code !== "process.not_found") throw e;
    }
  }

  /** Closes the connection. The process goes on without it. */
  close(): void {
    this.#end();
  }

  /** As close(): what was made in a block may be gone back to after it. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

const QUERY = ["cmd", "rows", "cols", "cwd", "user", "term", "pid", "tag"];

function asked({ cmd, rows, cols, cwd, user, term, pid }: TerminalOptions): Record<string, string | number | undefined> {
  const given = <T, R>(value: T | undefined, checked: (value: T) => R) => (value === undefined ? undefined : checked(value));
  return {
    cmd: given(cmd, (v) => check.text("cmd", v)),
    rows: given(rows, (v) => check.whole("rows", v, 1)),
    cols: given(cols, (v) => check.whole("cols", v, 1)),
    cwd: given(cwd, (v) => check.path("cwd", v)),
    user: given(user, (v) => check.text("user", v)),
    term: given(term, (v) => check.text("term", v)),
    pid: given(pid, (v) => check.whole("pid", v, 1)),
  };
}
