// The example with a scripted model, and a real sandbox.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Sandbox } from "@pandastack/sdk";
import { MockLanguageModelV3 } from "ai/test";
import { ask } from "./vercel-ai.js";

type Answer = Awaited<ReturnType<MockLanguageModelV3["doGenerate"]>>;

const usage: Answer["usage"] = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

function calls(toolName: string, input: object): Answer {
  const content: Answer["content"] = [{ type: "tool-call", toolCallId: toolName, toolName, input: JSON.stringify(input) }];
  return { content, finishReason: { unified: "tool-calls", raw: undefined }, usage, warnings: [] };
}

function says(text: string): Answer {
  return { content: [{ type: "text", text }], finishReason: { unified: "stop", raw: undefined }, usage, warnings: [] };
}

test("a model works in a sandbox", async () => {
  const steps = [
    calls("writeFile", { path: "answer.py", content: "print(6 * 7)\n" }),
    calls("run", { command: "python3 answer.py" }),
    calls("readFile", { path: "no-such-file" }),
    says("It is 42."),
  ];
  const prompts: string[] = [];
  const model = new MockLanguageModelV3({
    doGenerate: async ({ prompt }) => {
      prompts.push(JSON.stringify(prompt.at(-1)));
      return steps[prompts.length - 1]!;
    },
  });
  assert.equal(await ask(model, "What is six times seven?"), "It is 42.");
  assert.match(prompts[1]!, /answer\.py/);
  assert.match(prompts[2]!, /"stdout":"42\\n","stderr":"","exitCode":0/);
  assert.match(prompts[3]!, /error: .*no-such-file/);
  assert.deepEqual(await Sandbox.list({ metadata: { example: "vercel-ai" } }), [], "the sandbox is gone");
});
