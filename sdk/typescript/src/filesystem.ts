/** The files of a sandbox. */

import { bodyOf, checkTarget, download, save, sourceOf, type Data, type Source, type Target } from "./bytes.js";
import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import { NotFoundError } from "./errors.js";
import type { DirList, FileInfo } from "./generated/models.js";
import { SLOW_MS, type Request, type Transport } from "./transport.js";

export interface FileOptions extends CallOptions {
  /** Whose home directory relative paths start in, and who owns what is made; default the sandbox's user. */
  user?: string | undefined;
}

export interface ReadOptions extends FileOptions {
  /** text gives a string, and a TypeError if the file is not UTF-8; stream is for files too large for memory. */
  format?: "text" | "bytes" | "stream" | undefined;
}

export interface ListDirOptions extends FileOptions {
  /** Levels of directories to list; default 1. */
  depth?: number | undefined;
}

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
    const request = this.#request("GET", [], path, "read", options, ["format"]);
    const format = check.choice("format", options?.format ?? "text", ["text", "bytes", "stream"]);
    const answer = await this.#transport.send({ ...request, accept: "*/*" });
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
  async write(path: string, data: Data, options?: FileOptions): Promise<FileInfo> {
    const request = this.#request("PUT", [], path, "write", options);
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
    return save(this.#transport, await this.#transport.send({ ...request, accept: "*/*" }), target);
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
  async rename(path: string, to: string, options?: FileOptions): Promise<FileInfo> {
    const request = this.#request("POST", ["move"], path, "rename", options);
    const json = { from: check.path("path", path), to: check.path("to", to) };
    return this.#transport.call("FileInfo", { ...request, query: { user: request.query?.["user"] }, json });
  }
}
