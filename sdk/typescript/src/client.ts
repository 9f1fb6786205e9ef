/** The entry to a server. */

import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import { settings, type ClientOptions } from "./config.js";
import { PandaStackError } from "./errors.js";
import type { CodeLanguages, Health, LSPLanguage, LSPLanguageList, Me, Version } from "./generated/models.js";
import { Networks, SSHKeys } from "./network.js";
import { Sandboxes, Snapshots, Templates, Tokens } from "./resources.js";
import { Transport, unknownAnswer, type McpConfig, type Request } from "./transport.js";

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
  readonly networks: Networks;
  readonly sshKeys: SSHKeys;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(settings(options));
    this.sandboxes = new Sandboxes(this.#transport);
    this.snapshots = new Snapshots(this.#transport);
    this.templates = new Templates(this.#transport);
    this.tokens = new Tokens(this.#transport);
    this.networks = new Networks(this.#transport);
    this.sshKeys = new SSHKeys(this.#transport);
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

  /** Gives the languages that code contexts know. A sandbox runs those whose programs its template has. */
  async languages(options?: CallOptions): Promise<string[]> {
    return (await this.#transport.call<CodeLanguages>("CodeLanguages", get(["v1", "repl", "languages"], "languages", options))).languages;
  }

  /** Gives the languages that there can be a language server for. */
  async lspLanguages(options?: CallOptions): Promise<LSPLanguage[]> {
    return (await this.#transport.call<LSPLanguageList>("LSPLanguageList", get(["v1", "lsp", "languages"], "lspLanguages", options))).languages;
  }

  /** Gives the server's counters in the text form of Prometheus. It needs no key. */
  async prometheusMetrics(options?: CallOptions): Promise<string> {
    const answer = await this.#transport.send({ ...get(["metrics"], "prometheusMetrics", options), accept: "text/plain" });
    if (answer.kind !== "text/plain") throw answer.unexpected();
    return answer.text();
  }

  /** The entry for this server in the configuration of an MCP client: its tools make sandboxes and work in them. It has the key in it. */
  mcpConfig(): McpConfig {
    return this.#transport.mcp(["mcp"]);
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
