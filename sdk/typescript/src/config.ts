/**
 * Which server to talk to, and as whom. What is passed to a client comes first,
 * then the environment (PANDASTACK_API, PANDASTACK_API_KEY, PANDASTACK_TOKEN),
 * then the file that `pandastack auth login` writes.
 */

import { isObject } from "./errors.js";
import { environment, nodeModule } from "./platform.js";
import { VERSION } from "./version.js";

/** Where `pandastack server` listens unless told otherwise. */
const DEFAULT_URL = "http://127.0.0.1:8080";
const DEFAULT_TIMEOUT_MS = 60_000;
const DEFAULT_RETRIES = 2;

/** What a client can be told. */
export interface ClientOptions {
  /** The key; default PANDASTACK_API_KEY or PANDASTACK_TOKEN, then the config file. */
  apiKey?: string | undefined;
  /** Another name of apiKey. */
  token?: string | undefined;
  /** The server's address; default PANDASTACK_API, then the config file, then http://127.0.0.1:8080. */
  apiUrl?: string | undefined;
  /** Another name of apiUrl. */
  baseUrl?: string | undefined;
  /**
   * Milliseconds that the server may take to answer; default 60000. Calls that
   * make or move a whole sandbox may take 300000 at least, and a command takes
   * as long as its own timeoutSeconds says.
   */
  timeoutMs?: number | undefined;
  /** How often a request is tried again where that cannot do anything twice; default 2. */
  retries?: number | undefined;
  /** Used instead of the global fetch. */
  fetch?: typeof globalThis.fetch | undefined;
  /** Used instead of the package's own WebSocket in Node, and the global one elsewhere. */
  webSocket?: typeof globalThis.WebSocket | undefined;
  /** Goes before the package's own in the User-Agent header, where one may be set. */
  userAgent?: string | undefined;
}

/** All that a client was told, checked. */
export interface Settings {
  readonly baseUrl: string;
  readonly key: string;
  readonly timeoutMs: number;
  readonly retries: number;
  readonly fetch: typeof globalThis.fetch | undefined;
  readonly webSocket: typeof globalThis.WebSocket | undefined;
  readonly userAgent: string;
}

const OPTIONS = ["apiKey", "token", "apiUrl", "baseUrl", "timeoutMs", "retries", "fetch", "webSocket", "userAgent"];

export function settings(options: ClientOptions): Settings {
  const given: unknown = options;
  if (!isObject(given)) throw new TypeError("the options of a client are an object");
  const unknown = Object.keys(options).find((name) => !OPTIONS.includes(name));
  if (unknown) throw new TypeError(`a client has no option ${unknown}; there are ${OPTIONS.join(", ")}`);
  const [url, key] = complete(one(options, "apiUrl", "baseUrl"), one(options, "apiKey", "token"));
  if (/[^\x21-\x7e]/.test(key)) {
    throw new RangeError("the API key has characters that no key has; was it copied in full, and without line breaks?");
  }
  const { timeoutMs = DEFAULT_TIMEOUT_MS, retries = DEFAULT_RETRIES, userAgent = "" } = options;
  if (typeof timeoutMs !== "number" || !(timeoutMs > 0)) {
    throw new RangeError(`timeoutMs is a number of milliseconds above 0, not ${String(timeoutMs)}`);
  }
  if (!Number.isInteger(retries) || retries < 0) throw new RangeError(`retries is a whole number, 0 or more, not ${String(retries)}`);
  if (typeof userAgent !== "string" || /[^\x20-\x7e]/.test(userAgent)) {
    throw new TypeError("userAgent is a string of printable ASCII characters");
  }
  const agent = `pandastack-typescript/${VERSION}`;
  return {
    baseUrl: checkedUrl(url),
    key,
    timeoutMs,
    retries,
    fetch: options.fetch,
    webSocket: options.webSocket,
    userAgent: userAgent ? `${userAgent} ${agent}` : agent,
  };
}

/** The value of an option that has two names. */
function one<K extends keyof ClientOptions>(options: ClientOptions, first: K, second: K): string | undefined {
  for (const name of [first, second]) {
    const value = options[name];
    if (value !== undefined && typeof value !== "string") throw new TypeError(`${name} is a string, not ${typeof value}`);
  }
  const [a, b] = [options[first] as string | undefined, options[second] as string | undefined];
  if (a && b && a !== b) throw new TypeError(`${first} and ${second} are two names of one thing and differ; pass one of them`);
  return a || b || undefined;
}

/** Fills in from the environment and the config file what was not passed. */
function complete(url: string | undefined, key: string | undefined): [url: string, key: string] {
  url ||= environment("PANDASTACK_API");
  key ||= environment("PANDASTACK_API_KEY") ?? environment("PANDASTACK_TOKEN");
  if (!url || !key) {
    const file = configFile();
    const first = (...names: string[]) =>
      names.map((name) => file[name]).find((value): value is string => typeof value === "string" && value !== "");
    url ||= first("api", "api_url", "apiUrl", "base_url");
    key ||= first("api_key", "apiKey", "token");
  }
  return [url ?? DEFAULT_URL, key ?? ""];
}

function configFile(): Record<string, unknown> {
  const fs = nodeModule("node:fs");
  const home = environment("HOME") ?? nodeModule("node:os")?.homedir();
  if (!fs || !home) return {};
  const path = `${home}/.config/pandastack/config.json`;
  let text: string;
  try {
    text = fs.readFileSync(path, "utf8");
  } catch (e) {
    if ((e as { code?: unknown }).code === "ENOENT") return {};
    throw new Error(`the config file ${path} cannot be read`, { cause: e });
  }
  try {
    const read: unknown = JSON.parse(text);
    return isObject(read) ? read : {};
  } catch (e) {
    throw new Error(`the config file ${path} is not JSON; correct it, or remove it and run \`pandastack auth login\``, { cause: e });
  }
}

function checkedUrl(url: string): string {
  let parsed: URL | undefined;
  try {
    parsed = new URL(url);
  } catch {
    // Reported below.
  }
  if (!parsed || (parsed.protocol !== "http:" && parsed.protocol !== "https:") || !parsed.hostname || /\s/.test(url)) {
    throw new RangeError(`the server's address ${JSON.stringify(url)} is not an http or https URL; write it in full, such as ${DEFAULT_URL}`);
  }
  if (parsed.username || parsed.password || parsed.search || parsed.hash) {
    throw new RangeError("the server's address may have no user, query or fragment");
  }
  return url.replace(/\/+$/, "");
}
