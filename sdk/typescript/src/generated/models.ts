// Made by tools/generate.mjs from api/openapi.json. Do not edit.

export interface CheckpointPolicy {
  keepLast?: number | undefined;
  maxAgeSeconds?: number | undefined;
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
  /** Outgoing bandwidth cap. */
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

export interface LogLine {
  line: string;
  pid?: number | undefined;
  stream: "stdout" | "stderr" | "system";
  time: Date;
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

export interface NewToken {
  admin: boolean;
  createdAt: Date;
  lastUsed?: Date | undefined;
  name: string;
  prefix: string;
  /** The key itself; it is stored hashed and cannot be shown again. */
  token: string;
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
