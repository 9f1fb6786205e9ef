/** How a command is said. */

import * as check from "./check.js";
import type { CallOptions } from "./check.js";
import type { ProcessCallbacks } from "./process.js";

/** A line for the shell, or a program with its arguments. */
export type Command = string | readonly string[];

export interface CommandOptions extends CallOptions {
  /** The server ends the command after so long; the result then has timedOut, and exit code 124. Default no limit. */
  timeoutSeconds?: number | undefined;
  /** Default the user's home directory. */
  cwd?: string | undefined;
  /** Added to the sandbox's own. */
  env?: Record<string, string> | undefined;
  /** Default the sandbox's user. */
  user?: string | undefined;
  /** A name to find the process by, beside its number. */
  tag?: string | undefined;
}

export interface StreamOptions extends CommandOptions {
  /** What the command reads; default nothing. */
  stdin?: string | Uint8Array | undefined;
  /** Leave its input open, for what processes.sendStdin writes later. */
  keepStdin?: boolean | undefined;
}

export interface ExecOptions extends StreamOptions, AwaitedCallbacks {}

export interface AwaitedCallbacks {
  /** Called with text as it is written. The next piece waits for a promise. */
  onStdout?: ((text: string) => unknown) | undefined;
  onStderr?: ((text: string) => unknown) | undefined;
}

export interface BackgroundOptions extends CommandOptions, ProcessCallbacks {}

/** The last arguments of a call that runs a command: arguments of the program, then options or seconds. */
export type Rest<O> = [first?: readonly string[] | O | number, second?: O | number];

/** What a command comes to: the body of its request, and the options of its call. */
export interface Said<O> {
  body: Record<string, unknown>;
  options: O & CallOptions;
}

const RUN = ["timeoutSeconds", "cwd", "env", "user", "tag"];

export function said<O extends StreamOptions>(call: string, cmd: Command, rest: Rest<O>, more: string[]): Said<O> {
  const [args, given] = Array.isArray(rest[0]) || rest.length > 1 ? rest : [undefined, rest[0]];
  const options = check.options(call, (typeof given === "number" ? { timeoutSeconds: given } : given) as O | undefined, [...RUN, ...more]);
  const { timeoutSeconds, cwd, env, user, tag, stdin, keepStdin } = options;
  const body = program(cmd, args);
  if (timeoutSeconds !== undefined) {
    body["timeout_seconds"] = check.seconds("timeoutSeconds", timeoutSeconds);
  }
  if (cwd !== undefined) body["cwd"] = check.path("cwd", cwd);
  if (env !== undefined) body["env"] = check.labels("env", env);
  if (user !== undefined) body["user"] = check.text("user", user);
  if (tag !== undefined) body["tag"] = check.text("tag", tag);
  if (stdin !== undefined) body["stdin"] = input(stdin);
  if (keepStdin !== undefined) body["keep_stdin"] = keepStdin;
  return { body, options };
}

function program(cmd: unknown, args: unknown): Record<string, unknown> {
  if (typeof cmd === "string") {
    check.text("cmd", cmd);
    return args === undefined ? { cmd } : { cmd, args: check.words("args", args) };
  }
  if (!Array.isArray(cmd)) throw new TypeError(`cmd is a string or an array of strings, not ${check.kindOf(cmd)}`);
  const words = [...check.words("cmd", cmd), ...(args === undefined ? [] : check.words("args", args))];
  if (!words[0]) throw new RangeError("cmd is empty");
  return { cmd: words };
}

function input(stdin: unknown): string {
  if (typeof stdin === "string") return stdin;
  if (!(stdin instanceof Uint8Array)) throw new TypeError(`stdin is a string or a Uint8Array, not ${check.kindOf(stdin)}`);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(stdin);
  } catch (e) {
    throw new TypeError("stdin is not UTF-8 text; send other bytes with runBackground and sendStdin", { cause: e });
  }
}
