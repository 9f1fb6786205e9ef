/** The files of a sandbox. */

import { bodyOf, checkTarget, download, save, sourceOf, type Data, type Source, type Target } from "./bytes.js";
import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import { NotFoundError } from "./errors.js";
import type {
  ChangeMode,
  ChangeOwner,
  Changed,
  DirList,
  Extracted,
  FileEvent,
  FileInfo,
  Glob,
  GlobResult,
  LinkTarget,
  Replace,
  ReplaceResult,
  Search,
  SearchResult,
  SignFile,
  SignedFile,
} from "./generated/models.js";
import type { SchemaName } from "./generated/schemas.js";
import { Stream } from "./stream.js";
import { SLOW_MS, type Answer, type Request, type Transport } from "./transport.js";

export interface FileOptions extends CallOptions {
  /** Whose home directory relative paths start in, and who owns what is made; default the sandbox's user. */
  user?: string | undefined;
}

export interface ReadOptions extends FileOptions {
  /** text gives a string, and a TypeError if the file is not UTF-8; stream is for files too large for memory. */
  format?: "text" | "bytes" | "stream" | undefined;
  /** Begin at this byte. A part of a file is best read as bytes: a character may be cut. */
  offset?: number | undefined;
  /** At most so many bytes; default all that follow. */
  length?: number | undefined;
}

export interface WriteOptions extends FileOptions {
  /** Whoever reads the file sees its old bytes or its new ones, whatever happens. */
  atomic?: boolean | undefined;
  /** Write from here on, no further than the file's end, and drop what was behind. What has come stays when it breaks off. */
  offset?: number | undefined;
}

export interface ListDirOptions extends FileOptions {
  /** Levels of directories to list; default 1. */
  depth?: number | undefined;
}

export interface CopyOptions extends FileOptions {
  /** Replace files that are there; without it one that is there is a ConflictError (file.exists). */
  overwrite?: boolean | undefined;
}

export interface ChmodOptions extends FileOptions, Omit<ChangeMode, "path" | "mode"> {}

export interface ChownOptions extends FileOptions, Omit<ChangeOwner, "path"> {}

export interface GlobOptions extends FileOptions, Omit<Glob, "pattern"> {}

export interface SearchOptions extends FileOptions, Omit<Search, "pattern"> {}

export interface ReplaceOptions extends FileOptions, Omit<Replace, "pattern" | "replacement"> {}

export interface WatchOptions extends FileOptions {
  /** Also directories within, and new ones. */
  recursive?: boolean | undefined;
}

export interface SignOptions extends CallOptions, Omit<SignFile, "path" | "operation"> {
  /** read (the default) gives a URL to GET, write one to PUT. */
  operation?: SignFile["operation"] | undefined;
}

// What the server allows a search unless told otherwise.
const SEARCH_SECONDS = 30;

/**
 * The filesystem of a sandbox.
 *
 * Relative paths start in the home directory of the user; what is made belongs
 * to that user. Failures carry file.* codes: NotFoundError (file.not_found),
 * BadRequestError (file.permission_denied, file.is_directory), CapacityError
 * (file.no_space) and others.
 */
export class Filesystem {
  readonly #transport: Transport;
  readonly #base: readonly string[];

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#base = ["v1", "sandboxes", sandboxId, "fs"];
  }

  #request(method: string, endpoint: string[], path: string, call: string, options: FileOptions | undefined, more: string[] = []): Request {
    const { signal, timeoutMs, user } = check.options(call, options, ["user", ...more]);
    const query = { path: check.path("path", path), user: user === undefined ? undefined : check.text("user", user) };
    return { method, path: [...this.#base, ...endpoint], query, signal, timeoutMs };
  }

  /** Reads a file, as text unless options say otherwise. */
  read(path: string, options?: ReadOptions & { format?: "text" | undefined }): Promise<string>;
  read(path: string, options: ReadOptions & { format: "bytes" }): Promise<Uint8Array>;
  read(path: string, options: ReadOptions & { format: "stream" }): Promise<ReadableStream<Uint8Array>>;
  read(path: string, options: ReadOptions): Promise<string | Uint8Array | ReadableStream<Uint8Array>>;
  async read(path: string, options?: ReadOptions): Promise<string | Uint8Array | ReadableStream<Uint8Array>> {
    const request = this.#request("GET", [], path, "read", options, ["format", "offset", "length"]);
    const format = check.choice("format", options?.format ?? "text", ["text", "bytes", "stream"]);
    const answer = await this.#content({ ...request, headers: range(options) });
    if (format === "stream") return download(this.#transport, answer);
    const bytes = await answer.bytes();
    if (format === "bytes") return bytes;
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch (e) {
      throw new TypeError(`${path} is not UTF-8 text; read it with format "bytes"`, { cause: e });
    }
  }

  /** Makes or replaces a file, and the directories above it. */
  async write(path: string, data: Data, options?: WriteOptions): Promise<FileInfo> {
    const request = this.#request("PUT", [], path, "write", options, ["atomic", "offset"]);
    request.query = {
      ...request.query,
      atomic: options?.atomic ? "true" : undefined,
      offset: options?.offset === undefined ? undefined : check.whole("offset", options.offset),
    };
    return this.#transport.call("FileInfo", { ...request, body: bodyOf("data", data), atLeastMs: SLOW_MS });
  }

  /** Puts bytes at the end of a file, which is made if need be. */
  async append(path: string, data: Data, options?: FileOptions): Promise<FileInfo> {
    const request = this.#request("POST", ["append"], path, "append", options);
    return this.#transport.call("FileInfo", { ...request, body: bodyOf("data", data), atLeastMs: SLOW_MS });
  }

  /** Copies a file of this machine, a path or its bytes, into the sandbox. */
  async upload(source: Source, path: string, options?: FileOptions): Promise<FileInfo> {
    const request = this.#request("PUT", [], path, "upload", options);
    return this.#transport.call("FileInfo", { ...request, body: sourceOf("source", source), atLeastMs: SLOW_MS });
  }

  /**
   * Copies a file of the sandbox to this machine, and gives its length. A path
   * has the whole file or, after an error, what it had before.
   */
  async download(path: string, target: Target, options?: FileOptions): Promise<number> {
    const request = this.#request("GET", [], path, "download", options);
    checkTarget(target);
    return save(this.#transport, await this.#content(request), target);
  }

  /** Asks for the bytes of a file. Those of another kind, such as a page of a proxy, are not the file's. */
  async #content(request: Request): Promise<Answer> {
    const answer = await this.#transport.send({ ...request, accept: "*/*" });
    if (answer.kind !== "application/octet-stream") throw answer.unexpected();
    return answer;
  }

  /** Lists a directory, by default the home directory. */
  async list(path = ".", options?: ListDirOptions): Promise<FileInfo[]> {
    const request = this.#request("GET", ["dir"], path, "list", options, ["depth"]);
    const depth = options?.depth === undefined ? undefined : check.whole("depth", options.depth, 1);
    const list = await this.#transport.call<DirList>("DirList", { ...request, query: { ...request.query, depth } });
    return list.entries;
  }

  /** Describes a file or directory. */
  async stat(path: string, options?: FileOptions): Promise<FileInfo> {
    return this.#transport.call("FileInfo", this.#request("GET", ["stat"], path, "stat", options));
  }

  /** Whether there is something at a path. */
  async exists(path: string, options?: FileOptions): Promise<boolean> {
    try {
      await this.stat(path, options);
    } catch (e) {
      if (e instanceof NotFoundError && e.code === "file.not_found") return false;
      throw e;
    }
    return true;
  }

  /** Makes a directory and those above it. One that exists is no error. */
  async mkdir(path: string, options?: FileOptions): Promise<FileInfo> {
    return this.#transport.call("FileInfo", this.#request("POST", ["dir"], path, "mkdir", options));
  }

  /** Removes a file, or a directory with all that is in it. */
  async remove(path: string, options?: FileOptions): Promise<void> {
    await this.#transport.do(this.#request("DELETE", [], path, "remove", options));
  }

  /** Moves a file or directory. */
  async move(path: string, to: string, options?: FileOptions): Promise<FileInfo> {
    const json = { from: check.path("path", path), to: check.path("to", to) };
    return this.#transport.call("FileInfo", this.#operation("move", "move", options, json));
  }

  /** The same as move. */
  async rename(path: string, to: string, options?: FileOptions): Promise<FileInfo> {
    return this.move(path, to, options);
  }

  // The operations whose body is JSON

  #operation(endpoint: string, call: string, options: FileOptions | undefined, json: object, more: string[] = []): Request {
    const { signal, timeoutMs, user } = check.options(call, options, ["user", ...more]);
    const query = { user: user === undefined ? undefined : check.text("user", user) };
    return { method: "POST", path: [...this.#base, endpoint], query, json, signal, timeoutMs };
  }

  /** The same for a body of which options have a part. */
  #described(endpoint: string, call: string, schema: SchemaName, options: FileOptions | undefined, positional: object): Request {
    const names = check.fieldsOf(schema).filter((name) => !Object.hasOwn(positional, name));
    const { user: _, ...fields } = (options ?? {}) as Record<string, unknown>;
    return this.#operation(endpoint, call, options, check.encode(schema, { ...fields, ...positional }), names);
  }

  /** Copies a file, or a directory with all that is in it, to a path of its own, and says how many. */
  async copy(path: string, to: string, options?: CopyOptions): Promise<number> {
    const request = this.#described("copy", "copy", "CopyFile", options, { from: check.path("path", path), to: check.path("to", to) });
    return (await this.#transport.call<Changed>("Changed", { ...request, atLeastMs: SLOW_MS })).count;
  }

  /** Sets permissions: octal digits such as "755", or a number such as 0o755. Says of how many files. */
  async chmod(path: string, mode: string | number, options?: ChmodOptions): Promise<number> {
    const octal = typeof mode === "number" ? check.whole("mode", mode).toString(8).padStart(3, "0") : check.text("mode", mode);
    const request = this.#described("chmod", "chmod", "ChangeMode", options, { path: check.path("path", path), mode: octal });
    return (await this.#transport.call<Changed>("Changed", request)).count;
  }

  /** Sets the owner, the group, or both, by name or number. Says of how many files. */
  async chown(path: string, options: ChownOptions): Promise<number> {
    const request = this.#described("chown", "chown", "ChangeOwner", options, { path: check.path("path", path) });
    return (await this.#transport.call<Changed>("Changed", request)).count;
  }

  /** Makes a symbolic link at a path that says target, which need not exist. */
  async symlink(target: string, path: string, options?: FileOptions): Promise<void> {
    const json = { path: check.path("path", path), target: check.path("target", target) };
    await this.#transport.do(this.#operation("symlink", "symlink", options, json));
  }

  /** Gives what a symbolic link says. */
  async readlink(path: string, options?: FileOptions): Promise<string> {
    return (await this.#transport.call<LinkTarget>("LinkTarget", this.#request("GET", ["readlink"], path, "readlink", options))).target;
  }

  /** Finds files by the pattern of their path, in which ** is any directories. */
  async glob(pattern: string, options?: GlobOptions): Promise<GlobResult> {
    const request = this.#described("glob", "glob", "Glob", options, { pattern: check.text("pattern", pattern) });
    return this.#transport.call("GlobResult", request);
  }

  /** Finds lines of files by a regular expression, or files by name. */
  async search(pattern: string, options?: SearchOptions): Promise<SearchResult> {
    const request = this.#described("search", "search", "Search", options, { pattern: check.text("pattern", pattern) });
    return this.#transport.long("SearchResult", request, options?.timeoutSeconds || SEARCH_SECONDS);
  }

  /** Replaces what a regular expression matches in files. Each file is changed as a whole or left as it was. */
  async replace(pattern: string, replacement: string, options?: ReplaceOptions): Promise<ReplaceResult> {
    if (typeof replacement !== "string") throw new TypeError(`replacement is a string, not ${check.kindOf(replacement)}`);
    const request = this.#described("replace", "replace", "Replace", options, { pattern: check.text("pattern", pattern), replacement });
    return this.#transport.long("ReplaceResult", request, options?.timeoutSeconds || SEARCH_SECONDS);
  }

  // Whole directories

  /** Reads a directory, or one file, as a tar.gz: a stream, or with a path or a stream to write to its length. */
  async downloadArchive(path: string, target?: undefined, options?: FileOptions): Promise<ReadableStream<Uint8Array>>;
  async downloadArchive(path: string, target: Target, options?: FileOptions): Promise<number>;
  async downloadArchive(path: string, target?: Target, options?: FileOptions): Promise<ReadableStream<Uint8Array> | number> {
    if (target !== undefined) checkTarget(target);
    const request = this.#request("GET", ["archive"], path, "downloadArchive", options);
    const answer = await this.#transport.send({ ...request, accept: "application/gzip", atLeastMs: SLOW_MS });
    if (answer.kind !== "application/gzip") throw answer.unexpected();
    return target === undefined ? download(this.#transport, answer) : save(this.#transport, answer, target);
  }

  /** Makes the files of a tar or tar.gz, a path of this machine or its bytes, below a directory. */
  async uploadArchive(source: Source, path: string, options?: FileOptions): Promise<Extracted> {
    const request = this.#request("PUT", ["archive"], path, "uploadArchive", options);
    return this.#transport.call("Extracted", { ...request, body: sourceOf("source", source), atLeastMs: SLOW_MS });
  }

  /**
   * Follows the changes of a directory. Every one from when it returns on will
   * come, or one of the type overflow, which says that some were lost. Leaving
   * the loop ends it.
   *
   *     for await (const { type, path } of await sandbox.filesystem.watch("src", { recursive: true })) console.log(type, path);
   */
  async watch(path: string, options?: WatchOptions): Promise<Stream<FileEvent>> {
    const request = this.#request("GET", ["watch"], path, "watch", options, ["recursive"]);
    const query = { ...request.query, recursive: options?.recursive ? "true" : undefined };
    return Stream.begin(this.#transport, "FileEvent", { ...request, query, atLeastMs: SLOW_MS });
  }

  /** Makes a URL that works without a key until it expires, for this one file and operation. */
  async signedUrl(path: string, options?: SignOptions): Promise<SignedFile> {
    const { signal, timeoutMs, operation, ...fields } = check.options("signedUrl", options, ["operation", "user", "expiresSeconds"]);
    const allowed = check.choice("operation", operation ?? "read", ["read", "write"]);
    const json = check.encode("SignFile", { ...fields, path: check.path("path", path), operation: allowed });
    return this.#transport.call("SignedFile", { method: "POST", path: [...this.#base, "sign"], json, signal, timeoutMs });
  }
}

function range(options: ReadOptions | undefined): Record<string, string> | undefined {
  const { offset, length } = options ?? {};
  if (offset === undefined && length === undefined) return undefined;
  const first = offset === undefined ? 0 : check.whole("offset", offset);
  return { range: `bytes=${first}-${length === undefined ? "" : first + check.whole("length", length, 1) - 1}` };
}
