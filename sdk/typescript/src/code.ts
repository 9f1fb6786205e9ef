/** Code that runs in contexts, which keep what it defines. */

import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import { isObject } from "./errors.js";
import type { CodeContext, CodeError, CodeEventRecord, CodeOutputRecord, CodeRunRecord, ContextList } from "./generated/models.js";
import { fromBase64 } from "./output.js";
import { Live, eventError, serverEvents } from "./stream.js";
import { cutShort, unknownAnswer, type Request, type Transport } from "./transport.js";

// What a streamed execution keeps, as with the buffered call.
const KEPT_TEXT = 8 << 20;
const KEPT_RESULTS = 1000;
const KEPT_BYTES = 32 << 20;

export interface RunCodeOptions extends CallOptions {
  /** python (the default), javascript, typescript or bash: runs in the context that the sandbox shares for it. */
  language?: string | undefined;
  /** Run in this context instead; its language counts. */
  context?: string | { id: string } | undefined;
  /** For this code only. */
  env?: Record<string, string> | undefined;
  /** The code is interrupted after so long; the run then has timedOut, and its context keeps its state. */
  timeoutSeconds?: number | undefined;
}

export interface CodeCallbacks {
  /** Called with text as it is written. What comes next waits for a promise. */
  onStdout?: ((text: string) => unknown) | undefined;
  onStderr?: ((text: string) => unknown) | undefined;
  /** Called with each value as it is shown. */
  onResult?: ((result: CodeOutput) => unknown) | undefined;
  /** Called with the error that the code raised. */
  onError?: ((error: CodeError) => unknown) | undefined;
}

export interface CreateContextOptions extends CallOptions {
  /** Default python. */
  language?: string | undefined;
  /** Default the user's home directory. */
  cwd?: string | undefined;
  /** Added to the sandbox's own. */
  env?: Record<string, string> | undefined;
}

/** The forms in which a value can be shown, and their media types. */
const FORMATS = {
  text: "text/plain",
  html: "text/html",
  markdown: "text/markdown",
  svg: "image/svg+xml",
  png: "image/png",
  jpeg: "image/jpeg",
  pdf: "application/pdf",
  latex: "text/latex",
  javascript: "application/javascript",
  json: "application/json",
} as const;

export type CodeFormat = keyof typeof FORMATS;

export interface CodeOutput extends CodeOutputRecord {}

/** One value that code has shown, in every form that it has. */
export class CodeOutput {
  /** @internal */
  constructor(record: CodeOutputRecord) {
    Object.assign(this, record);
  }

  /** The forms that it has. */
  get formats(): CodeFormat[] {
    return (Object.keys(FORMATS) as CodeFormat[]).filter((name) => this[name] !== undefined);
  }

  /** The picture or document itself; undefined if it has no such form. */
  bytes(format: "png" | "jpeg" | "pdf"): Uint8Array | undefined {
    const text = this[format];
    return text === undefined ? undefined : fromBase64(text.replace(/\s/g, ""));
  }

  /** Every form by its media type, as notebooks take it. */
  toMimeBundle(): Record<string, unknown> {
    const extra = isObject(this.extra) ? this.extra : {};
    return { ...extra, ...Object.fromEntries(this.formats.map((name) => [FORMATS[name], this[name]])) };
  }

  /** Shows it in a notebook of Deno. */
  [Symbol.for("Jupyter.display") as never](): Record<string, unknown> {
    return this.toMimeBundle();
  }
}

/** Code that has run to its end. That it raised an error is no error of the call: error says so. */
export interface CodeRun {
  /** What was written, at most 8 MiB of each. */
  stdout: string;
  stderr: string;
  /** Value of the last expression, as text. */
  text?: string | undefined;
  /** Everything that was shown, in order. */
  results: CodeOutput[];
  /** What the code raised. */
  error?: CodeError | undefined;
  /** Number of this run in its context. */
  executionCount: number;
  durationMs: number;
  /** Whether it was interrupted because timeoutSeconds were over. */
  timedOut: boolean;
  /** Whether more came than is kept. */
  truncated: boolean;
}

/** One event of code that runs. */
export interface CodeEvent extends Omit<CodeEventRecord, "result" | "error" | "type"> {
  type: "start" | "stdout" | "stderr" | "result" | "exception" | "end";
  /** With result. */
  result?: CodeOutput | undefined;
}

/** @internal */
export function codeRun(value: unknown): CodeRun {
  const r = check.decode<CodeRunRecord>("CodeRun", value);
  return {
    ...r,
    results: r.results.map((record) => new CodeOutput(record)),
    timedOut: r.timedOut ?? false,
    truncated: r.truncated ?? false,
  };
}

/**
 * Events of code while it runs. The code starts when the first one is asked for;
 * leaving the loop before its end interrupts it.
 */
export class CodeStream extends Live<CodeEvent> {
  readonly #collector: CodeCollector;

  /** @internal */
  constructor(transport: Transport, r: Request) {
    const collector = new CodeCollector();
    super(r, (request) => codeEvents(transport, collector, request));
    this.#collector = collector;
  }

  /** What the code has come to so far. */
  get run(): CodeRun {
    return this.#collector.run;
  }

  /** Reads what is left, and gives what the code came to. */
  async wait(): Promise<CodeRun> {
    while (!(await this.next()).done);
    if (!this.#collector.ended) throw cutShort(undefined, "the code", "The code may still have run.");
    return this.run;
  }
}

async function* codeEvents(transport: Transport, collector: CodeCollector, r: Request): AsyncGenerator<CodeEvent, void, undefined> {
  for await (const { data } of serverEvents(transport, r)) {
    if (isObject(data) && data["type"] === "error") throw eventError(data);
    let event: CodeEvent;
    try {
      event = collector.take(check.decode<CodeEventRecord>("CodeEvent", data));
    } catch (e) {
      throw unknownAnswer(transport.settings, undefined, e);
    }
    yield event;
  }
  if (!collector.ended) throw cutShort(undefined, "the code", "The code may still have run.");
}

/** Makes one run of events. */
class CodeCollector {
  readonly run: CodeRun = { stdout: "", stderr: "", results: [], executionCount: 0, durationMs: 0, timedOut: false, truncated: false };
  ended = false;
  #size = 0;

  take({ result: record, error: _, ...event }: CodeEventRecord): CodeEvent {
    const result = record && new CodeOutput(record);
    const run = this.run;
    if (event.type === "start") run.executionCount = event.executionCount ?? 0;
    if (event.type === "stdout" || event.type === "stderr") this.#keepText(event.type, event.text ?? "");
    if (result) this.#keepResult(result);
    if (event.type === "exception") run.error = event.exception;
    if (event.type === "end") {
      this.ended = true;
      run.durationMs = event.durationMs ?? 0;
      run.timedOut = event.timedOut ?? false;
    }
    return { ...(event as Omit<CodeEvent, "result">), ...(result ? { result } : {}) };
  }

  #keepText(stream: "stdout" | "stderr", text: string): void {
    const room = KEPT_TEXT - this.run[stream].length;
    this.run.truncated ||= text.length > room;
    this.run[stream] += text.slice(0, Math.max(room, 0));
  }

  #keepResult(result: CodeOutput): void {
    if (result.isMainResult) this.run.text = result.text;
    this.#size += JSON.stringify(result).length;
    if (this.run.results.length < KEPT_RESULTS && this.#size <= KEPT_BYTES) this.run.results.push(result);
    else this.run.truncated = true;
  }
}

/** The body of a run, and what its call was given. */
export function runRequest(code: string, options: RunCodeOptions): Record<string, unknown> {
  const { language, context, env, timeoutSeconds } = options;
  if (typeof code !== "string") throw new TypeError(`code is a string, not ${check.kindOf(code)}`);
  if (language !== undefined && context !== undefined) throw new TypeError("give a language or a context, not both");
  const body: Record<string, unknown> = { code };
  if (language !== undefined) body["language"] = check.text("language", language);
  if (context !== undefined) body["context_id"] = check.identifier("context", context);
  if (env !== undefined) body["env"] = check.labels("env", env);
  if (timeoutSeconds !== undefined) body["timeout_ms"] = Math.ceil(limitOf(timeoutSeconds) * 1000);
  return body;
}

/** A time limit. What is none would be no limit to the server, which nobody means who gives one. */
function limitOf(seconds: unknown): number {
  if (typeof seconds === "number" && seconds > 0 && seconds !== Infinity) return seconds;
  const said = typeof seconds === "number" ? String(seconds) : check.kindOf(seconds);
  throw new RangeError(`timeoutSeconds is a number above 0, not ${said}; leave it out for no limit`);
}

/** The names of RunCodeOptions. */
export const RUN_CODE = ["language", "context", "env", "timeoutSeconds"];

/**
 * Interpreters that keep what code defines. Every sandbox has a shared one for
 * each language; these are of their own. Failures are NotFoundError
 * (context.not_found) where there is none.
 */
export class Contexts {
  readonly #transport: Transport;
  readonly #base: readonly string[];

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#base = ["v1", "sandboxes", sandboxId, "contexts"];
  }

  #request(method: string, context: unknown, endpoint: string[], call: string, options: CallOptions | undefined): Request {
    const { signal, timeoutMs } = check.options(call, options, []);
    return { method, path: [...this.#base, check.identifier("context", context), ...endpoint], signal, timeoutMs };
  }

  /** Makes a context, to pass to runCode. */
  async create(options?: CreateContextOptions): Promise<CodeContext> {
    const { signal, timeoutMs, ...fields } = check.options("create", options, check.fieldsOf("CreateContext"));
    const json = check.encode("CreateContext", fields);
    return this.#transport.call("CodeContext", { method: "POST", path: this.#base, json, signal, timeoutMs });
  }

  /** Gives the contexts of the sandbox, oldest first. */
  async list(options?: CallOptions): Promise<CodeContext[]> {
    const { signal, timeoutMs } = check.options("list", options, []);
    return (await this.#transport.call<ContextList>("ContextList", { method: "GET", path: this.#base, signal, timeoutMs })).contexts;
  }

  /** Ends a context with what it runs. */
  async delete(context: string | { id: string }, options?: CallOptions): Promise<void> {
    await this.#transport.do(this.#request("DELETE", context, [], "delete", options));
  }

  /** Gives a context a new kernel, without any state. */
  async restart(context: string | { id: string }, options?: CallOptions): Promise<void> {
    await this.#transport.do(this.#request("POST", context, ["restart"], "restart", options));
  }

  /** Stops the code that a context runs, if any does. What it has defined stays. */
  async interrupt(context: string | { id: string }, options?: CallOptions): Promise<void> {
    await this.#transport.do(this.#request("POST", context, ["interrupt"], "interrupt", options));
  }
}
