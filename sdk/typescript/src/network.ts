/** What sandboxes may reach, and how they are reached. */

import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import type { AddSSHKey, ConnectionLog, Network, NetworkGroup, NetworkGroupList, Port, PortList, SSHKey, SSHKeyList } from "./generated/models.js";
import type { Request, Transport } from "./transport.js";

/** Makes and finds networks, which link sandboxes: they join with network.join. */
export class Networks {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  #request(method: string, name: string | undefined, call: string, options: CallOptions | undefined): Request {
    const { signal, timeoutMs } = check.options(call, options, []);
    const path = ["v1", "networks", ...(name === undefined ? [] : [check.identifier("name", name)])];
    return { method, path, signal, timeoutMs };
  }

  /** Makes a network (ConflictError). */
  async create(name: string, options?: CallOptions): Promise<NetworkGroup> {
    const json = { name: check.text("name", name) };
    return this.#transport.call("NetworkGroup", { ...this.#request("POST", undefined, "create", options), json });
  }

  /** Gives every network by name, with its members. */
  async list(options?: CallOptions): Promise<NetworkGroup[]> {
    return (await this.#transport.call<NetworkGroupList>("NetworkGroupList", this.#request("GET", undefined, "list", options))).networks;
  }

  /** Finds a network by its name (NotFoundError). */
  async get(name: string, options?: CallOptions): Promise<NetworkGroup> {
    return this.#transport.call("NetworkGroup", this.#request("GET", name, "get", options));
  }

  /** Removes a network that has no members (ConflictError). */
  async delete(name: string, options?: CallOptions): Promise<void> {
    await this.#transport.do(this.#request("DELETE", name, "delete", options));
  }
}

/** The public keys that may open shells in the caller's sandboxes. Sandbox.ssh says how to reach one. */
export class SSHKeys {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  #request(method: string, more: string[], call: string, options: CallOptions | undefined, names: string[] = []): Request {
    const { signal, timeoutMs } = check.options(call, options, names);
    return { method, path: ["v1", "ssh-keys", ...more], signal, timeoutMs };
  }

  /** Adds a public key, one line as in authorized_keys. */
  async add(publicKey: string, options?: CallOptions & Pick<AddSSHKey, "name">): Promise<SSHKey> {
    const json = check.encode("AddSSHKey", { publicKey: check.text("publicKey", publicKey), name: options?.name });
    return this.#transport.call("SSHKey", { ...this.#request("POST", [], "add", options, ["name"]), json });
  }

  /** Gives the caller's keys, oldest first. */
  async list(options?: CallOptions): Promise<SSHKey[]> {
    return (await this.#transport.call<SSHKeyList>("SSHKeyList", this.#request("GET", [], "list", options))).keys;
  }

  /** Removes a key, named by its fingerprint (NotFoundError). */
  async delete(fingerprint: string, options?: CallOptions): Promise<void> {
    await this.#transport.do(this.#request("DELETE", [check.identifier("fingerprint", fingerprint)], "delete", options));
  }
}

/**
 * What one sandbox may reach, and what it has contacted.
 *
 * An entry of allow and deny is an address, a range (203.0.113.0/24), a name
 * (packages.example.com) or all names below one (*.files.example.com), with a
 * port or ports after a colon where it is only for those. No entry opens the
 * host, other sandboxes or private addresses.
 */
export class SandboxNetwork {
  readonly #transport: Transport;
  readonly #path: readonly string[];

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#path = ["v1", "sandboxes", sandboxId, "network"];
  }

  /** Gives the rules, and the networks that it has joined. */
  async get(options?: CallOptions): Promise<Network> {
    const { signal, timeoutMs } = check.options("get", options, []);
    return this.#transport.call("Network", { method: "GET", path: this.#path, signal, timeoutMs });
  }

  /** Replaces the rules and the networks: what is not given is the default. Open connections that are no longer allowed are cut. */
  async set(network: Network & CallOptions): Promise<Network> {
    const { signal, timeoutMs, ...fields } = check.options("set", network, check.fieldsOf("Network"));
    return this.#transport.call("Network", { method: "PUT", path: this.#path, json: check.encode("Network", fields), signal, timeoutMs });
  }

  /** Gives the latest connections and refusals, oldest first: at most limit (default 1000), with ids above since. */
  async log(options?: CallOptions & { since?: number | undefined; limit?: number | undefined }): Promise<ConnectionLog> {
    const { since, limit, signal, timeoutMs } = check.options("log", options, ["since", "limit"]);
    const query = {
      since: since === undefined ? undefined : check.whole("since", since),
      limit: limit === undefined ? undefined : check.whole("limit", limit, 1),
    };
    return this.#transport.call("ConnectionLog", { method: "GET", path: [...this.#path, "log"], query, signal, timeoutMs });
  }
}

/**
 * The ports of a sandbox, and who may open their previews in a browser. A port
 * that nothing was said about is public: who knows its address, which has the
 * sandbox's id in it, may open it.
 */
export class Ports {
  readonly #transport: Transport;
  readonly #path: readonly string[];

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#path = ["v1", "sandboxes", sandboxId, "ports"];
  }

  /** Gives the ports that something listens on or that something was set for, in order. */
  async list(options?: CallOptions): Promise<Port[]> {
    const { signal, timeoutMs } = check.options("list", options, []);
    return (await this.#transport.call<PortList>("PortList", { method: "GET", path: this.#path, signal, timeoutMs })).ports;
  }

  /**
   * Sets who may open the preview of a port, whether or not anything listens yet:
   * everybody (public, the default), or who has a signed address or its token
   * (private).
   */
  async expose(port: number, visibility: "public" | "private" = "public", options?: CallOptions): Promise<Port> {
    const { signal, timeoutMs } = check.options("expose", options, []);
    const json = { port: portOf(port), visibility: check.choice("visibility", visibility, ["public", "private"]) };
    return this.#transport.call("Port", { method: "POST", path: this.#path, json, signal, timeoutMs });
  }

  /** Closes the preview of a port to everybody, signed addresses included, until it is exposed again. */
  async close(port: number, options?: CallOptions): Promise<void> {
    const { signal, timeoutMs } = check.options("close", options, []);
    await this.#transport.do({ method: "DELETE", path: this.#path, query: { port: portOf(port) }, signal, timeoutMs });
  }
}

export function portOf(port: unknown): number {
  const n = check.whole("port", port, 1);
  if (n > 65535) throw new RangeError(`port is at most 65535, not ${n}`);
  return n;
}
