/** The entry to a server. */

import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import { settings, type ClientOptions } from "./config.js";
import { PandaStackError } from "./errors.js";
import type { Health, Me, Version } from "./generated/models.js";
import { Sandboxes, Snapshots, Templates, Tokens } from "./resources.js";
import { Transport, unknownAnswer, type Request } from "./transport.js";

/**
 * Talks to one server with one key. It sends nothing until it is used, and has
 * nothing to close: connections are those of the runtime's fetch.
 */
export class PandaStack {
  readonly #transport: Transport;
  readonly sandboxes: Sandboxes;
  readonly snapshots: Snapshots;
  readonly templates: Templates;
  readonly tokens: Tokens;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(settings(options));
    this.sandboxes = new Sandboxes(this.#transport);
    this.snapshots = new Snapshots(this.#transport);
    this.templates = new Templates(this.#transport);
    this.tokens = new Tokens(this.#transport);
  }

  /** The address of the server. */
  get baseUrl(): string {
    return this.#transport.settings.baseUrl;
  }

  /** Says who the key belongs to (AuthError). */
  async me(options?: CallOptions): Promise<Me> {
    return this.#transport.call("Me", get(["v1", "me"], "me", options));
  }

  /** Says what the server runs. It needs no key. */
  async version(options?: CallOptions): Promise<Version> {
    return this.#transport.call("Version", get(["version"], "version", options));
  }

  /** Asks whether the server is up. It needs no key. */
  async health(options?: CallOptions): Promise<Health> {
    return this.#transport.call("Health", get(["healthz"], "health", options));
  }

  /**
   * Asks whether creates are fast. A server that is not there yet answers with a
   * status other than ok and what it waits for, which is not an error.
   */
  async ready(options?: CallOptions): Promise<Health> {
    try {
      return await this.#transport.call("Health", get(["readyz"], "ready", options));
    } catch (e) {
      const said = e instanceof PandaStackError && e.statusCode === 503 ? e.details["answer"] : undefined;
      if (said === undefined) throw e;
      try {
        return check.decode<Health>("Health", said);
      } catch (cause) {
        throw unknownAnswer(this.#transport.settings, (e as PandaStackError).response, cause);
      }
    }
  }
}

function get(path: string[], call: string, options: CallOptions | undefined): Request {
  const { signal, timeoutMs } = check.options(call, options, []);
  return { method: "GET", path, signal, timeoutMs };
}
