// Made by tools/generate.mjs from api/openapi.json. Do not edit.

export interface AddSSHKey {
  /** Default: the comment of the key. */
  name?: string | undefined;
  /** One line as in authorized_keys. */
  publicKey: string;
}

export interface ChangeMode {
  /** Permissions in octal. */
  mode: string;
  path: string;
  /** Also of everything below; links are left alone. */
  recursive?: boolean | undefined;
}

export interface ChangeOwner {
  /** Name or number; empty leaves it, or is the owner's own when the owner is a name. */
  group?: string | undefined;
  /** Name or number; empty leaves it. */
  owner?: string | undefined;
  path: string;
  /** Also of everything below; of links themselves, never of what they lead to. */
  recursive?: boolean | undefined;
}

export interface Changed {
  count: number;
}

export interface CheckpointPolicy {
  keepLast?: number | undefined;
  maxAgeSeconds?: number | undefined;
}

export interface CodeContext {
  cwd: string;
  id: string;
  language: string;
}

export interface CodeError {
  name: string;
  traceback: string;
  value: string;
}

export interface CodeEventRecord {
  /** With end. */
  durationMs?: number | undefined;
  /** Why the stream broke off; the last event. */
  error?: Failure | undefined;
  /** What the code raised. */
  exception?: CodeError | undefined;
  /** With start. */
  executionCount?: number | undefined;
  result?: CodeOutputRecord | undefined;
  /** With stdout and stderr. */
  text?: string | undefined;
  /** With end. */
  timedOut?: boolean | undefined;
  /** With stdout and stderr: seconds since 1970. */
  timestamp?: number | undefined;
  type: "start" | "stdout" | "stderr" | "result" | "exception" | "end" | "error";
}

export interface CodeLanguages {
  languages: string[];
}

export interface CodeOutputRecord {
  /** A chart as data: type, title, elements, axes. */
  chart?: unknown | undefined;
  /** A table, as lists by column. */
  data?: unknown | undefined;
  /** Other forms, by media type. */
  extra?: unknown | undefined;
  html?: string | undefined;
  /** It is the value of the last expression. */
  isMainResult: boolean;
  javascript?: string | undefined;
  jpeg?: string | undefined;
  json?: unknown | undefined;
  latex?: string | undefined;
  markdown?: string | undefined;
  pdf?: string | undefined;
  /** Base64, as are jpeg and pdf. */
  png?: string | undefined;
  svg?: string | undefined;
  text?: string | undefined;
}

export interface CodeRunRecord {
  durationMs: number;
  error?: CodeError | undefined;
  /** Number of this execution in its context. */
  executionCount: number;
  /** Everything that was shown, in order. */
  results: CodeOutputRecord[];
  stderr: string;
  stdout: string;
  /** Value of the last expression, as text. */
  text?: string | undefined;
  timedOut?: boolean | undefined;
  /** More came than the buffered call keeps; the streaming one has no limit. */
  truncated?: boolean | undefined;
}

export interface Connection {
  /** IPv4 address. */
  address?: string | undefined;
  /** Attempts that this line stands for, when more than one. */
  count?: number | undefined;
  /** Grows with time; pass as since= to go on from here. */
  id: number;
  /** Name that was asked for, where one is known: from TLS, HTTP or DNS. */
  name?: string | undefined;
  port?: number | undefined;
  protocol: "tcp" | "udp" | "dns" | "icmp" | "other";
  /** Why it was denied, or could not be made. */
  reason?: string | undefined;
  receivedBytes: number;
  /** How long it lasted. */
  seconds?: number | undefined;
  /** By the sandbox. */
  sentBytes: number;
  /** When it began. */
  time: Date;
  verdict: "allowed" | "denied";
}

export interface ConnectionLog {
  connections: Connection[];
  /** Lines lost since the sandbox was made, because there were too many. */
  dropped?: number | undefined;
}

export interface ContextList {
  contexts: CodeContext[];
}

export interface CopyFile {
  from: string;
  /** Replace files that are there; without it one that is there is file.exists. */
  overwrite?: boolean | undefined;
  /** The path of the copy itself; directories above it are made. */
  to: string;
}

export interface CreateContext {
  /** Default: the user's home directory. */
  cwd?: string | undefined;
  /** Beside the sandbox's own. */
  env?: Record<string, string> | undefined;
  /** Default: python. */
  language?: string | undefined;
}

export interface CreateSandbox {
  /** Which checkpoints to keep. */
  checkpoints?: CheckpointPolicy | undefined;
  /** CPUs; default of the template. */
  cpu?: number | undefined;
  /** Writable disk, MiB; default of the template. */
  diskMb?: number | undefined;
  /** Isolation driver, or auto. */
  driver?: string | undefined;
  /** Short for network.egressMbps. */
  egressMbps?: number | undefined;
  /** Environment of every process. */
  env?: Record<string, string> | undefined;
  /** Id or name of a snapshot, or id of a checkpoint, to start from; template, driver and disk size are then its own. */
  fromSnapshot?: string | undefined;
  /** When to hibernate, in detail. */
  idle?: IdlePolicy | undefined;
  /** Hibernate after this long without use; short for idle.timeoutSeconds. */
  idleTimeoutSeconds?: number | undefined;
  /** Memory limit, MiB; default of the template. */
  memoryMb?: number | undefined;
  /** Labels: at most 64, keys of at most 128 bytes, 64 KiB in all. */
  metadata?: Record<string, string> | undefined;
  /** What it may reach, and the networks it joins. */
  network?: Network | undefined;
  /** No time to live. */
  persistent?: boolean | undefined;
  /** Template name; default base, or that of fromSnapshot. */
  template?: string | undefined;
  /** Deleted after this long; default 3600. */
  ttlSeconds?: number | undefined;
  /** Volumes to attach. */
  volumes?: VolumeMount[] | undefined;
}

export interface CreateSnapshot {
  /** false for files only; default true. */
  memory?: boolean | undefined;
  metadata?: Record<string, string> | undefined;
  /** Letters, digits, dots, dashes and underscores. */
  name?: string | undefined;
}

export interface CreateToken {
  admin?: boolean | undefined;
  name: string;
}

export interface DirList {
  entries: FileInfo[];
  path: string;
}

export interface Failure {
  /** Stable name of the failure. */
  code: string;
  /** More, by code: retryable, retry_after_sec, field, ... */
  details?: Record<string, unknown> | undefined;
  /** What to do about it. */
  hint?: string | undefined;
  /** What happened, for people. */
  message: string;
  /** Names this request in the server's log. */
  requestId?: string | undefined;
}

export interface SandboxEvent {
  data?: Record<string, string> | undefined;
  /** Grows with time; pass as since= to go on from here. */
  id: number;
  sandboxId: string;
  time: Date;
  type: string;
}

export interface ExecResultRecord {
  durationMs: number;
  /** 128+n after signal n. */
  exitCode: number;
  pid?: number | undefined;
  signal?: string | undefined;
  stderr: string;
  /** Bytes that are not UTF-8 are replaced; the streaming calls give them as they are. */
  stdout: string;
  timedOut?: boolean | undefined;
  truncated?: boolean | undefined;
}

export interface ExposePort {
  port: number;
  /** Default public. */
  visibility?: "public" | "private" | undefined;
}

export interface Extracted {
  bytes: number;
  /** Files, directories and links that were made. */
  files: number;
  /** The directory, in full. */
  path: string;
  /** Devices and other things that are never made. */
  skipped: number;
}

export interface FileEvent {
  /** In full; none of overflow. */
  path?: string | undefined;
  type: "create" | "write" | "remove" | "rename" | "chmod" | "overflow";
}

export interface FileInfo {
  group: string;
  mode: string;
  modified: Date;
  name: string;
  owner: string;
  path: string;
  size: number;
  /** Where a symlink points. */
  target?: string | undefined;
  type: "file" | "directory" | "symlink" | "other";
}

export interface Fork {
  /** Branch from this checkpoint of the sandbox instead of from now. */
  checkpoint?: string | undefined;
  /** Children; default 1. */
  count?: number | undefined;
  cpu?: number | undefined;
  /** Added to the parent's, for processes started from now on. */
  env?: Record<string, string> | undefined;
  memoryMb?: number | undefined;
  /** Replaces the parent's; absent keeps it. */
  metadata?: Record<string, string> | undefined;
  /** Default: the parent's, without its name there. */
  network?: Network | undefined;
  persistent?: boolean | undefined;
  /** Default: as the parent was given. */
  ttlSeconds?: number | undefined;
}

export interface ForkTreeRecord {
  children: SandboxRecord[];
  parentId: string;
  /** Names these siblings; pass it to promote. */
  treeId: string;
}

export interface GitAdd {
  /** Directory of the repository; default the working directory of the sandbox. */
  path?: string | undefined;
  /** Relative to the repository's directory; none is everything. */
  paths?: string[] | undefined;
  /** Default 60, for what talks to a remote 600. */
  timeoutSeconds?: number | undefined;
  /** Who git runs as; default user. */
  user?: string | undefined;
}

export interface GitAuth {
  /** Fail unless the remote is on this host (with its port, if it has one). What runs in the sandbox can point a remote elsewhere: name it for pull and push. */
  host?: string | undefined;
  /** A password or token. */
  password: string;
  /** Default git, which servers take beside a token. */
  username?: string | undefined;
}

export interface GitBranch {
  commit: string;
  current: boolean;
  name: string;
  /** A branch of a remote, as last seen. */
  remote: boolean;
  upstream?: string | undefined;
}

export interface GitBranchRequest {
  /** Name of a branch to make. */
  create?: string | undefined;
  /** Name of a branch to delete. */
  delete?: string | undefined;
  /** Delete also what is not merged. */
  force?: boolean | undefined;
  /** Where the new one starts; default the current commit. */
  from?: string | undefined;
  /** Directory of the repository; default the working directory of the sandbox. */
  path?: string | undefined;
  /** Default 60, for what talks to a remote 600. */
  timeoutSeconds?: number | undefined;
  /** Who git runs as; default user. */
  user?: string | undefined;
}

export interface GitBranches {
  branches: GitBranch[];
}

export interface GitCheckout {
  /** Make the branch first. */
  create?: boolean | undefined;
  /** Directory of the repository; default the working directory of the sandbox. */
  path?: string | undefined;
  ref: string;
  /** Default 60, for what talks to a remote 600. */
  timeoutSeconds?: number | undefined;
  /** Who git runs as; default user. */
  user?: string | undefined;
}

export interface GitClone {
  auth?: GitAuth | undefined;
  /** Branch or tag to check out. */
  branch?: string | undefined;
  /** Only so many of the latest commits; 0 is all. */
  depth?: number | undefined;
  /** Directory of the repository; default the working directory of the sandbox. */
  path?: string | undefined;
  /** Default 60, for what talks to a remote 600. */
  timeoutSeconds?: number | undefined;
  /** Without user and password; those go into auth. */
  url: string;
  /** Who git runs as; default user. */
  user?: string | undefined;
}

export interface GitCommit {
  author: string;
  body?: string | undefined;
  email: string;
  id: string;
  parents: string[];
  subject: string;
  time: Date;
}

export interface GitCommitRequest {
  /** Stage changes of files that are tracked first. */
  all?: boolean | undefined;
  allowEmpty?: boolean | undefined;
  authorEmail?: string | undefined;
  /** Author and committer; default of git's configuration. */
  authorName?: string | undefined;
  message: string;
  /** Directory of the repository; default the working directory of the sandbox. */
  path?: string | undefined;
  /** Default 60, for what talks to a remote 600. */
  timeoutSeconds?: number | undefined;
  /** Who git runs as; default user. */
  user?: string | undefined;
}

export interface GitDiff {
  /** Commit or branch to compare with. */
  from?: string | undefined;
  /** Directory of the repository; default the working directory of the sandbox. */
  path?: string | undefined;
  paths?: string[] | undefined;
  /** What is staged, against the last commit; else what is not. */
  staged?: boolean | undefined;
  /** Default 60, for what talks to a remote 600. */
  timeoutSeconds?: number | undefined;
  /** With from: compare two commits. */
  to?: string | undefined;
  /** Who git runs as; default user. */
  user?: string | undefined;
}

export interface GitFile {
  /** Where it was before it was renamed or copied. */
  from?: string | undefined;
  path: string;
  /** What is staged of it. */
  staged: "unmodified" | "modified" | "added" | "deleted" | "renamed" | "copied" | "type_changed" | "untracked" | "conflict";
  /** What is not. */
  worktree: "unmodified" | "modified" | "added" | "deleted" | "renamed" | "copied" | "type_changed" | "untracked" | "conflict";
}

export interface GitLog {
  commits: GitCommit[];
  /** The list was cut before the limit, because it is too long. */
  truncated: boolean;
}

export interface GitLogRequest {
  /** Default 50. */
  limit?: number | undefined;
  /** Directory of the repository; default the working directory of the sandbox. */
  path?: string | undefined;
  /** Only commits that changed these. */
  paths?: string[] | undefined;
  /** Where to start; default the current commit. */
  ref?: string | undefined;
  skip?: number | undefined;
  /** Default 60, for what talks to a remote 600. */
  timeoutSeconds?: number | undefined;
  /** Who git runs as; default user. */
  user?: string | undefined;
}

export interface GitPatch {
  diff: string;
  /** The patch is longer; name paths to get it in parts. */
  truncated: boolean;
}

export interface GitRepo {
  /** Directory of the repository; default the working directory of the sandbox. */
  path?: string | undefined;
  /** Default 60, for what talks to a remote 600. */
  timeoutSeconds?: number | undefined;
  /** Who git runs as; default user. */
  user?: string | undefined;
}

export interface GitStatus {
  /** Commits that the upstream lacks. */
  ahead: number;
  /** Commits that only the upstream has. */
  behind: number;
  /** None when no branch is checked out. */
  branch?: string | undefined;
  clean: boolean;
  /** None before the first commit. */
  commit?: string | undefined;
  files: GitFile[];
  /** There are more files. */
  truncated: boolean;
  upstream?: string | undefined;
}

export interface GitSync {
  auth?: GitAuth | undefined;
  /** Default the current branch. */
  branch?: string | undefined;
  /** Push: replace the remote branch, unless somebody else has changed it. */
  force?: boolean | undefined;
  /** Directory of the repository; default the working directory of the sandbox. */
  path?: string | undefined;
  /** Pull: put local commits on top instead of merging. */
  rebase?: boolean | undefined;
  /** Default origin. */
  remote?: string | undefined;
  /** Push: remember the branch for later pulls. */
  setUpstream?: boolean | undefined;
  /** Default 60, for what talks to a remote 600. */
  timeoutSeconds?: number | undefined;
  /** Who git runs as; default user. */
  user?: string | undefined;
}

export interface Glob {
  /** At most so many; default 1000. */
  limit?: number | undefined;
  /** Where to look; default the working directory of the sandbox. */
  path?: string | undefined;
  /** Matched against paths relative to path: * and ? within a name, ** over directories, [a-z], {a,b}. */
  pattern: string;
}

export interface GlobResult {
  matches: FileInfo[];
  /** Where was looked, in full. */
  path: string;
  /** There are more. */
  truncated: boolean;
}

export interface Health {
  /** What it waits for. */
  detail?: string | undefined;
  status: "ok" | "starting" | "failed";
}

export interface IdlePolicy {
  /** Of one CPU: more than this is busy; default 2. */
  cpuPercent?: number | undefined;
  /** Busy processes do not count. */
  ignoreProcesses?: boolean | undefined;
  /** An open stream or terminal without a byte does not count. */
  ignoreStreams?: boolean | undefined;
  /** Its own network traffic does not count. */
  ignoreTraffic?: boolean | undefined;
  /** Sleep after this long without use; 0 is never. */
  timeoutSeconds: number;
  /** In a look of some seconds: more than this is traffic; default 1024. */
  trafficBytes?: number | undefined;
}

export interface LSPLanguage {
  /** Other names that are accepted. */
  aliases: string[];
  id: string;
  /** In order of preference. */
  servers: LSPServer[];
}

export interface LSPLanguageList {
  languages: LSPLanguage[];
}

export interface LSPServer {
  /** One way to install it in a sandbox or a template. */
  install: string;
  program: string;
}

export interface Lifecycle {
  checkpoints?: CheckpointPolicy | undefined;
  expiresAt?: Date | undefined;
  idle?: IdlePolicy | undefined;
  /** Short for idle.timeoutSeconds. */
  idleSeconds?: number | undefined;
  persistent?: boolean | undefined;
  /** From now on. */
  ttlSeconds?: number | undefined;
}

export interface LinkTarget {
  path: string;
  target: string;
}

export interface LogLine {
  line: string;
  pid?: number | undefined;
  stream: "stdout" | "stderr" | "system";
  time: Date;
}

export interface MakeLink {
  /** Where the link is made. */
  path: string;
  /** What it says, word for word; it need not exist. */
  target: string;
}

export interface Me {
  admin: boolean;
  /** Name of the key. */
  name: string;
  org: string;
  /** First characters of the key. */
  prefix: string;
}

export interface Metrics {
  /** Host CPU time so far. */
  cpuSeconds: number;
  diskLimitBytes: number;
  diskUsedBytes: number;
  /** Since the last reading, 100 is one CPU. */
  hostCpuPercent: number;
  /** Memory charged to the sandbox on its host. */
  hostRssBytes: number;
  memoryLimitBytes: number;
  /** Process of the runtime on its host. */
  pid: number;
  /** Host tasks, the runtime's own included. */
  processes: number;
  rxBytes: number;
  txBytes: number;
  uptimeSeconds: number;
}

export interface MetricsSample {
  /** During the step, 100 is one CPU. */
  cpuPercent: number;
  diskUsedBytes: number;
  /** Largest of the step. */
  memoryBytes: number;
  memoryLimitBytes: number;
  /** Received during the step. */
  rxBytes: number;
  /** End of the step. */
  time: Date;
  /** Sent during the step. */
  txBytes: number;
}

export interface MetricsSeries {
  /** Oldest first; none while it was asleep. */
  samples: MetricsSample[];
  sandboxId: string;
  stepSeconds: number;
}

export interface Network {
  /** Addresses, ranges, names and *.names with optional ports that may be reached. */
  allow?: string[] | undefined;
  /** The same that may not be reached. */
  deny?: string[] | undefined;
  /** Cap of outgoing bandwidth, megabits per second; 0 is none. */
  egressMbps?: number | undefined;
  /** Whether what no entry names may be reached; default true, or false when allow has entries. */
  internet?: boolean | undefined;
  /** Networks, by name, whose members it reaches and is reached by; at most 8. */
  join?: string[] | undefined;
  /** Its name in those networks: members find it as <name>.internal. It is always <id>.internal. */
  name?: string | undefined;
}

export interface NetworkGroup {
  createdAt: Date;
  /** Sandboxes that have joined it. */
  members: NetworkMember[];
  name: string;
}

export interface NetworkGroupList {
  networks: NetworkGroup[];
}

export interface NetworkMember {
  /** IPv4; absent while it sleeps. */
  address?: string | undefined;
  /** Its own choice; it is also <sandboxId>.internal. */
  name?: string | undefined;
  sandboxId: string;
}

export interface NewToken {
  admin: boolean;
  createdAt: Date;
  lastUsed?: Date | undefined;
  name: string;
  prefix: string;
  /** The key itself; it is stored hashed and cannot be shown again. */
  token: string;
}

export interface Port {
  /** Something listens on it now. */
  listening: boolean;
  port: number;
  /** Name of the process that listens. */
  process?: string | undefined;
  /** Of its preview. */
  url: string;
  visibility: "public" | "private" | "closed";
}

export interface PortList {
  ports: Port[];
}

export interface Preview {
  port: number;
  url: string;
  visibility: "public" | "private" | "closed";
}

export interface PreviewURL {
  expiresAt: Date;
  /** The same as a value of the header X-PandaStack-Preview-Token. */
  token: string;
  /** Opens the preview until it expires; a browser is given a cookie and may go on from there. */
  url: string;
}

export interface ProcessInfo {
  args: string[];
  /** More arguments follow than are shown. */
  argsCut?: boolean | undefined;
  cmd: string;
  /** Where it was started. */
  cwd: string;
  endedAt?: Date | undefined;
  /** Once it has ended; 128+n after signal n. */
  exitCode?: number | undefined;
  /** In the sandbox. */
  pid: number;
  /** That ended it. */
  signal?: string | undefined;
  startedAt: Date;
  /** Name given at its start. */
  tag?: string | undefined;
  /** It runs in a terminal. */
  terminal: boolean;
  user: string;
}

export interface ProcessList {
  /** Running ones in order of start, after those that have ended. */
  processes: ProcessInfo[];
}

export interface Promote {
  /** Delete the other children of its tree. */
  cleanupSiblings?: boolean | undefined;
  /** The tree the sandbox must belong to; default the one it does. */
  treeId?: string | undefined;
}

export interface Promoted {
  /** Siblings that were deleted. */
  deleted: string[];
  sandbox: SandboxRecord;
  treeId: string;
}

export interface Replace {
  /** Only count. */
  dryRun?: boolean | undefined;
  /** No files or directories that match one of these globs. */
  exclude?: string[] | undefined;
  ignoreCase?: boolean | undefined;
  /** Only files that match one of these globs. */
  include?: string[] | undefined;
  literal?: boolean | undefined;
  /** A directory or one file; default the working directory of the sandbox. */
  path?: string | undefined;
  /** A regular expression (RE2, ^ and $ match at lines), or with literal the text itself. */
  pattern: string;
  /** With a regular expression $1 or ${name} is a group, and $$ a dollar. */
  replacement: string;
  /** Default 30; what was done until then stays. */
  timeoutSeconds?: number | undefined;
}

export interface ReplaceResult {
  /** Replacements altogether. */
  count: number;
  dryRun: boolean;
  files: ReplacedFile[];
  /** Where was looked, in full. */
  path: string;
  /** Files above 8 MiB, which were left alone. */
  skipped: number;
  /** The time was over before all files were looked at. */
  timedOut: boolean;
  /** There are more files than one call replaces. */
  truncated: boolean;
}

export interface ReplacedFile {
  count: number;
  path: string;
}

export interface RunCode {
  code: string;
  /** Run in this context instead; its language counts. */
  contextId?: string | undefined;
  /** For this code only. */
  env?: Record<string, string> | undefined;
  /** python, javascript, typescript or bash; default python. The code runs in the context that the sandbox shares for the language. */
  language?: string | undefined;
  /** Answer with server-sent events as it runs. */
  stream?: boolean | undefined;
  /** Interrupt it after this long; 0 is no limit. The context keeps its state. */
  timeoutMs?: number | undefined;
}

export interface SSHInfo {
  command: string;
  /** Of the host key. */
  fingerprint: string;
  /** Of the server, as far as it knows. */
  host: string;
  /** The server's public key in the form of known_hosts, without the host. */
  hostKey: string;
  port: number;
  /** The sandbox's id. */
  user: string;
}

export interface SSHKey {
  createdAt: Date;
  fingerprint: string;
  name: string;
  /** In the form of authorized_keys, without its comment. */
  publicKey: string;
}

export interface SSHKeyList {
  keys: SSHKey[];
}

export interface SandboxRecord {
  bootMode?: "cold" | "restore" | "fork" | "wake" | undefined;
  /** Milliseconds from the host taking the request to the guest answering. */
  bootMs?: number | undefined;
  /** Milliseconds by step. */
  bootSteps?: Step[] | undefined;
  /** CPUs it may use at most. */
  cpu: number;
  createdAt: Date;
  /** Writable disk, MiB. */
  diskMb: number;
  driver: string;
  /** Why it failed. */
  error?: Failure | undefined;
  /** When its time to live runs out. */
  expiresAt?: Date | undefined;
  /** Its address on the host's sandbox network. */
  guestIp?: string | undefined;
  /** Host that runs it. */
  host: string;
  id: string;
  /** When it goes to sleep by itself. */
  idle?: IdlePolicy | undefined;
  /** Memory limit, MiB. */
  memoryMb: number;
  /** The owner's own labels. */
  metadata: Record<string, string>;
  /** Sandbox that it was forked from. */
  parentId?: string | undefined;
  /** Has no time to live. */
  persistent: boolean;
  /** Snapshot that it was created from, or the checkpoint that it was last taken at or rolled back to. */
  snapshotId?: string | undefined;
  status: "creating" | "running" | "paused" | "hibernated" | "deleting" | "failed";
  template: string;
  /** Fork that it came from, shared with its siblings. */
  treeId?: string | undefined;
  /** Lifetime from its last setting; 0 when persistent. */
  ttlSeconds: number;
}

export interface SandboxList {
  /** Pass as page= for the next page; absent on the last. */
  nextPage?: string | undefined;
  sandboxes: SandboxRecord[];
}

export interface Search {
  /** So many lines before and after each match. */
  context?: number | undefined;
  /** No files or directories that match one of these globs. */
  exclude?: string[] | undefined;
  ignoreCase?: boolean | undefined;
  /** Only files that match one of these globs; one without a slash is for the name alone. */
  include?: string[] | undefined;
  literal?: boolean | undefined;
  /** Default 1000. */
  maxResults?: number | undefined;
  /** Look at the names of files and directories instead of what is in them. */
  names?: boolean | undefined;
  /** A directory or one file; default the working directory of the sandbox. */
  path?: string | undefined;
  /** A regular expression (RE2), or with literal the text itself. */
  pattern: string;
  /** Default 30; what was found until then is the answer. */
  timeoutSeconds?: number | undefined;
}

export interface SearchMatch {
  after?: string[] | undefined;
  before?: string[] | undefined;
  /** Of the first match in the line, in bytes from 1. */
  column?: number | undefined;
  /** From 1; none for a name. */
  line?: number | undefined;
  /** In full. */
  path: string;
  /** The line, of a long one a part. */
  text?: string | undefined;
}

export interface SearchResult {
  matches: SearchMatch[];
  /** Where was looked, in full. */
  path: string;
  /** The time was over before all files were looked at. */
  timedOut: boolean;
  /** There are more than maxResults. */
  truncated: boolean;
}

export interface SignFile {
  /** Default 3600, at most seven days. */
  expiresSeconds?: number | undefined;
  /** read: GET and HEAD of the file; write: PUT that makes or replaces it. */
  operation: "read" | "write";
  path: string;
  /** As the user parameter of the other file operations. */
  user?: string | undefined;
}

export interface SignedFile {
  expiresAt: Date;
  method: "GET" | "PUT";
  url: string;
}

export interface Snapshot {
  cpu: number;
  createdAt: Date;
  diskMb: number;
  driver: string;
  /** Host that has it. */
  host: string;
  id: string;
  kind: "snapshot" | "checkpoint";
  /** Holds memory and processes; else files only, which start cold and survive upgrades. */
  memory: boolean;
  memoryMb: number;
  metadata?: Record<string, string> | undefined;
  /** Unique among the owner's snapshots; of a checkpoint, within its sandbox. */
  name?: string | undefined;
  /** Snapshot or checkpoint that its sandbox last came from. */
  parentId?: string | undefined;
  /** How long the sandbox stood still for it. */
  pauseMs: number;
  /** Sandbox it was taken of, which may be gone. */
  sandboxId: string;
  /** What it holds. */
  sizeBytes: number;
  /** What it added to the store; the rest is shared with other snapshots. Grows from 0 when it is packed, shortly after it was taken. */
  storedBytes: number;
  template: string;
}

export interface SnapshotList {
  /** Pass as page= for the next page; absent on the last. */
  nextPage?: string | undefined;
  snapshots: Snapshot[];
}

export interface Step {
  /** Milliseconds. */
  ms: number;
  name: string;
}

export interface Template {
  /** More names that a create may use. */
  aliases?: string[] | undefined;
  cpu?: number | undefined;
  createdAt?: Date | undefined;
  digest?: string | undefined;
  diskMb?: number | undefined;
  error?: Failure | undefined;
  memoryMb?: number | undefined;
  name: string;
  /** How far a build is, 0 to 100. */
  percent?: number | undefined;
  /** What a build is doing. */
  progress?: string | undefined;
  sizeBytes?: number | undefined;
  /** Drivers whose memory snapshot is baked on this host. */
  snapshots?: string[] | undefined;
  /** on_demand is built by the first create that names it. */
  status: "building" | "ready" | "failed" | "on_demand";
}

export interface TemplateList {
  templates: Template[];
}

export interface Timeline {
  checkpoints: Snapshot[];
  /** The checkpoint that the sandbox now goes on from. */
  current?: string | undefined;
  policy: CheckpointPolicy;
}

export interface Token {
  admin: boolean;
  createdAt: Date;
  lastUsed?: Date | undefined;
  name: string;
  prefix: string;
}

export interface TokenList {
  tokens: Token[];
}

export interface Tree {
  nodes: TreeNode[];
  rootId: string;
}

export interface TreeNode {
  createdAt: Date;
  endedAt?: Date | undefined;
  id: string;
  parentId?: string | undefined;
  promoted?: boolean | undefined;
  /** Snapshot that it was created from. */
  snapshotId?: string | undefined;
  /** deleted when it is gone. */
  status: string;
  template: string;
  /** Fork that it came from. */
  treeId?: string | undefined;
}

export interface Version {
  commit?: string | undefined;
  go: string;
  /** Build of the gVisor runtime; snapshots restore only into the same one. */
  runtime: string;
  version: string;
}

export interface VolumeMount {
  name: string;
  readOnly?: boolean | undefined;
}

/** The fields of a sandbox's record, as the server last gave them. */
export abstract class SandboxFields {
  /** The whole record. */
  abstract readonly record: SandboxRecord;

  get bootMode(): "cold" | "restore" | "fork" | "wake" | undefined {
    return this.record.bootMode;
  }

  /** Milliseconds from the host taking the request to the guest answering. */
  get bootMs(): number | undefined {
    return this.record.bootMs;
  }

  /** Milliseconds by step. */
  get bootSteps(): Step[] | undefined {
    return this.record.bootSteps;
  }

  /** CPUs it may use at most. */
  get cpu(): number {
    return this.record.cpu;
  }

  get createdAt(): Date {
    return this.record.createdAt;
  }

  /** Writable disk, MiB. */
  get diskMb(): number {
    return this.record.diskMb;
  }

  get driver(): string {
    return this.record.driver;
  }

  /** Why it failed. */
  get error(): Failure | undefined {
    return this.record.error;
  }

  /** When its time to live runs out. */
  get expiresAt(): Date | undefined {
    return this.record.expiresAt;
  }

  /** Its address on the host's sandbox network. */
  get guestIp(): string | undefined {
    return this.record.guestIp;
  }

  /** Host that runs it. */
  get host(): string {
    return this.record.host;
  }

  get id(): string {
    return this.record.id;
  }

  /** When it goes to sleep by itself. */
  get idle(): IdlePolicy | undefined {
    return this.record.idle;
  }

  /** Memory limit, MiB. */
  get memoryMb(): number {
    return this.record.memoryMb;
  }

  /** The owner's own labels. */
  get metadata(): Record<string, string> {
    return this.record.metadata;
  }

  /** Sandbox that it was forked from. */
  get parentId(): string | undefined {
    return this.record.parentId;
  }

  /** Has no time to live. */
  get persistent(): boolean {
    return this.record.persistent;
  }

  /** Snapshot that it was created from, or the checkpoint that it was last taken at or rolled back to. */
  get snapshotId(): string | undefined {
    return this.record.snapshotId;
  }

  get status(): "creating" | "running" | "paused" | "hibernated" | "deleting" | "failed" {
    return this.record.status;
  }

  get template(): string {
    return this.record.template;
  }

  /** Fork that it came from, shared with its siblings. */
  get treeId(): string | undefined {
    return this.record.treeId;
  }

  /** Lifetime from its last setting; 0 when persistent. */
  get ttlSeconds(): number {
    return this.record.ttlSeconds;
  }
}
