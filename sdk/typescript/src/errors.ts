/**
 * The errors of this package. There is one class for each family of failures,
 * so that programs can catch what they can do something about. Which code
 * belongs to which class stands in a table made from the server's own
 * catalogue, docs/errors.md.
 *
 * Arguments of a wrong type or value never become a request: they are the
 * built-in TypeError and RangeError. A call that the caller aborted rejects
 * with the reason of its signal, as fetch does.
 */

import { CATALOGUE, FAMILY_BY_STATUS, type ErrorCode } from "./generated/errors.js";

export type { ErrorCode };

/** What an error is made of, beside its message. */
export interface ErrorFields {
  code?: string | undefined;
  hint?: string | undefined;
  requestId?: string | undefined;
  statusCode?: number | undefined;
  details?: Record<string, unknown> | undefined;
  response?: Response | undefined;
  cause?: unknown;
}

/** Any failure of a call. */
export class PandaStackError extends Error {
  /** Stable name of the failure, which programs branch on. */
  readonly code: ErrorCode | (string & {});
  /** What to do about it. */
  readonly hint: string;
  /** Names the request in the server's log; empty if there was no answer. */
  readonly requestId: string;
  /** Status of the HTTP answer, if there was one. */
  readonly statusCode: number | undefined;
  /** More, by code: field, problems, retry_after_sec, ... */
  readonly details: Record<string, unknown>;
  /** The HTTP answer, if there was one. Its body has been read. */
  declare readonly response: Response | undefined;

  constructor(message: string, fields: ErrorFields = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.code = fields.code ?? "";
    this.hint = fields.hint ?? "";
    this.requestId = fields.requestId ?? "";
    this.statusCode = fields.statusCode;
    this.details = fields.details ?? {};
    // Left out where errors are printed: it says nothing that is not here.
    Object.defineProperty(this, "response", { value: fields.response, enumerable: false });
  }

  /** Whether the same call may succeed later. */
  get retryable(): boolean {
    const said = this.details["retryable"];
    if (typeof said === "boolean") return said;
    return lookup(this.code)?.[2] ?? false;
  }

  /** Seconds after which the server says to try again, if it does. */
  get retryAfter(): number | undefined {
    const said = this.details["retry_after_sec"];
    return typeof said === "number" ? said : undefined;
  }
}

// The names are written out because a minifier may change those of classes.
function named(kind: { prototype: Error }, name: string): void {
  Object.defineProperty(kind.prototype, "name", { value: name, configurable: true, writable: true });
}

/** The key is missing, wrong, revoked, or may not do this. */
export class AuthError extends PandaStackError {}

/** There is no such sandbox, file, template, snapshot, key or endpoint. */
export class NotFoundError extends PandaStackError {}

/** The request itself is wrong, or asks for what this server cannot do. */
export class BadRequestError extends PandaStackError {}

/** What the call is about is in another state, or its name is taken. */
export class ConflictError extends PandaStackError {}

/** A limit of the caller's is reached, or there were too many requests. */
export class QuotaError extends PandaStackError {}

/** There is no room now: on a host, a disk, or in the snapshot store. */
export class CapacityError extends PandaStackError {}

/** It took longer than was allowed. */
export class TimeoutError extends PandaStackError {}

/** The server failed; its log has the cause under the request id. */
export class ServerError extends PandaStackError {}

/** No server answers, the connection broke, or what answers is not a PandaStack server. */
export class NetworkError extends PandaStackError {}

const FAMILIES = {
  AuthError,
  NotFoundError,
  BadRequestError,
  ConflictError,
  QuotaError,
  CapacityError,
  TimeoutError,
  ServerError,
  NetworkError,
};

named(PandaStackError, "PandaStackError");
for (const [name, kind] of Object.entries(FAMILIES)) named(kind, name);

function lookup(code: string): (typeof CATALOGUE)[ErrorCode] | undefined {
  return Object.hasOwn(CATALOGUE, code) ? CATALOGUE[code as ErrorCode] : undefined;
}

/** The class of a failure. A code that this version does not know goes by its status. */
export function familyOf(code: string, status?: number): typeof PandaStackError {
  const known = lookup(code);
  if (known) return FAMILIES[known[0]];
  if (status !== undefined && Object.hasOwn(FAMILY_BY_STATUS, status)) {
    return FAMILIES[FAMILY_BY_STATUS[status as keyof typeof FAMILY_BY_STATUS]];
  }
  return status !== undefined && status >= 400 && status < 500 ? BadRequestError : ServerError;
}

/** An error with a code; its advice is the catalogue's unless there is better. */
export function coded(code: string, message: string, fields: ErrorFields = {}): PandaStackError {
  const kind = familyOf(code, fields.statusCode);
  return new kind(message, { ...fields, code, hint: fields.hint ?? lookup(code)?.[3] });
}

/** The error that the server described: the content of an envelope. */
export function described(failure: unknown, fields: ErrorFields = {}): PandaStackError | undefined {
  if (!isObject(failure) || typeof failure["code"] !== "string" || failure["code"] === "") return undefined;
  const code = failure["code"];
  const hint = OLDER.includes(code)
    ? "The server may be older than this package and not know it yet: compare client.version() with VERSION of @pandastack/sdk."
    : textOf(failure["hint"]);
  return coded(code, textOf(failure["message"]) ?? code, {
    ...fields,
    hint,
    requestId: textOf(failure["request_id"]) ?? fields.requestId,
    details: isObject(failure["details"]) ? failure["details"] : undefined,
  });
}

// Codes that a server gives for what only a newer one knows.
const OLDER = ["request.unknown_field", "request.method_not_allowed", "request.not_found"];

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
