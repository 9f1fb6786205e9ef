/**
 * Checks of arguments, so that a wrong one is an error before any request, and
 * the way of records to the wire and back.
 */

import { isObject } from "./errors.js";
import { SCHEMAS, type SchemaName } from "./generated/schemas.js";

/** What every call takes. */
export interface CallOptions {
  /** Ends the call; it then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Milliseconds that the server may take to answer, instead of the client's timeoutMs. */
  timeoutMs?: number | undefined;
}

const CALL_OPTIONS = ["signal", "timeoutMs"];

export function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : typeof value;
}

export function text(name: string, value: unknown): string {
  if (typeof value !== "string") throw new TypeError(`${name} is a string, not ${kindOf(value)}`);
  if (value === "") throw new RangeError(`${name} is empty`);
  return value;
}

/** A path in a sandbox. */
export function path(name: string, value: unknown): string {
  const v = text(name, value);
  if (v.includes("\0")) throw new RangeError(`${name} has a NUL character`);
  return v;
}

/** A name that becomes one part of a URL: a string, or something that has an id. */
export function identifier(name: string, value: unknown): string {
  const v = text(name, isObject(value) && typeof value["id"] === "string" ? value["id"] : value);
  if (v === "." || v === "..") throw new RangeError(`${name} ${JSON.stringify(v)} is not the name of anything`);
  return v;
}

export function whole(name: string, value: unknown, low = 0): number {
  if (typeof value !== "number") throw new TypeError(`${name} is a number, not ${kindOf(value)}`);
  if (!Number.isSafeInteger(value) || value < low) throw new RangeError(`${name} is a whole number of at least ${low}, not ${value}`);
  return value;
}

/** Seconds that may have a fraction. */
export function seconds(name: string, value: unknown): number {
  if (typeof value !== "number") throw new TypeError(`${name} is a number, not ${kindOf(value)}`);
  if (!(value >= 0) || value === Infinity) throw new RangeError(`${name} is at least 0, not ${value}`);
  return value;
}

/** A signal: its name, with or without SIG, or its number. */
export function signalName(value: unknown): string | number {
  return typeof value === "number" ? whole("signal", value, 1) : text("signal", value);
}

export function choice<T extends string>(name: string, value: unknown, allowed: readonly T[]): T {
  const chosen = allowed.find((v) => v === value);
  if (chosen === undefined) throw new TypeError(`${name} is one of ${allowed.join(", ")}, not ${shown(value)}`);
  return chosen;
}

export function callback(name: string, value: unknown): void {
  if (value !== undefined && typeof value !== "function") throw new TypeError(`${name} is a function, not ${kindOf(value)}`);
}

function shown(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : kindOf(value);
}

/** The options of a call: an object with these names and those of CallOptions. */
export function options<T extends object>(call: string, value: T | undefined, names: readonly string[]): T & CallOptions {
  if (value === undefined) return {} as T;
  if (!isObject(value)) throw new TypeError(`the options of ${call} are an object, not ${kindOf(value)}`);
  for (const name of Object.keys(value)) {
    if (!names.includes(name) && !CALL_OPTIONS.includes(name)) throw unknownOption(call, name, [...names, ...CALL_OPTIONS]);
  }
  const { signal, timeoutMs } = value as CallOptions;
  if (signal !== undefined && typeof (signal as { addEventListener?: unknown } | null)?.addEventListener !== "function") {
    throw new TypeError(`signal is an AbortSignal, not ${kindOf(signal)}`);
  }
  if (timeoutMs !== undefined && (typeof timeoutMs !== "number" || !(timeoutMs > 0))) {
    throw new RangeError(`timeoutMs is a number of milliseconds above 0, not ${String(timeoutMs)}`);
  }
  return value;
}

function unknownOption(call: string, name: string, names: readonly string[]): TypeError {
  const plain = (s: string) => s.replace(/_/g, "").toLowerCase();
  const meant = names.find((n) => plain(n) === plain(name));
  return new TypeError(`${call} has no option ${name}; ${meant ? `did you mean ${meant}?` : `there are ${names.join(", ")}`}`);
}

interface Field {
  name: string;
  wire: string;
  /** Its type; #Name is another schema. */
  kind: string;
  required: boolean;
}

interface Fields {
  byName: Map<string, Field>;
  byWire: Map<string, Field>;
}

const tables = new Map<SchemaName, Fields>();

/** The fields of a schema. */
function table(schema: SchemaName): Fields {
  let found = tables.get(schema);
  if (!found) {
    const fields = SCHEMAS[schema].split(" ").filter(Boolean).map((text) => {
      const [wire, kind] = text.split(":") as [string, string];
      return { name: camel(wire), wire, kind: kind.replace("!", ""), required: kind.endsWith("!") };
    });
    found = { byName: new Map(fields.map((f) => [f.name, f])), byWire: new Map(fields.map((f) => [f.wire, f])) };
    tables.set(schema, found);
  }
  return found;
}

function camel(wire: string): string {
  return wire.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());
}

/** The names of a schema's fields. */
export function fieldsOf(schema: SchemaName): string[] {
  return [...table(schema).byName.keys()];
}

/** The body of a request: those of a value's fields that the schema has, as they are named on the wire. */
export function encode(schema: SchemaName, value: object): Record<string, unknown> {
  const { byName } = table(schema);
  const out: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(value)) {
    const known = field === undefined ? undefined : byName.get(name);
    if (known) out[known.wire] = encodeField(name, field, known.kind);
  }
  return out;
}

function encodeField(name: string, value: unknown, kind: string): unknown {
  if (kind.startsWith("#")) {
    if (!kind.endsWith("[]")) return encodeRecord(name, value, kind.slice(1));
    if (!Array.isArray(value)) throw new TypeError(`${name} is an array, not ${kindOf(value)}`);
    return value.map((v) => encodeRecord(name, v, kind.slice(1, -2)));
  }
  switch (kind) {
    case "string":
    case "boolean":
      if (typeof value !== kind) throw new TypeError(`${name} is a ${kind}, not ${kindOf(value)}`);
      return value;
    case "integer":
      return whole(name, value, Number.MIN_SAFE_INTEGER);
    case "number":
      if (typeof value !== "number" || !Number.isFinite(value)) throw new TypeError(`${name} is a number, not ${shownNumber(value)}`);
      return value;
    case "map":
      return labels(name, value);
    case "strings":
      return words(name, value);
    case "date":
      return value instanceof Date ? value.toISOString() : value;
  }
  return value;
}

function shownNumber(value: unknown): string {
  return typeof value === "number" ? String(value) : kindOf(value);
}

function encodeRecord(name: string, value: unknown, schema: string): Record<string, unknown> {
  if (!isObject(value)) throw new TypeError(`${name} is an object, not ${kindOf(value)}`);
  const names = fieldsOf(schema as SchemaName);
  const unknown = Object.keys(value).find((n) => !names.includes(n));
  if (unknown) throw unknownOption(name, unknown, names);
  return encode(schema as SchemaName, value);
}

export function labels(name: string, value: unknown): Record<string, string> {
  if (!isObject(value)) throw new TypeError(`${name} is an object of strings, not ${kindOf(value)}`);
  const wrong = Object.entries(value).find(([, v]) => typeof v !== "string");
  if (wrong) throw new TypeError(`${name} has a string for every name; ${wrong[0]} is ${kindOf(wrong[1])}`);
  return value as Record<string, string>;
}

export function words(name: string, value: unknown): string[] {
  if (!Array.isArray(value)) throw new TypeError(`${name} is an array of strings, not ${kindOf(value)}`);
  const wrong: unknown = value.find((v) => typeof v !== "string");
  if (wrong !== undefined || value.includes(undefined)) throw new TypeError(`${name} is an array of strings; it has ${kindOf(wrong)}`);
  return value as string[];
}

/**
 * A record of an answer. Fields that this version does not know are kept, in
 * camelCase; a TypeError says that a field it needs is not there.
 */
export function decode<T>(schema: SchemaName, value: unknown): T {
  if (!isObject(value)) throw new TypeError(`${schema} is an object`);
  const { byWire } = table(schema);
  const out: Record<string, unknown> = {};
  for (const [wire, field] of Object.entries(value)) {
    const known = byWire.get(wire);
    const name = known?.name ?? camel(wire);
    if (known && field === null && !known.required) continue;
    // Defined rather than set, so that the name __proto__ is like any other.
    Object.defineProperty(out, name, {
      value: known ? decodeField(`${schema}.${wire}`, field, known.kind) : field,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  }
  for (const [wire, { required, name }] of byWire) {
    if (required && !Object.hasOwn(out, name)) throw new TypeError(`${schema} has no ${wire}`);
  }
  return out as T;
}

function decodeField(name: string, value: unknown, kind: string): unknown {
  if (kind.startsWith("#")) {
    if (!kind.endsWith("[]")) return decode(kind.slice(1) as SchemaName, value);
    if (!Array.isArray(value)) throw new TypeError(`${name} is an array`);
    return value.map((v) => decode(kind.slice(1, -2) as SchemaName, v));
  }
  const right =
    kind === "any" ||
    (kind === "date" ? typeof value === "string" && !Number.isNaN(Date.parse(value))
    : kind === "integer" ? typeof value === "number"
    : kind === "map" ? isObject(value)
    : kind === "strings" ? Array.isArray(value)
    : typeof value === kind);
  if (!right) throw new TypeError(`${name} is of another type than ${kind}`);
  return kind === "date" ? new Date(value as string) : value;
}
