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
export { AttachedProcess, Processes } from "./processes.js";
export { Terminal } from "./terminal.js";
export { CodeOutput, CodeStream, Contexts } from "./code.js";
export { Git } from "./git.js";
export { LanguageServer } from "./lsp.js";
export { Networks, Ports, SSHKeys, SandboxNetwork } from "./network.js";
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
export type { CodeCallbacks, CodeEvent, CodeFormat, CodeRun, CreateContextOptions, RunCodeOptions } from "./code.js";
export type {
  ChmodOptions,
  ChownOptions,
  CopyOptions,
  FileOptions,
  GlobOptions,
  ListDirOptions,
  ReadOptions,
  ReplaceOptions,
  SearchOptions,
  SignOptions,
  WatchOptions,
  WriteOptions,
} from "./filesystem.js";
export type {
  GitAddOptions,
  GitCheckoutOptions,
  GitCloneOptions,
  GitCommitOptions,
  GitCreateBranchOptions,
  GitDeleteBranchOptions,
  GitDiffOptions,
  GitLogOptions,
  GitOptions,
  GitPullOptions,
  GitPushOptions,
} from "./git.js";
export type { LspMessage } from "./lsp.js";
export type { ExecResult, Output } from "./output.js";
export type { McpConfig } from "./transport.js";
export type { ProcessCallbacks } from "./process.js";
export type { ProcessName, SignalOptions } from "./processes.js";
export type { TerminalOptions, TerminalResult } from "./terminal.js";
export type { CreateOptions, ListOptions, ListSnapshotsOptions } from "./resources.js";
export type {
  EventsOptions,
  ForkOptions,
  ForkTreeOptions,
  LogsOptions,
  MetricsSeriesOptions,
  PreviewTokenOptions,
  PromoteOptions,
  SnapshotOptions,
  WithClient,
} from "./sandbox.js";
export type {
  CheckpointPolicy,
  CodeContext,
  CodeError,
  CodeOutputRecord,
  Connection,
  ConnectionLog,
  Extracted,
  Failure,
  FileEvent,
  FileInfo,
  GitAuth,
  GitBranch,
  GitCommit,
  GitFile,
  GitPatch,
  GitStatus,
  GlobResult,
  Health,
  IdlePolicy,
  LSPLanguage,
  LSPServer,
  Lifecycle,
  LogLine,
  Me,
  Metrics,
  MetricsSample,
  MetricsSeries,
  Network,
  NetworkGroup,
  NetworkMember,
  NewToken,
  Port,
  PreviewURL,
  ProcessInfo,
  Promoted,
  ReplaceResult,
  ReplacedFile,
  SSHInfo,
  SSHKey,
  SandboxEvent,
  SandboxRecord,
  SearchMatch,
  SearchResult,
  SignedFile,
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
