// Gives a model of the Vercel AI SDK a sandbox to work in.
//
//     import { openai } from "@ai-sdk/openai";
//     console.log(await ask(openai("gpt-5"), "How many primes are below 10000?"));

import { PandaStackError, Sandbox } from "@pandastack/sdk";
import { generateText, stepCountIs, tool, type LanguageModel } from "ai";
import { z } from "zod";

/** The tools with which a model works in a sandbox. */
export function sandboxTools(sandbox: Sandbox) {
  return {
    run: tool({
      description: "Runs a shell command in a Linux sandbox. Gives what it wrote and its exit code.",
      inputSchema: z.object({ command: z.string() }),
      execute: async ({ command }, { abortSignal }) => {
        const { stdout, stderr, exitCode } = await sandbox.exec(command, { timeoutSeconds: 120, signal: abortSignal });
        return { stdout: stdout.slice(-20_000), stderr: stderr.slice(-20_000), exitCode };
      },
    }),
    writeFile: tool({
      description: "Makes or replaces a file in the sandbox.",
      inputSchema: z.object({ path: z.string(), content: z.string() }),
      execute: async ({ path, content }, { abortSignal }) => (await sandbox.filesystem.write(path, content, { signal: abortSignal })).path,
    }),
    readFile: tool({
      description: "Reads a text file of the sandbox.",
      inputSchema: z.object({ path: z.string() }),
      execute: ({ path }, { abortSignal }) => sandbox.filesystem.read(path, { signal: abortSignal }).catch(forTheModel),
    }),
  };
}

/** A failure that the model can do something about is an answer to it. */
function forTheModel(e: unknown): string {
  if (e instanceof PandaStackError) return `error: ${e.message}. ${e.hint}`;
  throw e;
}

/** Lets a model work on a question in a sandbox of its own. */
export async function ask(model: LanguageModel, prompt: string): Promise<string> {
  await using sandbox = await Sandbox.create({ ttlSeconds: 900, metadata: { example: "vercel-ai" } });
  const { text } = await generateText({ model, prompt, tools: sandboxTools(sandbox), stopWhen: stepCountIs(20) });
  return text;
}
