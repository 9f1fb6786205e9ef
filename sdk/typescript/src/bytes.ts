/** Bytes on their way between this machine and a sandbox. */

import { kindOf } from "./check.js";
import { localFiles, type FileHandle } from "./platform.js";
import type { Answer, Transport } from "./transport.js";

/** Bytes in any of the forms in which a program has them. The last two are streamed and may be of any length. */
export type Data = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** Where a file of this machine comes from: a path, or the bytes. */
export type Source = string | URL | Exclude<Data, string>;

/** Where a file of this machine goes: a path, or a stream to write to. */
export type Target = string | URL | WritableStream<Uint8Array>;

export function bodyOf(name: string, data: unknown): Uint8Array | Blob | ReadableStream<Uint8Array> {
  if (typeof data === "string") return new TextEncoder().encode(data);
  if (data instanceof Uint8Array || data instanceof Blob) return data;
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (typeof data === "object" && data !== null) {
    if ("getReader" in data) return streamOf(piecesOf(data as ReadableStream<Uint8Array>));
    if (Symbol.asyncIterator in data) return streamOf(data as AsyncIterable<Uint8Array>);
  }
  throw new TypeError(`${name} is a string, bytes, a Blob, or a stream of bytes, not ${kindOf(data)}`);
}

/** As bodyOf, where a string is a path of this machine. */
export function sourceOf(name: string, source: unknown): Uint8Array | Blob | ReadableStream<Uint8Array> {
  const path = localPath(source);
  if (path === undefined) return bodyOf(name, source);
  const fs = localFiles(name, "a Blob or a stream");
  return streamOf(fs.createReadStream("", { fd: fs.openSync(path, "r") }));
}

function localPath(value: unknown): string | undefined {
  if (!(value instanceof URL)) return typeof value === "string" ? value : undefined;
  if (value.protocol !== "file:") throw new RangeError(`${value.href} is not a file of this machine`);
  return decodeURIComponent(value.pathname);
}

const failures = new WeakMap<object, { error: unknown }>();

/** What went wrong where a body came from, rather than on its way. */
export function bodyFailure(body: unknown): { error: unknown } | undefined {
  return typeof body === "object" && body !== null ? failures.get(body) : undefined;
}

function streamOf(pieces: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const iterator = pieces[Symbol.asyncIterator]();
  const stream = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(typeof value === "string" ? new TextEncoder().encode(value) : value);
      } catch (error) {
        failures.set(stream, { error });
        throw error;
      }
    },
    async cancel(reason) {
      await iterator.return?.(reason);
    },
  });
  return stream;
}

async function* piecesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = stream.getReader();
  let ended = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if ((ended = done)) return;
      yield value!;
    }
  } finally {
    if (!ended) await reader.cancel().catch(() => undefined); // the one who stops reading knows why
    reader.releaseLock();
  }
}

/** The body of an answer as a stream that says what went wrong as every call does. */
export function download(transport: Transport, answer: Answer): ReadableStream<Uint8Array> {
  return streamOf(answer.chunks(transport.settings.timeoutMs));
}

/** Writes the body of an answer to a path or a stream, and gives its length. */
export async function save(transport: Transport, answer: Answer, target: Target): Promise<number> {
  const chunks = answer.chunks(transport.settings.timeoutMs);
  const path = localPath(target);
  try {
    return await (path === undefined ? saveStream(chunks, target as WritableStream<Uint8Array>) : savePath(chunks, path));
  } catch (e) {
    answer.cancel(); // perhaps nothing of it was read
    throw e;
  }
}

async function saveStream(chunks: AsyncIterable<Uint8Array>, target: WritableStream<Uint8Array>): Promise<number> {
  const writer = target.getWriter();
  let size = 0;
  try {
    for await (const chunk of chunks) {
      await writer.write(chunk);
      size += chunk.length;
    }
    await writer.close();
  } catch (e) {
    await writer.abort(e).catch(() => undefined); // e says why
    throw e;
  } finally {
    writer.releaseLock();
  }
  return size;
}

export function checkTarget(target: unknown): void {
  if (localPath(target) !== undefined) {
    localFiles("target", "a WritableStream");
    return;
  }
  if (typeof (target as { getWriter?: unknown } | null)?.getWriter !== "function") {
    throw new TypeError(`target is a path or a WritableStream, not ${kindOf(target)}`);
  }
}

/** A path has the whole file or, after an error, what it had before. */
async function savePath(chunks: AsyncIterable<Uint8Array>, path: string): Promise<number> {
  const fs = localFiles("target", "a WritableStream");
  const there = fs.statSync(path, { throwIfNoEntry: false });
  // A device or a pipe is written to, never replaced.
  if (there && !there.isFile()) return writeAll(await fs.promises.open(path, "w"), chunks);
  const final = there ? fs.realpathSync(path) : path;
  const partial = `${final}.${Math.random().toString(36).slice(2)}.partial`;
  try {
    const file = await fs.promises.open(partial, "wx", 0o666);
    const size = await writeAll(file, chunks, there && there.mode & 0o7777);
    await fs.promises.rename(partial, final);
    return size;
  } catch (e) {
    await fs.promises.rm(partial, { force: true });
    throw e;
  }
}

async function writeAll(file: FileHandle, chunks: AsyncIterable<Uint8Array>, mode?: number): Promise<number> {
  let size = 0;
  try {
    for await (const chunk of chunks) {
      for (let at = 0; at < chunk.length; ) at += (await file.write(chunk.subarray(at))).bytesWritten;
      size += chunk.length;
    }
    if (mode !== undefined) await file.chmod(mode);
  } finally {
    await file.close();
  }
  return size;
}
