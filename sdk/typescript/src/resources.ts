/** What a client offers beside the handle on a sandbox. */

import { checkTarget, download, save, sourceOf, type Source, type Target } from "./bytes.js";
import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import type {
  CreateSandbox,
  NewToken,
  Promoted,
  SandboxList,
  SandboxRecord,
  Snapshot,
  SnapshotList,
  Template,
  TemplateList,
  Token,
  TokenList,
  VolumeMount,
} from "./generated/models.js";
import { Sandbox, type ForkOptions, type ForkTree, type ForkTreeOptions, type PromoteOptions } from "./sandbox.js";
import { SLOW_MS, newName, type Request, type Transport } from "./transport.js";

const PAGE = 500;
const STATES = ["creating", "running", "paused", "hibernated", "deleting", "failed"] as const;

export interface CreateOptions extends Omit<CreateSandbox, "fromSnapshot" | "volumes">, CallOptions {
  /** A snapshot, its id or name, or the id of a checkpoint, to start from; template, driver and disk size are then its own. */
  fromSnapshot?: string | { id: string } | undefined;
  /** Volumes to attach; a string is a name. */
  volumes?: (VolumeMount | string)[] | undefined;
}

export interface ListOptions extends CallOptions {
  /** Labels that all must match. */
  metadata?: Record<string, string> | undefined;
  /** Any of these. */
  status?: SandboxRecord["status"] | SandboxRecord["status"][] | undefined;
  template?: string | undefined;
  /** At most so many. */
  limit?: number | undefined;
}

export interface ListSnapshotsOptions extends CallOptions {
  /** Taken of this sandbox, which may be gone. */
  sandboxId?: string | undefined;
  /** Default both. */
  kind?: Snapshot["kind"] | undefined;
  /** At most so many. */
  limit?: number | undefined;
}

/** Makes and finds sandboxes. */
export class Sandboxes {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Starts a sandbox and returns when it runs. A string is a template.
   *
   * Errors: NotFoundError (template.not_found, snapshot.not_found),
   * ConflictError (snapshot.incompatible), QuotaError, CapacityError,
   * BadRequestError.
   */
  async create(template: string, options?: CreateOptions): Promise<Sandbox>;
  async create(options?: CreateOptions): Promise<Sandbox>;
  async create(first: string | CreateOptions = {}, second: CreateOptions = {}): Promise<Sandbox> {
    const given = typeof first === "string" ? { ...second, template: check.text("template", first) } : first;
    const { signal, timeoutMs, fromSnapshot, volumes, ...fields } = check.options<CreateOptions>("create", given, check.fieldsOf("CreateSandbox"));
    const json = check.encode("CreateSandbox", {
      ...fields,
      fromSnapshot: fromSnapshot === undefined ? undefined : check.identifier("fromSnapshot", fromSnapshot),
      volumes: Array.isArray(volumes) ? volumes.map((v) => (typeof v === "string" ? { name: v } : v)) : volumes,
    });
    const idempotencyKey = newName();
    const request = { method: "POST", path: ["v1", "sandboxes"], json, idempotencyKey, signal, timeoutMs, atLeastMs: SLOW_MS };
    return new Sandbox(this.#transport, await this.#transport.call("Sandbox", request));
  }

  /** Finds a sandbox by its id (NotFoundError). */
  async get(id: string, options?: CallOptions): Promise<Sandbox> {
    return new Sandbox(this.#transport, await this.#transport.call("Sandbox", this.#request("GET", id, "get", options)));
  }

  /** Gives the caller's sandboxes, newest first. */
  async list(options?: ListOptions): Promise<Sandbox[]> {
    const { metadata, status, template, limit, signal, timeoutMs } = check.options("list", options, ["metadata", "status", "template", "limit"]);
    const states = status === undefined ? [] : Array.isArray(status) ? status : [status];
    const query = {
      metadata: metadata === undefined ? undefined : JSON.stringify(check.labels("metadata", metadata)),
      status: states.map((s) => check.choice("status", s, STATES)).join(",") || undefined,
      template: template === undefined ? undefined : check.text("template", template),
    };
    const request = { method: "GET", path: ["v1", "sandboxes"], query, signal, timeoutMs };
    const records = await pages(this.#transport, request, limit, (page) => {
      const list = check.decode<SandboxList>("SandboxList", page);
      return [list.sandboxes, list.nextPage];
    });
    return records.map((record) => new Sandbox(this.#transport, record));
  }

  /** Ends a sandbox and all in it (NotFoundError). */
  async delete(id: string, options?: CallOptions): Promise<void> {
    await this.#transport.do({ ...this.#request("DELETE", id, "delete", options), atLeastMs: SLOW_MS });
  }

  /** Makes a child of a sandbox. See Sandbox.fork. */
  async fork(id: string, options?: ForkOptions | Record<string, string>): Promise<Sandbox> {
    return this.#handle(id).fork(options);
  }

  /** Makes children of a sandbox at one moment. See Sandbox.forkTree. */
  async forkTree(id: string, options: ForkTreeOptions): Promise<ForkTree>;
  async forkTree(id: string, count: number, options?: ForkOptions | Record<string, string>): Promise<ForkTree>;
  async forkTree(id: string, first: number | ForkTreeOptions, options?: ForkOptions | Record<string, string>): Promise<ForkTree> {
    const sandbox = this.#handle(id);
    return typeof first === "number" ? sandbox.forkTree(first, options) : sandbox.forkTree(first);
  }

  /** Marks a sandbox as the child of its tree to go on with. See Sandbox.promote. */
  async promote(id: string, options?: PromoteOptions): Promise<Promoted> {
    return this.#handle(id).promote(options);
  }

  /** A handle that was not read from the server, for one call. */
  #handle(id: string): Sandbox {
    return new Sandbox(this.#transport, { id: check.identifier("id", id) } as SandboxRecord);
  }

  #request(method: string, id: string, call: string, options: CallOptions | undefined): Request {
    const { signal, timeoutMs } = check.options(call, options, []);
    return { method, path: ["v1", "sandboxes", check.identifier("id", id)], signal, timeoutMs };
  }
}

/** Finds, removes and moves snapshots. Sandbox.snapshot makes one. */
export class Snapshots {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Gives the caller's snapshots, newest first. */
  async list(options?: ListSnapshotsOptions): Promise<Snapshot[]> {
    return listSnapshots(this.#transport, options);
  }

  /** Finds a snapshot by its id or name (NotFoundError). */
  async get(snapshot: string, options?: CallOptions): Promise<Snapshot> {
    return this.#transport.call("Snapshot", this.#request("GET", snapshot, "get", options));
  }

  /** Removes a snapshot. Sandboxes that were made from it go on (NotFoundError, ConflictError). */
  async delete(snapshot: string | { id: string }, options?: CallOptions): Promise<void> {
    await this.#transport.do({ ...this.#request("DELETE", snapshot, "delete", options), atLeastMs: SLOW_MS });
  }

  /**
   * Reads a snapshot as one file, which import takes on any server: a stream,
   * or with a path or a stream to write to its length.
   */
  async export(snapshot: string | { id: string }, target?: undefined, options?: CallOptions): Promise<ReadableStream<Uint8Array>>;
  async export(snapshot: string | { id: string }, target: Target, options?: CallOptions): Promise<number>;
  async export(snapshot: string | { id: string }, target?: Target, options?: CallOptions): Promise<ReadableStream<Uint8Array> | number> {
    if (target !== undefined) checkTarget(target);
    const request = this.#request("GET", snapshot, "export", options);
    const accept = "application/octet-stream";
    const answer = await this.#transport.send({ ...request, path: [...request.path, "export"], accept, atLeastMs: SLOW_MS });
    if (answer.kind !== accept) throw answer.unexpected();
    return target === undefined ? download(this.#transport, answer) : save(this.#transport, answer, target);
  }

  /** Makes a snapshot of a file that export wrote, a path or its bytes. */
  async import(source: Source, options?: CallOptions & { name?: string | undefined }): Promise<Snapshot> {
    const { name, signal, timeoutMs } = check.options("import", options, ["name"]);
    const query = { name: name === undefined ? undefined : check.text("name", name) };
    const path = ["v1", "snapshots", "import"];
    return this.#transport.call("Snapshot", { method: "POST", path, query, body: sourceOf("source", source), signal, timeoutMs, atLeastMs: SLOW_MS });
  }

  #request(method: string, snapshot: unknown, call: string, options: CallOptions | undefined): Request {
    const { signal, timeoutMs } = check.options(call, options, []);
    return { method, path: ["v1", "snapshots", check.identifier("snapshot", snapshot)], signal, timeoutMs };
  }
}

/** Finds the images that sandboxes start from. */
export class Templates {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Gives every template of the server. */
  async list(options?: CallOptions): Promise<Template[]> {
    const { signal, timeoutMs } = check.options("list", options, []);
    const list = await this.#transport.call<TemplateList>("TemplateList", { method: "GET", path: ["v1", "templates"], signal, timeoutMs });
    return list.templates;
  }

  /** Gives one template (NotFoundError). While it is being built, progress and percent say how far it is. */
  async get(name: string, options?: CallOptions): Promise<Template> {
    const { signal, timeoutMs } = check.options("get", options, []);
    return this.#transport.call("Template", { method: "GET", path: ["v1", "templates", check.identifier("name", name)], signal, timeoutMs });
  }
}

/** Makes and revokes API keys. */
export class Tokens {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Makes a key, which needs an admin key (AuthError). Its secret is in the answer and nowhere else. */
  async create(name: string, options?: CallOptions & { admin?: boolean | undefined }): Promise<NewToken> {
    const { admin, signal, timeoutMs } = check.options("create", options, ["admin"]);
    const json = check.encode("CreateToken", { name: check.text("name", name), admin });
    return this.#transport.call("NewToken", { method: "POST", path: ["v1", "me", "tokens"], json, signal, timeoutMs });
  }

  /** Gives the caller's keys without their secrets. */
  async list(options?: CallOptions): Promise<Token[]> {
    const { signal, timeoutMs } = check.options("list", options, []);
    const list = await this.#transport.call<TokenList>("TokenList", { method: "GET", path: ["v1", "me", "tokens"], signal, timeoutMs });
    return list.tokens;
  }

  /** Ends a key, named by its prefix (NotFoundError). */
  async revoke(prefix: string, options?: CallOptions): Promise<void> {
    const { signal, timeoutMs } = check.options("revoke", options, []);
    await this.#transport.do({ method: "DELETE", path: ["v1", "me", "tokens", check.identifier("prefix", prefix)], signal, timeoutMs });
  }
}

export async function listSnapshots(transport: Transport, options?: ListSnapshotsOptions): Promise<Snapshot[]> {
  const { sandboxId, kind, limit, signal, timeoutMs } = check.options("list", options, ["sandboxId", "kind", "limit"]);
  const query = {
    sandbox_id: sandboxId === undefined ? undefined : check.identifier("sandboxId", sandboxId),
    kind: kind === undefined ? undefined : check.choice("kind", kind, ["snapshot", "checkpoint"]),
  };
  return pages(transport, { method: "GET", path: ["v1", "snapshots"], query, signal, timeoutMs }, limit, (page) => {
    const list = check.decode<SnapshotList>("SnapshotList", page);
    return [list.snapshots, list.nextPage];
  });
}

/** Reads a list page by page. */
async function pages<T>(
  transport: Transport,
  request: Request,
  limit: number | undefined,
  read: (page: unknown) => [items: T[], next: string | undefined],
): Promise<T[]> {
  const most = limit === undefined ? Infinity : check.whole("limit", limit, 1);
  const out: T[] = [];
  let page: string | undefined;
  for (;;) {
    const query = { ...request.query, limit: Math.min(PAGE, most - out.length), page };
    const [items, next] = await transport.read(await transport.send({ ...request, query }), read);
    out.push(...items);
    if (!next || next === page || out.length >= most) return out.slice(0, most);
    page = next;
  }
}
