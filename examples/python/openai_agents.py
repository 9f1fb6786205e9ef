"""An agent of the OpenAI Agents SDK that works in a sandbox of its own.

    pip install pandastack openai-agents
    export OPENAI_API_KEY=... PANDASTACK_API=... PANDASTACK_API_KEY=...
    python openai_agents.py "How many primes are below 10000?"
"""

import asyncio
import sys

from agents import Agent, Runner, function_tool

from pandastack import AsyncSandbox, PandastackError

KEPT = 20_000  # characters of output that the model sees


def sandbox_tools(sandbox: AsyncSandbox):
    """The tools with which a model works in a sandbox."""

    # What the model can do something about is an answer to it.
    def failed(_, error: Exception) -> str:
        if isinstance(error, PandastackError):
            return f"error: {error}"
        raise error

    @function_tool(failure_error_function=failed)
    async def run(command: str) -> str:
        """Runs a shell command in a Linux sandbox. Gives what it wrote and its exit code."""
        result = await sandbox.exec(command, timeout_seconds=120)
        return f"{result.stdout[-KEPT:]}{result.stderr[-KEPT:]}\n[exit code {result.exit_code}]"

    @function_tool(failure_error_function=failed)
    async def write_file(path: str, content: str) -> str:
        """Makes or replaces a file in the sandbox."""
        return (await sandbox.filesystem.write(path, content)).path

    @function_tool(failure_error_function=failed)
    async def read_file(path: str) -> str:
        """Reads a text file of the sandbox."""
        return (await sandbox.filesystem.read(path))[:KEPT]

    return [run, write_file, read_file]


async def ask(question: str, model=None) -> str:
    async with await AsyncSandbox.create(ttl_seconds=900, metadata={"example": "openai-agents"}) as sandbox:
        agent = Agent("Coder", instructions="Work in the sandbox. Check what you say there.", tools=sandbox_tools(sandbox), model=model)
        return (await Runner.run(agent, question, max_turns=20)).final_output


if __name__ == "__main__":
    print(asyncio.run(ask(sys.argv[1])))
