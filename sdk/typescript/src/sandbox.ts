/** A handle on one sandbox. */

import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import { PandaStack } from "./client.js";
import { CodeStream, Contexts, RUN_CODE, codeRun, runRequest, type CodeCallbacks, type CodeRun, type RunCodeOptions } from "./code.js";
import { said, type BackgroundOptions, type Command, type ExecOptions, type Rest, type Said, type StreamOptions } from "./command.js";
import { NotFoundError, isObject } from "./errors.js";
import { Filesystem } from "./filesystem.js";
import {
  SandboxFields,
  type CodeLanguages,
  type CreateSnapshot,
  type Fork,
  type ForkTreeRecord,
  type Lifecycle,
  type LogLine,
  type Metrics,
  type MetricsSeries,
  type Preview,
  type PreviewURL,
  type Promoted,
  type SSHInfo,
  type SandboxEvent,
  type SandboxRecord,
  type Snapshot,
  type Timeline,
  type Tree,
} from "./generated/models.js";
import { Git } from "./git.js";
import { LanguageServer } from "./lsp.js";
import { Ports, SandboxNetwork, portOf } from "./network.js";
import { result, type ExecResult } from "./output.js";
import { Process } from "./process.js";
import { Processes } from "./processes.js";
import { Terminal, type TerminalOptions } from "./terminal.js";
import { ExecStream, Stream } from "./stream.js";
import { FETCH_PATIENCE_MS, SILENCE_MS, SLOW_MS, unknownAnswer, type McpConfig, type Request, type Transport } from "./transport.js";
import { listSnapshots, type CreateOptions, type ListOptions } from "./resources.js";

type LogStream = "stdout" | "stderr" | "both";

export interface LogsOptions extends CallOptions {
  /** Default both. */
  stream?: LogStream | undefined;
  /** Only the last so many lines. */
  tail?: number | undefined;
  /** Go on with new lines. */
  follow?: boolean | undefined;
}

export interface EventsOptions extends CallOptions {
  /** Only the last so many. */
  tail?: number | undefined;
  /** Only those after the event with this id, or after this time. */
  since?: number | string | Date | undefined;
  /** Go on with new events. */
  follow?: boolean | undefined;
}

export interface MetricsSeriesOptions extends CallOptions {
  /** How far back: seconds, or text such as 15m; default 1h, which is all that is kept. */
  range?: number | string | undefined;
  /** Time between two samples, in steps of ten seconds; default 10. */
  step?: number | string | undefined;
}

export interface PreviewTokenOptions extends CallOptions {
  /** How long it is good for; default 3600, at most seven days. */
  ttlSeconds?: number | undefined;
}

export interface ForkOptions extends Omit<Fork, "count" | "checkpoint">, CallOptions {
  /** Branch from this checkpoint of the sandbox instead of from now. */
  checkpoint?: string | { id: string } | undefined;
}

export interface ForkTreeOptions extends ForkOptions {
  /** Children. */
  count: number;
}

export interface PromoteOptions extends CallOptions {
  /** The tree the sandbox must belong to; default the one it does. */
  treeId?: string | undefined;
  /** Delete the other children of its tree. */
  cleanupSiblings?: boolean | undefined;
}

export interface SnapshotOptions extends CreateSnapshot, CallOptions {}

export interface WithClient {
  /** Default one made of the environment and the config file. */
  client?: PandaStack | undefined;
}

/** Children that were forked at once. It can be iterated over too. */
export class ForkTree implements Iterable<Sandbox> {
  /** Names the siblings, for promote. */
  readonly treeId: string;
  /** What they were forked from. */
  readonly parentId: string;
  readonly children: Sandbox[];

  /** @internal */
  constructor(transport: Transport, record: ForkTreeRecord) {
    this.treeId = record.treeId;
    this.parentId = record.parentId;
    this.children = record.children.map((child) => new Sandbox(transport, child));
  }

  [Symbol.iterator](): Iterator<Sandbox> {
    return this.children[Symbol.iterator]();
  }
}

/**
 * A handle on one sandbox.
 *
 * The fields of its record (id, status, template, ...) are as the server last
 * gave them: refresh() reads them again. All methods go by the id alone.
 *
 * `await using` ends the sandbox at the end of its block.
 */
export class Sandbox extends SandboxFields implements AsyncDisposable {
  readonly #transport: Transport;
  #record: SandboxRecord;
  /** The files of the sandbox. */
  readonly filesystem: Filesystem;
  /** Its processes, whoever started them. */
  readonly processes: Processes;
  /** Interpreters that keep what code defines. */
  readonly contexts: Contexts;
  /** The git repositories in it. */
  readonly git: Git;
  /** What it may reach, and what it has contacted. */
  readonly network: SandboxNetwork;
  /** Its ports, and who may open their previews. */
  readonly ports: Ports;
  /** run is another name of exec. */
  readonly commands: { run: Sandbox["exec"] };

  /** @internal */
  constructor(transport: Transport, record: SandboxRecord) {
    super();
    this.#transport = transport;
    this.#record = record;
    this.filesystem = new Filesystem(transport, record.id);
    this.processes = new Processes(transport, record.id);
    this.contexts = new Contexts(transport, record.id);
    this.git = new Git(transport, record.id);
    this.network = new SandboxNetwork(transport, record.id);
    this.ports = new Ports(transport, record.id);
    this.commands = { run: this.exec.bind(this) };
  }

  override get record(): SandboxRecord {
    return this.#record;
  }

  /** The record, where the handle is written as JSON. */
  toJSON(): SandboxRecord {
    return this.#record;
  }

  /** Starts a sandbox with the default client, or with client. See Sandboxes.create. */
  static async create(template: string, options?: CreateOptions & WithClient): Promise<Sandbox>;
  static async create(options?: CreateOptions & WithClient): Promise<Sandbox>;
  static async create(first: string | (CreateOptions & WithClient) = {}, options: CreateOptions & WithClient = {}): Promise<Sandbox> {
    const [template, { client, ...rest }] = typeof first === "string" ? [first, options] : [undefined, first];
    return clientOf(client).sandboxes.create(template === undefined ? rest : { ...rest, template });
  }

  /** Finds a sandbox by its id (NotFoundError). */
  static async get(id: string, { client, ...options }: CallOptions & WithClient = {}): Promise<Sandbox> {
    return clientOf(client).sandboxes.get(id, options);
  }

  /** Gives the caller's sandboxes, newest first. See Sandboxes.list. */
  static async list({ client, ...options }: ListOptions & WithClient = {}): Promise<Sandbox[]> {
    return clientOf(client).sandboxes.list(options);
  }

  // Commands

  /**
   * Runs a command and waits for it to end. A string is a line for the shell,
   * an array is a program and its arguments, and a string with args a program
   * with those. An exit code other than 0 is not an error.
   *
   * The result has at most 16 MiB of each stream (truncated says so);
   * execStream gives output of any length. A number instead of options is
   * timeoutSeconds.
   */
  async exec(cmd: Command, options?: ExecOptions | number): Promise<ExecResult>;
  async exec(cmd: Command, args: readonly string[] | undefined, options?: ExecOptions | number): Promise<ExecResult>;
  async exec(cmd: Command, ...rest: Rest<ExecOptions>): Promise<ExecResult> {
    const run = said<ExecOptions>("exec", cmd, rest, ["stdin", "keepStdin", "onStdout", "onStderr"]);
    const { onStdout, onStderr } = run.options;
    check.callback("onStdout", onStdout);
    check.callback("onStderr", onStderr);
    if (onStdout || onStderr) {
      const stream = this.#stream(run);
      for await (const { stream: name, text } of stream) await (name === "stdout" ? onStdout : onStderr)?.(text);
      return stream.wait();
    }
    return this.#buffered(run);
  }

  async #buffered(run: Said<ExecOptions>): Promise<ExecResult> {
    const { timeoutSeconds, timeoutMs, signal } = run.options;
    const grace = Math.max(this.#transport.settings.timeoutMs, SILENCE_MS);
    const limit = timeoutMs ?? (timeoutSeconds ? timeoutSeconds * 1000 + grace : Infinity);
    const long = limit > FETCH_PATIENCE_MS;
    const via = long ? this.#transport.patient() : undefined;
    // Where fetch gives up on an answer, one that has begun goes on.
    if (long && !via) return this.#stream(run).wait();
    const request = { method: "POST", path: this.#path("exec"), json: run.body, timeoutMs: limit, signal };
    return this.#transport.read(await this.#transport.send(request, via), result);
  }

  /**
   * Runs a command and gives what it writes, as it is written. The command
   * starts when the first piece is asked for; leaving the loop kills it.
   *
   *     for await (const { text } of sandbox.execStream("make")) process.stdout.write(text);
   */
  execStream(cmd: Command, options?: StreamOptions | number): ExecStream;
  execStream(cmd: Command, args: readonly string[] | undefined, options?: StreamOptions | number): ExecStream;
  execStream(cmd: Command, ...rest: Rest<StreamOptions>): ExecStream {
    return this.#stream(said<StreamOptions>("execStream", cmd, rest, ["stdin", "keepStdin"]));
  }

  #stream({ body, options: { signal, timeoutMs } }: Said<StreamOptions>): ExecStream {
    return new ExecStream(this.#transport, { method: "POST", path: this.#path("exec", "stream"), json: body, signal, timeoutMs, atLeastMs: SLOW_MS });
  }

  /**
   * Starts a command and returns once it runs. Its standard input stays open
   * until closeStdin; signal and timeoutMs are about the start only.
   */
  async runBackground(cmd: Command, options?: BackgroundOptions | number): Promise<Process>;
  async runBackground(cmd: Command, args: readonly string[] | undefined, options?: BackgroundOptions | number): Promise<Process>;
  async runBackground(cmd: Command, ...rest: Rest<BackgroundOptions>): Promise<Process> {
    const { body, options } = said<BackgroundOptions>("runBackground", cmd, rest, ["onStdout", "onStderr"]);
    const { onStdout, onStderr, signal, timeoutMs } = options;
    check.callback("onStdout", onStdout);
    check.callback("onStderr", onStderr);
    const request = { method: "GET", path: this.#path("exec", "ws"), signal, timeoutMs };
    return Process.open(this.#transport, request, { type: "start", exec: { ...body, background: true } }, { onStdout, onStderr });
  }

  /**
   * Opens a terminal, or attaches to one that is there. signal and timeoutMs are
   * about the opening only.
   */
  async pty(options: TerminalOptions = {}): Promise<Terminal> {
    return Terminal.open(this.#transport, this.processes, this.#path("exec", "pty"), options);
  }

  // Code

  /**
   * Runs code in a context and waits for it: state stays from one call to the
   * next. A string instead of options is the language. An error that the code
   * raises is in the run, and no error of the call. Aborting the call interrupts
   * the code.
   */
  async runCode(code: string, options?: string | (RunCodeOptions & CodeCallbacks)): Promise<CodeRun> {
    const given = typeof options === "string" ? { language: options } : options;
    const all = check.options<RunCodeOptions & CodeCallbacks>("runCode", given, [...RUN_CODE, ...CALLBACKS]);
    const { onStdout, onStderr, onResult, onError, ...rest } = all;
    for (const name of CALLBACKS) check.callback(name, all[name]);
    if (!onStdout && !onStderr && !onResult && !onError) return this.#bufferedCode(code, rest);
    const stream = this.#codeStream(code, rest);
    for await (const { type, text = "", result, exception } of stream) {
      if (type === "stdout") await onStdout?.(text);
      if (type === "stderr") await onStderr?.(text);
      if (result) await onResult?.(result);
      if (exception) await onError?.(exception);
    }
    return stream.run;
  }

  async #bufferedCode(code: string, options: RunCodeOptions): Promise<CodeRun> {
    const json = runRequest(code, options);
    const { timeoutSeconds, timeoutMs, signal } = options;
    const grace = Math.max(this.#transport.settings.timeoutMs, SILENCE_MS);
    const limit = timeoutMs ?? (timeoutSeconds ? timeoutSeconds * 1000 + grace : Infinity);
    const long = limit > FETCH_PATIENCE_MS;
    const via = long ? this.#transport.patient() : undefined;
    if (long && !via) return this.#codeStream(code, options).wait();
    const request = { method: "POST", path: this.#path("code"), json, timeoutMs: limit, signal };
    return this.#transport.read(await this.#transport.send(request, via), codeRun);
  }

  /**
   * Runs code in a context and gives what comes of it, as it comes. The code
   * starts when the first event is asked for; leaving the loop interrupts it.
   */
  runCodeStream(code: string, options?: string | RunCodeOptions): CodeStream {
    const given = typeof options === "string" ? { language: options } : options;
    return this.#codeStream(code, check.options<RunCodeOptions>("runCodeStream", given, RUN_CODE));
  }

  #codeStream(code: string, options: RunCodeOptions): CodeStream {
    const { signal, timeoutMs } = options;
    const json = { ...runRequest(code, options), stream: true };
    return new CodeStream(this.#transport, { method: "POST", path: this.#path("code"), json, signal, timeoutMs, atLeastMs: SLOW_MS });
  }

  /** Gives the languages that the sandbox can run. */
  async languages(options?: CallOptions): Promise<string[]> {
    return (await this.#transport.call<CodeLanguages>("CodeLanguages", this.#request("GET", ["code", "languages"], "languages", options))).languages;
  }

  /** Connects to the language server of a language. ConflictError (lsp.not_installed) says how to install one. */
  async lsp(language: string, options?: CallOptions): Promise<LanguageServer> {
    return LanguageServer.open(this.#transport, this.#path("lsp", check.identifier("language", language)), options);
  }

  /** The entry for this sandbox in the configuration of an MCP client: its tools work in it. It has the key in it. */
  mcpConfig(): McpConfig {
    return this.#transport.mcp(this.#path("mcp"));
  }

  // What it says of itself

  /**
   * Gives what processes in the sandbox wrote: text, or with follow a stream of
   * lines that goes on until it is left or the sandbox ends.
   */
  logs(options?: LogsOptions & { follow?: false | undefined }): Promise<string>;
  logs(options: LogsOptions & { follow: true }): Stream<LogLine>;
  logs(stream: LogStream, follow?: false): Promise<string>;
  logs(stream: LogStream, follow: true): Stream<LogLine>;
  logs(first?: LogsOptions | LogStream, following?: boolean): Promise<string> | Stream<LogLine> {
    const given = typeof first === "string" ? { stream: first, follow: following } : first;
    const { stream, tail, follow, signal, timeoutMs } = check.options<LogsOptions>("logs", given, ["stream", "tail", "follow"]);
    const query = {
      stream: check.choice("stream", stream ?? "both", ["stdout", "stderr", "both"]),
      tail: tail === undefined ? undefined : check.whole("tail", tail),
    };
    const request: Request = { method: "GET", path: this.#path("logs"), query, signal, timeoutMs };
    if (follow) return new Stream(this.#transport, "LogLine", { ...request, query: { ...query, follow: 1 }, atLeastMs: SLOW_MS });
    return this.#text(request);
  }

  async #text(request: Request): Promise<string> {
    const answer = await this.#transport.send({ ...request, accept: "text/plain" });
    if (answer.kind !== "text/plain") throw answer.unexpected();
    return answer.text();
  }

  /**
   * Gives what happened to the sandbox, oldest first: an array, or with follow a
   * stream that goes on until it is left or the sandbox ends.
   */
  events(options?: EventsOptions & { follow?: false | undefined }): Promise<SandboxEvent[]>;
  events(options: EventsOptions & { follow: true }): Stream<SandboxEvent>;
  events(options?: EventsOptions): Promise<SandboxEvent[]> | Stream<SandboxEvent> {
    const { tail, since, follow, signal, timeoutMs } = check.options("events", options, ["tail", "since", "follow"]);
    const query = {
      tail: tail === undefined ? undefined : check.whole("tail", tail),
      since: since instanceof Date ? since.toISOString() : typeof since === "string" ? check.text("since", since) : since === undefined ? undefined : check.whole("since", since),
    };
    const request: Request = { method: "GET", path: this.#path("events"), query, signal, timeoutMs };
    if (follow) return new Stream(this.#transport, "Event", { ...request, query: { ...query, follow: 1 }, atLeastMs: SLOW_MS });
    return this.#events(request);
  }

  async #events(request: Request): Promise<SandboxEvent[]> {
    return this.#transport.read(await this.#transport.send(request), (items) => {
      if (!Array.isArray(items)) throw new TypeError("events are an array");
      return items.map((item) => check.decode<SandboxEvent>("Event", item));
    });
  }

  /** Says what the sandbox uses now. */
  async metrics(options?: CallOptions): Promise<Metrics> {
    return this.#transport.call("Metrics", this.#request("GET", ["metrics"], "metrics", options));
  }

  /** Says what the sandbox used over the last while, at most an hour, without waking it. */
  async metricsSeries(options?: MetricsSeriesOptions): Promise<MetricsSeries> {
    const { range, step, signal, timeoutMs } = check.options("metricsSeries", options, ["range", "step"]);
    const query = { range: span("range", range), step: span("step", step) };
    return this.#transport.call("MetricsSeries", { method: "GET", path: ["v1", "metrics", "sandbox", this.#record.id], query, signal, timeoutMs });
  }

  /** Reads the record again. */
  async refresh(options?: CallOptions): Promise<this> {
    return this.#update(this.#request("GET", [], "refresh", options));
  }

  // Its life

  /** Ends the sandbox and all in it. */
  async kill(options?: CallOptions): Promise<void> {
    await this.#transport.do(this.#slow("DELETE", [], "kill", options));
  }

  /** Stops every process where it stands; memory stays on the host. */
  async pause(options?: CallOptions): Promise<this> {
    return this.#update(this.#slow("POST", ["pause"], "pause", options));
  }

  /** Lets a paused sandbox go on. */
  async resume(options?: CallOptions): Promise<this> {
    return this.#update(this.#slow("POST", ["resume"], "resume", options));
  }

  /** Puts the sandbox to disk with all its state and frees its memory. The next request that needs it wakes it. */
  async hibernate(options?: CallOptions): Promise<this> {
    return this.#update(this.#slow("POST", ["hibernate"], "hibernate", options));
  }

  /** Brings a hibernated sandbox back ahead of the request that would. */
  async wake(options?: CallOptions): Promise<this> {
    return this.#update(this.#slow("POST", ["wake"], "wake", options));
  }

  /** Says how long the sandbox lives and when it goes to sleep by itself. */
  async lifecycle(options?: CallOptions): Promise<Lifecycle> {
    return this.#transport.call("Lifecycle", this.#request("GET", ["lifecycle"], "lifecycle", options));
  }

  /** Changes what is given; the rest stays as it is. */
  async setLifecycle(change: Omit<Lifecycle, "expiresAt"> & CallOptions): Promise<Lifecycle> {
    const names = check.fieldsOf("Lifecycle").filter((name) => name !== "expiresAt");
    const { signal, timeoutMs, ...fields } = check.options("setLifecycle", change, names);
    const json = check.encode("Lifecycle", fields);
    return this.#transport.call("Lifecycle", { method: "PATCH", path: this.#path("lifecycle"), json, signal, timeoutMs });
  }

  /** Lets the sandbox live for so many seconds from now on. */
  async setTtl(seconds: number, options?: CallOptions): Promise<Lifecycle> {
    return this.setLifecycle({ ...options, ttlSeconds: check.whole("seconds", seconds, 1) });
  }

  /** Removes the time to live, or with false lets the server's default run from now on. */
  async setPersistent(persistent = true, options?: CallOptions): Promise<Lifecycle> {
    return this.setLifecycle({ ...options, persistent });
  }

  /** Lets the sandbox go to sleep after so many seconds without use; 0 is never. */
  async setIdle(seconds: number, options?: CallOptions): Promise<Lifecycle> {
    return this.setLifecycle({ ...options, idleSeconds: check.whole("seconds", seconds) });
  }

  // How it reaches and is reached

  /** Gives the address at which browsers find a port of the sandbox. */
  async previewUrl(port: number, options?: CallOptions): Promise<string> {
    const request = this.#request("POST", ["preview"], "previewUrl", options);
    return (await this.#transport.call<Preview>("Preview", { ...request, json: { port: portOf(port) } })).url;
  }

  /** Gives the addresses of these ports, or of all that something listens on, by port. */
  async previewUrls(ports?: readonly number[], options?: CallOptions): Promise<Record<number, string>> {
    if (ports !== undefined && !Array.isArray(ports)) throw new TypeError(`ports is an array of numbers, not ${check.kindOf(ports)}`);
    const found = ports
      ? await Promise.all(ports.map(async (port) => [port, await this.previewUrl(port, options)] as const))
      : (await this.ports.list(options)).filter((p) => p.listening).map((p) => [p.port, p.url] as const);
    return Object.fromEntries(found);
  }

  /** Gives an address of a port, private ones too, that works until it expires. A number is ttlSeconds. */
  async signedPreviewUrl(port: number, options?: PreviewTokenOptions | number): Promise<string> {
    return (await this.previewToken(port, options)).url;
  }

  /** Makes a token that opens the preview of a port until it expires, and an address with it. A number is ttlSeconds. */
  async previewToken(port: number, options?: PreviewTokenOptions | number): Promise<PreviewURL> {
    const given = typeof options === "number" ? { ttlSeconds: options } : options;
    const { ttlSeconds, signal, timeoutMs } = check.options<PreviewTokenOptions>("previewToken", given, ["ttlSeconds"]);
    const json: Record<string, number> = { port: portOf(port) };
    if (ttlSeconds !== undefined) json["ttl_seconds"] = check.whole("ttlSeconds", ttlSeconds, 1);
    return this.#transport.call("PreviewURL", { method: "POST", path: this.#path("preview-token"), json, signal, timeoutMs });
  }

  /** Says how to reach the sandbox by SSH, with a key that client.sshKeys has. */
  async ssh(options?: CallOptions): Promise<SSHInfo> {
    return this.#transport.call("SSHInfo", this.#request("GET", ["ssh"], "ssh", options));
  }

  // Copies of it

  /** Keeps the sandbox as it is now, memory and processes included, while it goes on running. A string is its name. */
  async snapshot(options?: string | SnapshotOptions): Promise<Snapshot> {
    const given = typeof options === "string" ? { name: options } : options;
    const { signal, timeoutMs, ...fields } = check.options<SnapshotOptions>("snapshot", given, check.fieldsOf("CreateSnapshot"));
    const json = check.encode("CreateSnapshot", fields);
    return this.#transport.call("Snapshot", { ...this.#slow("POST", ["snapshots"], "snapshot", { signal, timeoutMs }), json });
  }

  /** Gives the snapshots that were taken of the sandbox, newest first. Its checkpoints are not among them. */
  async snapshots(options?: CallOptions): Promise<Snapshot[]> {
    return listSnapshots(this.#transport, { ...check.options("snapshots", options, []), sandboxId: this.id, kind: "snapshot" });
  }

  /**
   * Makes a child that goes on from where the sandbox is now; it goes on itself
   * too. With a count it makes so many of one moment, as forkTree does. An
   * object that has none of the options is the metadata of the child.
   */
  async fork(options?: ForkOptions | Record<string, string>): Promise<Sandbox>;
  async fork(count: number, options?: ForkOptions | Record<string, string>): Promise<Sandbox[]>;
  async fork(first?: number | ForkOptions | Record<string, string>, second?: ForkOptions | Record<string, string>): Promise<Sandbox | Sandbox[]> {
    if (typeof first === "number") return (await this.#forkTree("fork", first, second)).children;
    const record = await this.#transport.call<SandboxRecord>("Sandbox", this.#forkRequest("fork", ["fork"], first, {}));
    return new Sandbox(this.#transport, record);
  }

  /** Makes count children of one moment: all of them or, with an error, none. */
  async forkTree(options: ForkTreeOptions): Promise<ForkTree>;
  async forkTree(count: number, options?: ForkOptions | Record<string, string>): Promise<ForkTree>;
  async forkTree(first: number | ForkTreeOptions, options?: ForkOptions | Record<string, string>): Promise<ForkTree> {
    if (typeof first === "number") return this.#forkTree("forkTree", first, options);
    if (!isObject(first)) throw new TypeError(`forkTree takes a count, or options with one, not ${check.kindOf(first)}`);
    const { count, ...rest } = first as ForkTreeOptions;
    return this.#forkTree("forkTree", count, rest);
  }

  async #forkTree(call: string, count: number, options: ForkOptions | Record<string, string> | undefined): Promise<ForkTree> {
    const request = this.#forkRequest(call, ["fork-tree"], options, { count: check.whole("count", count, 1) });
    return new ForkTree(this.#transport, await this.#transport.call("ForkTree", request));
  }

  #forkRequest(call: string, endpoint: string[], given: ForkOptions | Record<string, string> | undefined, more: object): Request {
    const names = check.fieldsOf("Fork").filter((name) => name !== "count");
    const { signal, timeoutMs, checkpoint, ...fields } = check.options<ForkOptions>(call, forkOptions(given, names), names);
    const json = {
      ...check.encode("Fork", fields),
      ...(checkpoint === undefined ? {} : { checkpoint: check.identifier("checkpoint", checkpoint) }),
      ...more,
    };
    return { ...this.#slow("POST", endpoint, call, { signal, timeoutMs }), json };
  }

  /** Marks the sandbox as the child of its tree to go on with. */
  async promote(options?: PromoteOptions): Promise<Promoted> {
    const { signal, timeoutMs, ...fields } = check.options("promote", options, check.fieldsOf("Promote"));
    const json = check.encode("Promote", fields);
    const promoted = await this.#transport.call<Promoted>("Promoted", { ...this.#slow("POST", ["promote"], "promote", { signal, timeoutMs }), json });
    this.#record = promoted.sandbox;
    return promoted;
  }

  /** Gives the lineage of the sandbox: all that descends from its oldest ancestor, parents before children, also what is gone. */
  async tree(options?: CallOptions): Promise<Tree> {
    return this.#transport.call("Tree", this.#request("GET", ["tree"], "tree", options));
  }

  /** Notes the sandbox as it is now on its timeline, for restore. */
  async checkpoint(name?: string, options?: CallOptions): Promise<Snapshot> {
    const json = name === undefined ? {} : { name: check.text("name", name) };
    return this.#transport.call("Snapshot", { ...this.#slow("POST", ["checkpoint"], "checkpoint", options), json });
  }

  /** Gives the timeline of the sandbox, oldest first. */
  async checkpoints(options?: CallOptions): Promise<Timeline> {
    return this.#transport.call("Timeline", this.#request("GET", ["checkpoints"], "checkpoints", options));
  }

  /** Removes a checkpoint, named by its id or name, from the timeline. */
  async deleteCheckpoint(checkpoint: string | { id: string }, options?: CallOptions): Promise<void> {
    const name = check.identifier("checkpoint", checkpoint);
    await this.#transport.do(this.#slow("DELETE", ["checkpoints", name], "deleteCheckpoint", options));
  }

  /**
   * Takes the sandbox back to a checkpoint, the newest unless named, with the
   * same id. What happened since is lost unless a checkpoint has it.
   */
  async restore(checkpoint?: string | { id: string }, options?: CallOptions): Promise<this> {
    const json = checkpoint === undefined ? {} : { checkpoint: check.identifier("checkpoint", checkpoint) };
    return this.#update({ ...this.#slow("POST", ["restore"], "restore", options), json });
  }

  /** Ends the sandbox, unless it has ended already. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.kill();
    } catch (e) {
      if (!(e instanceof NotFoundError)) throw e;
    }
  }

  #path(...more: string[]): string[] {
    return ["v1", "sandboxes", this.#record.id, ...more];
  }

  #request(method: string, endpoint: string[], call: string, options: CallOptions | undefined): Request {
    const { signal, timeoutMs } = check.options(call, options, []);
    return { method, path: this.#path(...endpoint), signal, timeoutMs };
  }

  #slow(method: string, endpoint: string[], call: string, options: CallOptions | undefined): Request {
    return { ...this.#request(method, endpoint, call, options), atLeastMs: SLOW_MS };
  }

  async #update(r: Request): Promise<this> {
    const record = await this.#transport.call<SandboxRecord>("Sandbox", r);
    if (record.id !== this.#record.id) throw unknownAnswer(this.#transport.settings, undefined, undefined);
    this.#record = record;
    return this;
  }
}

const CALLBACKS = ["onStdout", "onStderr", "onResult", "onError"] as const;

/** A time span as the server takes it. */
function span(name: string, value: number | string | undefined): string | undefined {
  if (value === undefined) return undefined;
  return typeof value === "number" ? String(check.whole(name, value, 1)) : check.text(name, value);
}

/** Tells options from metadata: labels are strings, and so is only one of the options. */
function forkOptions(given: ForkOptions | Record<string, string> | undefined, names: string[]): ForkOptions | undefined {
  if (!isObject(given)) return given as undefined;
  const all = Object.entries(given);
  const isOption = ([name, value]: [string, unknown]) => name === "checkpoint" || (names.includes(name) && typeof value !== "string");
  const labels = all.length > 0 && all.every(([, value]) => typeof value === "string") && !all.some(isOption);
  return labels ? { metadata: given as Record<string, string> } : (given as ForkOptions);
}

function clientOf(client: PandaStack | undefined): PandaStack {
  if (client === undefined) return new PandaStack();
  if (!(client instanceof PandaStack)) throw new TypeError(`client is a PandaStack, not ${check.kindOf(client)}`);
  return client;
}
