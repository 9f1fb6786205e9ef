/// <reference lib="esnext.disposable" preserve="true" />

/**
 * PandaStack: sandboxes for code that nobody has reviewed.
 *
 *     import { Sandbox } from "@pandastack/sdk";
 *
 *     await using sandbox = await Sandbox.create();
 *     console.log((await sandbox.exec("echo hello")).stdout);
 *
 * The key and the server's address come from the arguments, the environment
 * (PANDASTACK_API_KEY or PANDASTACK_TOKEN, PANDASTACK_API) or
 * ~/.config/pandastack/config.json, in that order.
 */

export { PandaStack, PandaStack as Client } from "./client.js";
export { ForkTree, Sandbox } from "./sandbox.js";
export { Filesystem } from "./filesystem.js";
export { Process } from "./process.js";
export { ExecStream, Stream } from "./stream.js";
export { Sandboxes, Snapshots, Templates, Tokens } from "./resources.js";
export { VERSION } from "./version.js";
export {
  AuthError,
  BadRequestError,
  CapacityError,
  ConflictError,
  NetworkError,
  NotFoundError,
  PandaStackError,
  QuotaError,
  ServerError,
  TimeoutError,
} from "./errors.js";

export type { ErrorCode, ErrorFields } from "./errors.js";
export type { CallOptions } from "./check.js";
export type { ClientOptions } from "./config.js";
export type { Data, Source, Target } from "./bytes.js";
export type { BackgroundOptions, Command, CommandOptions, ExecOptions, StreamOptions } from "./command.js";
export type { FileOptions, ListDirOptions, ReadOptions } from "./filesystem.js";
export type { ExecResult, Output } from "./output.js";
export type { ProcessCallbacks } from "./process.js";
export type { CreateOptions, ListOptions, ListSnapshotsOptions } from "./resources.js";
export type {
  EventsOptions,
  ForkOptions,
  ForkTreeOptions,
  LogsOptions,
  PromoteOptions,
  SnapshotOptions,
  WithClient,
} from "./sandbox.js";
export type {
  CheckpointPolicy,
  Failure,
  FileInfo,
  Health,
  IdlePolicy,
  Lifecycle,
  LogLine,
  Me,
  Metrics,
  NewToken,
  Promoted,
  SandboxEvent,
  SandboxRecord,
  Snapshot,
  Step,
  Template,
  Timeline,
  Token,
  Tree,
  TreeNode,
  Version,
  VolumeMount,
} from "./generated/models.js";
