/**
 * What differs between Node, Bun, Deno and browsers. Modules of Node are asked
 * for at run time rather than imported, so that the package bundles for
 * browsers without settings.
 */

/** The part of Node's file system that this package uses. */
export interface NodeFS {
  readFileSync(path: string, encoding: "utf8"): string;
  openSync(path: string, flags: "r"): number;
  createReadStream(path: "", options: { fd: number }): AsyncIterable<Uint8Array>;
  realpathSync(path: string): string;
  statSync(path: string, options: { throwIfNoEntry: false }): { isFile(): boolean; mode: number } | undefined;
  promises: {
    open(path: string, flags: string, mode?: number): Promise<FileHandle>;
    rename(from: string, to: string): Promise<void>;
    rm(path: string, options: { force: true }): Promise<void>;
  };
}

export interface FileHandle {
  write(data: Uint8Array): Promise<{ bytesWritten: number }>;
  chmod(mode: number): Promise<void>;
  close(): Promise<void>;
}

/** The part of Node's sockets that this package uses. */
export interface NodeSocket {
  on(event: string, listener: (...args: any[]) => void): void;
  write(data: Uint8Array, done: (error?: Error | null) => void): boolean;
  destroy(error?: Error): void;
  end(): void;
  pause(): void;
  resume(): void;
  setTimeout(ms: number, listener?: () => void): void;
  setNoDelay(on: boolean): void;
}

export interface NodeAnswer extends AsyncIterable<Uint8Array> {
  statusCode: number;
  headers: Record<string, string | string[] | undefined>;
}

export interface NodeRequest {
  on(event: "upgrade", listener: (answer: NodeAnswer, socket: NodeSocket, head: Uint8Array) => void): void;
  on(event: "response", listener: (answer: NodeAnswer) => void): void;
  on(event: "error", listener: (error: Error) => void): void;
  on(event: "close", listener: () => void): void;
  readonly writableEnded: boolean;
  write(data: Uint8Array, done: (error?: Error | null) => void): boolean;
  end(body?: string | Uint8Array): void;
  destroy(error?: Error): void;
}

export interface NodeHTTP {
  request(url: string, options: Record<string, unknown>): NodeRequest;
  Agent: new (options: Record<string, unknown>) => object;
}

export interface NodeCrypto {
  randomBytes(size: number): Uint8Array & { toString(encoding: "base64"): string };
  createHash(name: "sha1"): { update(text: string): { digest(encoding: "base64"): string } };
}

interface NodeModules {
  "node:fs": NodeFS;
  "node:os": { homedir(): string };
  "node:http": NodeHTTP;
  "node:https": NodeHTTP;
  "node:crypto": NodeCrypto;
}

interface Process {
  env: Record<string, string | undefined>;
  versions?: Record<string, string>;
  getBuiltinModule?<K extends keyof NodeModules>(name: K): NodeModules[K] | undefined;
}

const found = (globalThis as { process?: Partial<Process> }).process;

/** Whether this runs on a server or a desk, with an environment and files. */
export const hasNode = typeof found?.versions?.["node"] === "string";

/** Whether this is Node itself: others have its modules, but other sockets. */
export const isNode = hasNode && !found?.versions?.["bun"] && !found?.versions?.["deno"];

/** A module of Node, or undefined where there is none. */
export function nodeModule<K extends keyof NodeModules>(name: K): NodeModules[K] | undefined {
  return hasNode ? found?.getBuiltinModule?.(name) : undefined;
}

/** A variable of the environment; undefined if it is not set, empty, or there is none. */
export function environment(name: string): string | undefined {
  return (hasNode && found?.env?.[name]) || undefined;
}

/** The file system of this machine, for an argument that is a path of it. */
export function localFiles(argument: string, instead: string): NodeFS {
  const fs = nodeModule("node:fs");
  if (!fs) throw new TypeError(`${argument} is a path, and there are no files here; pass ${instead}`);
  return fs;
}
