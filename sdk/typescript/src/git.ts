/** Git repositories of a sandbox. */

import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import type {
  GitAdd,
  GitAuth,
  GitBranch,
  GitBranches,
  GitBranchRequest,
  GitCheckout,
  GitClone,
  GitCommit,
  GitCommitRequest,
  GitDiff,
  GitLog,
  GitLogRequest,
  GitPatch,
  GitRepo,
  GitStatus,
  GitSync,
} from "./generated/models.js";
import type { SchemaName } from "./generated/schemas.js";
import type { Transport } from "./transport.js";

// What the server allows git unless told otherwise.
const LOCAL_SECONDS = 60;
const REMOTE_SECONDS = 600;

interface WithAuth {
  /** Name and password for the remote; a string is a token. */
  auth?: GitAuth | string | undefined;
}

type Options<T, Positional extends keyof T = never> = Omit<T, Positional> & CallOptions;

export interface GitOptions extends GitRepo, CallOptions {}
export interface GitCloneOptions extends Options<GitClone, "url" | "auth">, WithAuth {}
export interface GitDiffOptions extends GitDiff, CallOptions {}
export interface GitAddOptions extends Options<GitAdd, "paths"> {}
export interface GitCommitOptions extends Options<GitCommitRequest, "message"> {}
export interface GitCheckoutOptions extends Options<GitCheckout, "ref"> {}
export interface GitPullOptions extends Options<GitSync, "force" | "setUpstream" | "auth">, WithAuth {}
export interface GitPushOptions extends Options<GitSync, "rebase" | "auth">, WithAuth {}
export interface GitLogOptions extends GitLogRequest, CallOptions {}
export interface GitCreateBranchOptions extends GitOptions {
  /** Where it starts; default the current commit. */
  from?: string | undefined;
}
export interface GitDeleteBranchOptions extends GitOptions {
  /** Delete also what is not merged. */
  force?: boolean | undefined;
}

/**
 * The repositories in a sandbox, through the git that is in it. A path names the
 * directory of one, default the working directory of the sandbox.
 *
 * Failures carry git.* codes with what git itself said: AuthError
 * (git.auth_failed), NotFoundError (git.not_found, git.not_a_repository),
 * ConflictError (git.conflict, git.nothing_to_commit), ServerError
 * (git.remote_unreachable). Credentials of a call are never on the sandbox's
 * disk, in an argument or in an environment variable.
 */
export class Git {
  readonly #transport: Transport;
  readonly #base: readonly string[];

  /** @internal */
  constructor(transport: Transport, sandboxId: string) {
    this.#transport = transport;
    this.#base = ["v1", "sandboxes", sandboxId, "git"];
  }

  async #call<T>(operation: string, body: SchemaName, answer: SchemaName, given: object | undefined, positional: object, seconds = LOCAL_SECONDS): Promise<T> {
    const names = check.fieldsOf(body).filter((name) => !Object.hasOwn(positional, name));
    const { signal, timeoutMs, ...fields } = check.options<CallOptions & WithAuth & { timeoutSeconds?: number }>(operation, given, names);
    const auth = typeof fields.auth === "string" ? { password: check.text("auth", fields.auth) } : fields.auth;
    const json = check.encode(body, { ...fields, auth, ...positional });
    const request = { method: "POST", path: [...this.#base, operation], json, signal, timeoutMs };
    return this.#transport.long(answer, request, fields.timeoutSeconds || seconds);
  }

  /** Makes a repository of a remote one, and says how it stands. */
  async clone(url: string, options?: GitCloneOptions): Promise<GitStatus> {
    return this.#call("clone", "GitClone", "GitStatus", options, { url: check.text("url", url) }, REMOTE_SECONDS);
  }

  /** Says how a repository stands. */
  async status(options?: GitOptions): Promise<GitStatus> {
    return this.#call("status", "GitRepo", "GitStatus", options, {});
  }

  /** Gives changes as a patch: what is not staged, unless options say otherwise. */
  async diff(options?: GitDiffOptions): Promise<GitPatch> {
    return this.#call("diff", "GitDiff", "GitPatch", options, {});
  }

  /** Stages changes: those of the paths, or all. */
  async add(paths?: string | readonly string[], options?: GitAddOptions): Promise<GitStatus> {
    const chosen = typeof paths === "string" ? [check.text("paths", paths)] : paths;
    return this.#call("add", "GitAdd", "GitStatus", options, { paths: chosen });
  }

  /** Commits what is staged. */
  async commit(message: string, options?: GitCommitOptions): Promise<GitCommit> {
    return this.#call("commit", "GitCommitRequest", "GitCommit", options, { message: check.text("message", message) });
  }

  /** Lists the branches. */
  async branches(options?: GitOptions): Promise<GitBranch[]> {
    return this.#branches(options, {});
  }

  /** Makes a branch, and lists all. */
  async createBranch(name: string, options?: GitCreateBranchOptions): Promise<GitBranch[]> {
    return this.#branches(options, { create: check.text("name", name) });
  }

  /** Deletes a branch, and lists the others. */
  async deleteBranch(name: string, options?: GitDeleteBranchOptions): Promise<GitBranch[]> {
    return this.#branches(options, { delete: check.text("name", name) });
  }

  async #branches(options: object | undefined, what: Partial<GitBranchRequest>): Promise<GitBranch[]> {
    return (await this.#call<GitBranches>("branch", "GitBranchRequest", "GitBranches", options, what)).branches;
  }

  /** Changes to a branch, tag or commit. */
  async checkout(ref: string, options?: GitCheckoutOptions): Promise<GitStatus> {
    return this.#call("checkout", "GitCheckout", "GitStatus", options, { ref: check.text("ref", ref) });
  }

  /** Takes over the changes of a remote. */
  async pull(options?: GitPullOptions): Promise<GitStatus> {
    return this.#call("pull", "GitSync", "GitStatus", options, {}, REMOTE_SECONDS);
  }

  /** Sends commits to a remote. */
  async push(options?: GitPushOptions): Promise<GitStatus> {
    return this.#call("push", "GitSync", "GitStatus", options, {}, REMOTE_SECONDS);
  }

  /** Lists commits, newest first. */
  async log(options?: GitLogOptions): Promise<GitCommit[]> {
    return (await this.#call<GitLog>("log", "GitLogRequest", "GitLog", options, {})).commits;
  }
}
