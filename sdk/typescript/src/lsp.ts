/** Language servers of a sandbox. */

import type { CallOptions } from "./check.js";
import * as check from "./check.js";
import { Condition } from "./condition.js";
import { NetworkError, isObject } from "./errors.js";
import { QUEUE_LIMIT, Queue } from "./output.js";
import { connect, type Channel } from "./socket.js";
import { cutShort, transportError, unknownAnswer, type Transport } from "./transport.js";

/** A message of the Language Server Protocol: a request, an answer or a notification. */
export type LspMessage = Record<string, unknown>;

/**
 * A connection to the language server of a language in a sandbox, which all
 * clients of that sandbox and language share. Iterate over it for the server's
 * messages; it ends when the server does, and throws what went wrong if that
 * was not as it should be.
 *
 *     await using server = await sandbox.lsp("python");
 *     await server.send({ jsonrpc: "2.0", id: 1, method: "initialize", params: { capabilities: {} } });
 *     for await (const message of server) if (message.id === 1) break;
 */
export class LanguageServer implements AsyncIterable<LspMessage>, AsyncDisposable {
  readonly #transport: Transport;
  readonly #changed = new Condition();
  readonly #queue = new Queue<string>((text) => text.length);
  #channel!: Channel;
  #failure: unknown;
  #ended = false;

  private constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** @internal */
  static async open(transport: Transport, path: readonly string[], options: CallOptions | undefined): Promise<LanguageServer> {
    const { signal, timeoutMs } = check.options("lsp", options, []);
    const connection = new LanguageServer(transport);
    connection.#channel = await connect(transport, { method: "GET", path, signal, timeoutMs }, "lsp", {
      message: (data) => connection.#take(data),
      closed: (cause) => connection.#end(cause),
    });
    return connection;
  }

  #take(data: string | Uint8Array): void {
    if (this.#ended) return;
    this.#queue.push(typeof data === "string" ? data : new TextDecoder().decode(data));
    if (this.#queue.size > QUEUE_LIMIT) this.#channel.pause();
    this.#changed.notify();
  }

  #end(cause?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    if (cause !== undefined) this.#failure = cutShort(cause, "the language server", "Open another one.");
    this.#channel?.close();
    this.#changed.notify();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<LspMessage, void, undefined> {
    for (;;) {
      await this.#changed.until(() => this.#queue.size > 0 || this.#ended);
      const text = this.#queue.shift();
      if (text === undefined) break;
      if (this.#queue.size <= QUEUE_LIMIT && !this.#ended) this.#channel.resume();
      yield this.#parsed(text);
    }
    if (this.#failure) throw this.#failure;
  }

  #parsed(text: string): LspMessage {
    try {
      const message: unknown = JSON.parse(text);
      if (isObject(message)) return message;
    } catch (e) {
      throw unknownAnswer(this.#transport.settings, undefined, e);
    }
    throw unknownAnswer(this.#transport.settings, undefined, undefined);
  }

  /** Sends the server a message. */
  async send(message: LspMessage): Promise<void> {
    if (!isObject(message)) throw new TypeError(`a message is an object, not ${check.kindOf(message)}`);
    if (this.#ended) throw new NetworkError("the connection to the language server is closed", { code: "client.server_unreachable", hint: "Open another one." });
    try {
      await this.#channel.send(JSON.stringify(message));
    } catch (e) {
      throw transportError(this.#transport.settings, e);
    }
  }

  /** Closes the connection. The server ends when its last client has left. */
  close(): void {
    this.#end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
