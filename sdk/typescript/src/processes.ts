/** Processes of a sandbox, whoever started them. */

import { bodyOf, type Data } from "./bytes.js";
import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import { said, type Command, type Rest, type StreamOptions } from "./command.js";
import type { ExecResultRecord, ProcessInfo, ProcessList } from "./generated/models.js";
import { Process, type ProcessCallbacks } from "./process.js";
import { ExecStream } from "./stream.js";
import { SLOW_MS, unknownAnswer, type Request, type Transport } from "./transport.js";

/** A process: its number, its tag, or what list gave. */
export type ProcessName = number | string | { readonly pid: number };

export interface SignalOptions extends CallOptions {
  /** Also to all that descends from the process. */
  tree?: boolean | undefined;
}

/**
 * The processes that were started in a sandbox, by this program or another one.
 * Failures are NotFoundError (process.not_found) where there is no such process.
 */
export class Processes {
  readonly #transport: Transport;
  readonly #base: readonly string[];

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#base = ["v1", "sandboxes", sandboxId, "processes"];
  }

  #request(method: string, process: ProcessName | undefined, endpoint: string[], call: string, options: CallOptions | undefined, more: string[] = []): Request {
    const { signal, timeoutMs } = check.options(call, options, more);
    const path = [...this.#base, ...(process === undefined ? [] : [nameOf(process)]), ...endpoint];
    return { method, path, signal, timeoutMs };
  }

  /** Gives the processes that run; with all, also those that ended within the last hour. */
  async list(options?: CallOptions & { all?: boolean | undefined }): Promise<ProcessInfo[]> {
    const request = this.#request("GET", undefined, [], "list", options, ["all"]);
    const query = { all: options?.all ? "true" : undefined };
    return (await this.#transport.call<ProcessList>("ProcessList", { ...request, query })).processes;
  }

  /**
   * Follows a process from now on. It begins with the last 256 KiB that the
   * process wrote, and finds one that ended within the last hour too, unless
   * replay is false. The request is sent when the first piece is asked for.
   */
  attach(process: ProcessName, options?: CallOptions & { replay?: boolean | undefined }): AttachedProcess {
    const request = this.#request("GET", process, [], "attach", options, ["replay"]);
    const query = { replay: options?.replay === false ? "false" : undefined };
    return new AttachedProcess(this, process, this.#transport, { ...request, query, atLeastMs: SLOW_MS });
  }

  /**
   * Starts a command that belongs to no connection, and gives its number. Its
   * input is empty unless options say otherwise.
   */
  async start(cmd: Command, options?: StreamOptions | number): Promise<number>;
  async start(cmd: Command, args: readonly string[] | undefined, options?: StreamOptions | number): Promise<number>;
  async start(cmd: Command, ...rest: Rest<StreamOptions>): Promise<number> {
    const { body, options } = said<StreamOptions>("start", cmd, rest, ["stdin", "keepStdin"]);
    const { signal, timeoutMs } = options;
    const request = { method: "POST", path: [...this.#base.slice(0, -1), "exec"], json: { ...body, background: true }, signal, timeoutMs };
    const { pid } = await this.#transport.call<ExecResultRecord>("ExecResult", { ...request, atLeastMs: SLOW_MS });
    if (pid === undefined) throw unknownAnswer(this.#transport.settings, undefined, undefined);
    return pid;
  }

  /**
   * Attaches to a process by its number, for its output from now on and its
   * input. It goes on when the connection is closed; `await using` kills it.
   */
  async connect(pid: number, options?: CallOptions & ProcessCallbacks): Promise<Process> {
    const { onStdout, onStderr, signal, timeoutMs } = check.options("connect", options, ["onStdout", "onStderr"]);
    check.callback("onStdout", onStdout);
    check.callback("onStderr", onStderr);
    const request = { method: "GET", path: [...this.#base.slice(0, -1), "exec", "ws"], signal, timeoutMs };
    const first = { type: "attach", pid: check.whole("pid", pid, 1) };
    return Process.open(this.#transport, request, first, { onStdout, onStderr });
  }

  /**
   * Writes to a process's input, or terminal, and returns when it has taken all,
   * however long that is unless timeoutMs says. With close it gets end of file
   * then.
   */
  async sendStdin(process: ProcessName, data: Data, options?: CallOptions & { close?: boolean | undefined }): Promise<void> {
    const request = this.#request("POST", process, ["stdin"], "sendStdin", options, ["close"]);
    const query = { close: options?.close ? "true" : undefined };
    const timeoutMs = request.timeoutMs ?? Infinity;
    await this.#transport.do({ ...request, query, body: bodyOf("data", data), timeoutMs }, this.#transport.patient());
  }

  /** Gives a process end of file. */
  async closeStdin(process: ProcessName, options?: CallOptions): Promise<void> {
    await this.#transport.do(this.#request("POST", process, ["stdin", "close"], "closeStdin", options));
  }

  /** Sends a process a signal, by name or number. */
  async signal(process: ProcessName, signal: string | number, options?: SignalOptions): Promise<void> {
    const json = { signal: check.signalName(signal), tree: options?.tree };
    await this.#transport.do({ ...this.#request("POST", process, ["signal"], "signal", options, ["tree"]), json });
  }

  /** Ends a process and all that descends from it. */
  async kill(process: ProcessName, options?: CallOptions): Promise<void> {
    await this.#transport.do(this.#request("DELETE", process, [], "kill", options));
  }
}

/**
 * A process that was running before. It goes on when the loop over it is left:
 * only kill() ends it.
 */
export class AttachedProcess extends ExecStream {
  readonly #processes: Processes;
  readonly #name: ProcessName;

  /** @internal */
  constructor(processes: Processes, name: ProcessName, transport: Transport, r: Request) {
    super(transport, r);
    this.#processes = processes;
    this.#name = name;
  }

  /** Writes to the process's input. See Processes.sendStdin. */
  async sendStdin(data: Data, options?: CallOptions & { close?: boolean | undefined }): Promise<void> {
    await this.#processes.sendStdin(this.#name, data, options);
  }

  /** Gives the process end of file. */
  async closeStdin(options?: CallOptions): Promise<void> {
    await this.#processes.closeStdin(this.#name, options);
  }

  /** Sends the process a signal, by name or number. */
  async signal(signal: string | number, options?: SignalOptions): Promise<void> {
    await this.#processes.signal(this.#name, signal, options);
  }

  /** Ends the process and all that descends from it. */
  async kill(options?: CallOptions): Promise<void> {
    await this.#processes.kill(this.#name, options);
  }
}

function nameOf(process: unknown): string {
  const name = typeof process === "object" && process !== null ? (process as { pid?: unknown }).pid : process;
  return typeof name === "number" ? String(check.whole("process", name, 1)) : check.identifier("process", name);
}
