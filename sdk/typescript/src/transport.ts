/**
 * Requests, tries and answers.
 *
 * A request is tried again only where that cannot do anything twice: a GET, or
 * one with an idempotency key, when the connection breaks or the server says
 * that trying again can help; any other when no connection could be made, so
 * that nothing of it was sent.
 */

import { bodyFailure } from "./bytes.js";
import { decode, type CallOptions } from "./check.js";
import type { Settings } from "./config.js";
import { NetworkError, PandaStackError, TimeoutError, coded, described, isObject } from "./errors.js";
import type { SchemaName } from "./generated/schemas.js";
import { patientFetch, type Fetch } from "./patient.js";
import { hasNode } from "./platform.js";

/** What makes or moves a whole sandbox may take this long. */
export const SLOW_MS = 300_000;
/** A server sends something on an idle stream every 15 s. */
export const SILENCE_MS = 60_000;
/** Node's fetch gives up on an answer that has not begun after 300 s. */
export const FETCH_PATIENCE_MS = 240_000;

const ERROR_BODY_LIMIT = 1 << 20;
// Waits between tries: the base doubles each time, less a random part. The
// server's Retry-After is followed up to the maximum.
const RETRY_BASE_MS = 100;
const RETRY_MAX_MS = 5000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** One call of the API. */
export interface Request extends CallOptions {
  method: string;
  /** Segments, not yet escaped. */
  path: readonly string[];
  query?: Record<string, string | number | undefined> | undefined;
  json?: unknown;
  /** Sent as it is, instead of json. */
  body?: Uint8Array | Blob | ReadableStream<Uint8Array> | undefined;
  accept?: string | undefined;
  /** Beside those that every request has. */
  headers?: Record<string, string> | undefined;
  /** The server does it once, however often it is sent. */
  idempotencyKey?: string | undefined;
  /** The least time to wait for the answer, where the caller gives none. */
  atLeastMs?: number | undefined;
}

/** The entry for a server in the configuration of an MCP client. */
export interface McpConfig {
  type: "http";
  url: string;
  /** They have the key in them. */
  headers: Record<string, string>;
}

/** One server and one key. Connections are those of the fetch of this runtime. */
export class Transport {
  readonly settings: Settings;
  readonly #fetch: Fetch;

  constructor(settings: Settings) {
    this.settings = settings;
    // Looked up at each call: a program may replace it, and it wants its own this.
    this.#fetch = settings.fetch ?? ((url, init) => globalThis.fetch(url, init));
  }

  /** Makes a call whose answer is a record. */
  async call<T>(schema: SchemaName, r: Request): Promise<T> {
    return this.read(await this.send(r), (value) => decode<T>(schema, value));
  }

  /**
   * Makes a call whose answer is a record, and for which the server may take so
   * many seconds of its own.
   */
  async long<T>(schema: SchemaName, r: Request, seconds: number): Promise<T> {
    const timeoutMs = r.timeoutMs ?? seconds * 1000 + Math.max(this.settings.timeoutMs, SILENCE_MS);
    const via = timeoutMs > FETCH_PATIENCE_MS ? this.patient() : undefined;
    return this.read(await this.send({ ...r, timeoutMs }, via), (value) => decode<T>(schema, value));
  }

  /** Makes a call whose answer, if there is one, says nothing. */
  async do(r: Request, via?: Fetch): Promise<void> {
    await (await this.send(r, via)).bytes();
  }

  /** Reads a JSON answer. */
  async read<T>(answer: Answer, convert: (value: unknown) => T): Promise<T> {
    if (answer.kind !== "application/json") throw answer.unexpected();
    const body = await answer.text();
    try {
      return convert(JSON.parse(body));
    } catch (e) {
      throw unknownAnswer(this.settings, answer.response, e);
    }
  }

  /** Makes a call and gives its answer, which must be read or cancelled. */
  async send(r: Request, via: Fetch = this.#fetch): Promise<Answer> {
    const [url, init] = [this.url(r), this.#init(r)];
    for (let attempt = 0; ; attempt++) {
      r.signal?.throwIfAborted();
      const outcome = await this.#attempt(r, url, init, via);
      if (outcome instanceof Answer) return outcome;
      const wait = this.#waitBeforeRetry(r, attempt, outcome);
      if (wait === undefined) throw outcome.error;
      await sleep(wait, r.signal);
    }
  }

  /** How to make a call whose answer may be long in coming; undefined where fetch gives up. */
  patient(): Fetch | undefined {
    return this.settings.fetch ? undefined : patientFetch();
  }

  url(r: Request): string {
    const path = r.path.map(encodeURIComponent).join("/");
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(r.query ?? {})) if (value !== undefined) query.set(name, String(value));
    return `${this.settings.baseUrl}/${path}${query.size ? `?${query.toString()}` : ""}`;
  }

  /** What an MCP client needs to know to use the server. */
  mcp(path: readonly string[]): McpConfig {
    const request = { method: "POST", path };
    const authorization = this.headers({ ...request, path: ["v1"] })["authorization"]!;
    return { type: "http", url: this.url(request), headers: { Authorization: authorization } };
  }

  headers(r: Request): Record<string, string> {
    const out: Record<string, string> = { accept: r.accept ?? "application/json", ...r.headers };
    // Browsers have their own.
    if (hasNode) out["user-agent"] = this.settings.userAgent;
    if (this.settings.key) {
      out["authorization"] = `Bearer ${this.settings.key}`;
    } else if (r.path[0] === "v1") {
      throw coded("auth.invalid_token", "there is no API key", {
        hint: "Set PANDASTACK_API_KEY, pass apiKey, or run `pandastack auth login`; the first key is in admin.key of the server's data directory.",
      });
    }
    if (r.idempotencyKey) out["idempotency-key"] = r.idempotencyKey;
    if (r.json !== undefined) out["content-type"] = "application/json";
    else if (r.body !== undefined) out["content-type"] = "application/octet-stream";
    return out;
  }

  #init(r: Request): RequestInit {
    const init: RequestInit & { duplex?: "half" } = { method: r.method, headers: this.headers(r), redirect: "manual" };
    if (r.json !== undefined) init.body = JSON.stringify(r.json);
    else if (r.body !== undefined) init.body = r.body as BodyInit;
    if (isStream(r.body)) init.duplex = "half";
    return init;
  }

  /** How long to wait for an answer. */
  patience(r: Request): number {
    return r.timeoutMs ?? Math.max(this.settings.timeoutMs, r.atLeastMs ?? 0);
  }

  async #attempt(r: Request, url: string, init: RequestInit, via: Fetch): Promise<Answer | Failed> {
    const limit = this.patience(r);
    const deadline = new Deadline(limit, r.signal);
    const sending = { ...init, signal: deadline.signal };
    if (isStream(r.body)) sending.body = paced(r.body, deadline, limit);
    try {
      const response = await via(url, sending);
      deadline.answered();
      const answer = new Answer(this.settings, response, deadline, limit);
      if (response.ok) return answer;
      return { error: await answer.error(), connected: true };
    } catch (e) {
      deadline.release();
      r.signal?.throwIfAborted();
      const source = bodyFailure(r.body);
      if (source) throw source.error;
      if (deadline.passed) return { error: noAnswer(this.settings, limit), connected: true };
      return { error: transportError(this.settings, e), connected: !notConnected(e), broken: true };
    }
  }

  #waitBeforeRetry(r: Request, attempt: number, { error, connected, broken }: Failed): number | undefined {
    if (attempt >= this.settings.retries || error.code === "client.not_a_pandastack_server") return undefined;
    const backoff = RETRY_BASE_MS * 2 ** Math.min(attempt, 5) * (1 - Math.random() / 2);
    if (!connected) return isStream(r.body) ? undefined : backoff;
    if (r.method !== "GET" && !r.idempotencyKey) return undefined;
    if (broken) return backoff;
    // A fault of the server itself rarely heals within a second.
    const soon =
      (error.statusCode === 429 && error.code === "rate_limit.api") || (error.statusCode === 503 && error.retryable);
    const wait = Math.max(backoff, retryAfterMs(error));
    return soon && wait <= RETRY_MAX_MS ? wait : undefined;
  }
}

interface Failed {
  error: PandaStackError;
  connected: boolean;
  broken?: boolean;
}

function isStream(body: unknown): body is ReadableStream<Uint8Array> {
  return typeof (body as { getReader?: unknown } | undefined)?.getReader === "function";
}

/**
 * A body that may be of any length: each of its pieces may take the server limit
 * milliseconds, and the answer as long after the last one. How long a piece is
 * in coming is up to where the body comes from, and nobody's fault.
 */
function paced(body: ReadableStream<Uint8Array>, deadline: Deadline, limit: number): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  const drop = (): Promise<void> => reader.cancel().catch(() => undefined); // the call says what went wrong
  // Node 20 reads the body of a call that was ended to its end.
  deadline.signal.addEventListener("abort", drop, { once: true });
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        deadline.sending(Infinity);
        const { done, value } = await reader.read();
        deadline.signal.throwIfAborted();
        deadline.sending(limit);
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: drop,
    },
    { highWaterMark: 0 },
  );
}

function retryAfterMs(error: PandaStackError): number {
  const header = error.response?.headers.get("Retry-After") ?? "";
  return (error.retryAfter ?? (/^\d+$/.test(header) ? Number(header) : 0)) * 1000;
}

/** Aborts a call when its time is over or its caller says so. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #sent = false;
  /** Whether the time was over before the call was. */
  passed = false;

  constructor(ms: number, caller: AbortSignal | undefined) {
    this.#caller = caller;
    if (caller?.aborted) this.#abort();
    else caller?.addEventListener("abort", this.#abort);
    this.restart(ms);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  readonly #abort = (): void => this.#controller.abort(this.#caller?.reason);

  /** Throws the reason of the caller's signal if that is what ended the call. */
  throwIfAborted(): void {
    this.#caller?.throwIfAborted();
  }

  /** Allows so much time from now on. */
  restart(ms: number): void {
    clearTimeout(this.#timer);
    if (ms > LONGEST_TIMER_MS) return;
    this.#timer = setTimeout(() => {
      this.passed = true;
      this.#controller.abort();
    }, ms);
  }

  /** Allows all the time there is. */
  pause(): void {
    clearTimeout(this.#timer);
  }

  /** As restart, for a body on its way: once the answer has begun it counts no more. */
  sending(ms: number): void {
    if (!this.#sent) this.restart(ms);
  }

  /** The answer has begun. It may be read at any time. */
  answered(): void {
    this.#sent = true;
    this.pause();
  }

  /** Ends the call's waiting; it has ended itself. */
  release(): void {
    this.answered();
    this.#caller?.removeEventListener("abort", this.#abort);
  }

  /** Ends the call. */
  cancel(): void {
    this.release();
    this.#controller.abort();
  }
}

/** An answer whose body has not been read. */
export class Answer {
  readonly response: Response;
  readonly #settings: Settings;
  readonly #deadline: Deadline;
  readonly #limit: number;

  constructor(settings: Settings, response: Response, deadline: Deadline, limit: number) {
    this.response = response;
    this.#settings = settings;
    this.#deadline = deadline;
    this.#limit = limit;
  }

  /** The media type, without its parameters. */
  get kind(): string {
    return (this.response.headers.get("Content-Type") ?? "").split(";")[0]!.trim();
  }

  text(): Promise<string> {
    return this.#whole(() => this.response.text());
  }

  async bytes(): Promise<Uint8Array> {
    return new Uint8Array(await this.#whole(() => this.response.arrayBuffer()));
  }

  async #whole<T>(read: () => Promise<T>): Promise<T> {
    this.#deadline.restart(this.#limit);
    try {
      return await read();
    } catch (e) {
      throw this.#failure(e);
    } finally {
      this.#deadline.release();
    }
  }

  #failure(e: unknown): unknown {
    this.#deadline.throwIfAborted();
    return this.#deadline.passed ? noAnswer(this.#settings, this.#limit) : transportError(this.#settings, e);
  }

  /** The body as it comes, in pieces of which none may be longer in coming than silenceMs. */
  async *chunks(silenceMs: number): AsyncGenerator<Uint8Array, void, undefined> {
    const reader = this.response.body?.getReader();
    let ended = reader === undefined;
    try {
      while (!ended) {
        this.#deadline.restart(silenceMs);
        const { done, value } = await reader!.read();
        this.#deadline.pause();
        if (done) ended = true;
        else yield value;
      }
    } catch (e) {
      throw this.#failure(e);
    } finally {
      if (ended) this.#deadline.release();
      else this.cancel();
    }
  }

  /** Drops what was not read. */
  cancel(): void {
    this.#deadline.cancel();
  }

  /** Drops the body, and gives the error of an answer that no server of ours gives. */
  unexpected(): PandaStackError {
    this.cancel();
    return notAServer(this.#settings, this.response);
  }

  /** The error of an answer that is not a success. */
  async error(): Promise<PandaStackError> {
    const decoder = new TextDecoder();
    let [body, size] = ["", 0];
    for await (const chunk of this.chunks(this.#limit)) {
      body += decoder.decode(chunk, { stream: true });
      if ((size += chunk.length) > ERROR_BODY_LIMIT) break;
    }
    return answerError(this.#settings, this.response, body);
  }
}

/** The error of an answer that is not a success. */
export function answerError(s: Settings, response: Response, body: string): PandaStackError {
  let said: unknown;
  try {
    said = JSON.parse(body);
  } catch {
    // No answer of ours; reported below.
  }
  const fields = { response, statusCode: response.status, requestId: response.headers.get("X-Request-Id") ?? undefined };
  return (isObject(said) && described(said["error"], fields)) || notAServer(s, response, said);
}

/** The error of an answer that no PandaStack server gives. said is what it was, where that is known. */
export function notAServer(s: Settings, response: Response, said?: unknown): PandaStackError {
  const fields = { response, statusCode: response.status, details: isObject(said) ? { answer: said } : undefined };
  const location = response.headers.get("Location");
  if (location && response.status >= 300 && response.status < 400) {
    return coded("client.not_a_pandastack_server", `${s.baseUrl} redirects to ${location}`, {
      ...fields,
      hint: "Use the address it redirects to as PANDASTACK_API.",
    });
  }
  const kind = (response.headers.get("Content-Type") ?? "").split(";")[0] || "no content type";
  const message = `what answers at ${s.baseUrl} is not a PandaStack server (status ${response.status}, ${kind})`;
  return coded("client.not_a_pandastack_server", message, fields);
}

export function unknownAnswer(s: Settings, response: Response | undefined, cause: unknown): PandaStackError {
  return coded("client.not_a_pandastack_server", `the answer of ${s.baseUrl} is not what this version of the package knows`, {
    hint: "Compare client.version() with VERSION of @pandastack/sdk, and check PANDASTACK_API.",
    response,
    statusCode: response?.status,
    cause,
  });
}

/**
 * The error of a connection that ended before what it was for, unless the cause
 * is what the server said of it.
 */
export function cutShort(cause?: unknown, what = "the command", hint = "The command may still have run; look at the sandbox's logs."): PandaStackError {
  if (cause instanceof PandaStackError) return cause;
  return coded("client.server_unreachable", `the server closed the connection before ${what} ended`, { hint, cause });
}

// How a connection is closed that has done what it was for.
const CLOSED_WELL = [1000, 1001, 1005];

/**
 * Why a WebSocket was closed, as the code and reason of its end say; undefined
 * if all went well. The server's own errors have a reason `code: message`.
 */
export function closeError(code: number, reason: string): Error | undefined {
  if (CLOSED_WELL.includes(code)) return undefined;
  const [, name, message] = /^([a-z][a-z_.]*): (.*)$/s.exec(reason) ?? [];
  if (name !== undefined) return coded(name, message!);
  return new Error(`the WebSocket was closed with ${code}${reason && ` ${reason}`}`);
}

export function noAnswer(s: Settings, waitedMs: number): TimeoutError {
  return new TimeoutError(`the server at ${s.baseUrl} did not answer within ${waitedMs / 1000} s`, {
    code: "request.timeout",
    hint: "Allow more time (timeoutMs), or see whether the server is overloaded.",
  });
}

/** Gives a failure to send or receive its class. */
export function transportError(s: Settings, e: unknown): PandaStackError {
  if (e instanceof PandaStackError) return e;
  const [codes, texts] = causes(e);
  if (codes.some((c) => /^UND_ERR_(HEADERS|BODY)_TIMEOUT$/.test(c))) {
    return new TimeoutError(`the server at ${s.baseUrl} did not answer in the time that this runtime's fetch allows`, {
      code: "request.timeout",
      hint: "See whether the server is overloaded.",
      cause: e,
    });
  }
  if (codes.some((c) => /^HPE_|^EPROTO$|^ERR_SSL_/.test(c)) || /wrong version number|packet length too long|does not match the HTTP|InvalidHTTPResponse/i.test(texts)) {
    return coded("client.not_a_pandastack_server", `what answers at ${s.baseUrl} does not speak ${new URL(s.baseUrl).protocol.slice(0, -1)}`, { cause: e });
  }
  return new NetworkError(`no connection to the server at ${s.baseUrl}: ${reason(codes, texts, e)}`, {
    code: "client.server_unreachable",
    hint: coded("client.server_unreachable", "").hint,
    cause: e,
  });
}

/** The part of a network error that a person needs. */
function reason(codes: string[], texts: string, e: unknown): string {
  const has = (...names: string[]) => names.some((name) => codes.includes(name));
  if (has("ECONNREFUSED", "ConnectionRefused") || /connection refused/i.test(texts)) return "connection refused";
  if (has("ENOTFOUND", "EAI_AGAIN") || /dns error/i.test(texts)) return "its name does not resolve";
  if (has("ETIMEDOUT", "UND_ERR_CONNECT_TIMEOUT")) return "it does not answer";
  if (has("ECONNRESET", "EPIPE", "UND_ERR_SOCKET")) return "the connection ended before the answer did";
  return e instanceof Error ? e.message : String(e);
}

/** Whether a failure arose before any byte of the request left. */
function notConnected(e: unknown): boolean {
  const [codes, texts] = causes(e);
  const before = ["ECONNREFUSED", "ConnectionRefused", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT", "EHOSTUNREACH", "ENETUNREACH"];
  return codes.some((c) => before.includes(c)) || /connection refused/i.test(texts);
}

/** The codes and messages of an error and of what it came from. */
function causes(e: unknown): [codes: string[], texts: string] {
  const codes: string[] = [];
  let texts = "";
  for (let at = e, depth = 0; isObject(at) && depth < 8; at = at["cause"], depth++) {
    if (typeof at["code"] === "string") codes.push(at["code"]);
    if (typeof at["message"] === "string") texts += at["message"] + "\n";
  }
  return [codes, texts];
}

/** A name that nothing else has. randomUUID is not there on pages that came without TLS. */
export function newName(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Waits, unless the signal says not to. */
function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
