/** Commands that run beside the caller. */

import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import { Condition } from "./condition.js";
import { NotFoundError, TimeoutError } from "./errors.js";
import { Collector, KEPT, QUEUE_LIMIT, outputQueue, type ExecResult, type Output } from "./output.js";
import { connect, type Channel } from "./socket.js";
import { eventError } from "./stream.js";
import { SLOW_MS, cutShort, noAnswer, transportError, unknownAnswer, type Request, type Transport } from "./transport.js";

const STDIN_CHUNK = 32 << 10;

export interface ProcessCallbacks {
  /** Called with text as it is written. */
  onStdout?: ((text: string) => void) | undefined;
  onStderr?: ((text: string) => void) | undefined;
}

/**
 * A command that was started with runBackground.
 *
 * Its output is read all the time, so that it never stands still for want of a
 * reader. Iterate over it for what it writes, from its start on; what nobody
 * iterates over is kept up to 16 MiB, the oldest dropped first. wait() gives
 * the result, with the last 16 MiB of each stream.
 *
 * The command goes on when the connection is closed. `await using` kills it.
 */
export class Process implements AsyncIterable<Output>, AsyncDisposable {
  readonly #transport: Transport;
  readonly #callbacks: ProcessCallbacks;
  readonly #collector = new Collector();
  readonly #changed = new Condition();
  #channel!: Channel;
  readonly #queue = outputQueue();
  #iterating = 0;
  #failure: unknown;
  #runs = false;
  #ended = false;

  private constructor(transport: Transport, callbacks: ProcessCallbacks) {
    this.#transport = transport;
    this.#callbacks = callbacks;
  }

  /**
   * Starts a command, or attaches to one: first is what is said first.
   * @internal
   */
  static async open(transport: Transport, r: Request, first: object, callbacks: ProcessCallbacks): Promise<Process> {
    const process = new Process(transport, callbacks);
    process.#channel = await connect(transport, r, "pds-exec", {
      message: (message) => process.#take(message as string), // it has only these
      closed: (cause) => process.#end(cause),
    });
    try {
      await process.#send(JSON.stringify(first));
      await process.#started(r);
    } catch (e) {
      process.close();
      throw e;
    }
    return process;
  }

  /** Waits until the command runs. */
  async #started(options: CallOptions): Promise<void> {
    const limit = options.timeoutMs ?? Math.max(this.#transport.settings.timeoutMs, SLOW_MS);
    const running = () => this.#ended || this.#runs;
    if (!(await this.#changed.until(running, limit, options.signal))) throw noAnswer(this.#transport.settings, limit);
    if (this.#ended && !this.result) throw this.#failure;
  }

  /** The process in the sandbox. */
  get pid(): number | undefined {
    return this.#collector.pid;
  }

  /** How the command ended; undefined until then. */
  get result(): ExecResult | undefined {
    return this.#collector.result;
  }

  /** Reads one event. An error says that something could not be done, such as
   *  input for a command that has just ended; it is what went wrong only if no
   *  exit follows. */
  #take(message: string): void {
    if (this.#ended) return;
    let output: Output | undefined;
    try {
      const event = JSON.parse(message) as { type?: unknown };
      if (event.type === "error") this.#failure = eventError(event);
      else output = this.#collector.take(event);
      this.#runs ||= event.type === "start";
    } catch (e) {
      this.#fail(unknownAnswer(this.#transport.settings, undefined, e));
      return;
    }
    if (output) this.#give(output);
    if (this.result) this.#end();
    this.#changed.notify();
  }

  #give(output: Output): void {
    const callback = output.stream === "stdout" ? this.#callbacks.onStdout : this.#callbacks.onStderr;
    try {
      callback?.(output.text);
    } catch (e) {
      this.#fail(e);
      return;
    }
    this.#queue.push(output);
    while (this.#queue.size > KEPT) this.#queue.shift();
    // Who iterates is to have all of it.
    if (this.#iterating > 0 && this.#queue.size > QUEUE_LIMIT) this.#channel.pause();
  }

  #fail(e: unknown): void {
    if (this.#ended) return;
    this.#failure = e;
    this.#send(JSON.stringify({ type: "signal", signal: "SIGKILL" })).catch(() => undefined); // the connection is gone
    this.#end();
  }

  #end(cause?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure ??= cutShort(cause);
    this.#channel?.close();
    this.#changed.notify();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Output, void, undefined> {
    this.#iterating++;
    try {
      for (;;) {
        await this.#changed.until(() => this.#queue.size > 0 || this.#ended);
        const output = this.#queue.shift();
        if (!output) break;
        if (this.#queue.size <= QUEUE_LIMIT && !this.#ended) this.#channel.resume();
        yield output;
      }
    } finally {
      this.#iterating--;
      if (!this.#ended) this.#channel.resume();
    }
    if (!this.result) throw this.#failure;
  }

  /**
   * Waits for the command to end. When timeoutMs are over it rejects with
   * TimeoutError and the command goes on.
   */
  async wait({ timeoutMs, signal }: CallOptions = {}): Promise<ExecResult> {
    if (!(await this.#changed.until(() => this.#ended, timeoutMs, signal))) {
      throw new TimeoutError(`the command did not end within ${timeoutMs! / 1000} s`, {
        code: "request.timeout",
        hint: "It goes on; wait again, or kill() it.",
      });
    }
    if (!this.result) throw this.#failure;
    return this.result;
  }

  /** Writes to the command's standard input. */
  async sendStdin(data: string | Uint8Array): Promise<void> {
    if (typeof data !== "string" && !(data instanceof Uint8Array)) throw new TypeError("data is a string or a Uint8Array");
    const raw = typeof data === "string" ? new TextEncoder().encode(data) : data;
    for (let at = 0; at < raw.length; at += STDIN_CHUNK) await this.#send(raw.subarray(at, at + STDIN_CHUNK));
  }

  /** Ends the command's standard input. */
  async closeStdin(): Promise<void> {
    await this.#send(JSON.stringify({ type: "close_stdin" }));
  }

  /** Ends the command at once. One that has ended is left alone. */
  async kill(): Promise<void> {
    await this.signal("SIGKILL");
  }

  /** Asks the command to end (SIGTERM). One that has ended is left alone. */
  async terminate(): Promise<void> {
    await this.signal("SIGTERM");
  }

  /** Sends the command a signal, by name or number. One that has ended is left alone. */
  async signal(signal: string | number): Promise<void> {
    check.signalName(signal);
    if (!this.#ended) await this.#send(JSON.stringify({ type: "signal", signal }));
  }

  async #send(message: string | Uint8Array): Promise<void> {
    if (this.#ended) throw new NotFoundError("the command has ended", { code: "process.not_found", hint: "Its result says how." });
    try {
      await this.#channel.send(message);
    } catch (e) {
      throw transportError(this.#transport.settings, e);
    }
  }

  /** Closes the connection. A command that has not ended goes on without it. */
  close(): void {
    this.#end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.kill();
      await this.wait({ timeoutMs: 10_000 });
    } catch {
      // It was told to end, and nobody asks how it did.
    } finally {
      this.close();
    }
  }
}
