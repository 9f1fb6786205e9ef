"""An agent of the Claude Agent SDK whose only tools are those of a sandbox, over MCP.

    pip install pandastack claude-agent-sdk
    export ANTHROPIC_API_KEY=... PANDASTACK_API=... PANDASTACK_API_KEY=...
    python claude_agent.py "How many primes are below 10000?"
"""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from pandastack import AsyncSandbox


async def ask(question: str) -> str:
    async with await AsyncSandbox.create(ttl_seconds=900, metadata={"example": "claude-agent"}) as sandbox:
        options = ClaudeAgentOptions(
            system_prompt="Work in the sandbox. Check what you say there.",
            tools=[],  # none that work on this machine
            mcp_servers={"sandbox": sandbox.mcp_config()},  # commands, code, files, processes and ports
            strict_mcp_config=True,
            allowed_tools=["mcp__sandbox"],
            setting_sources=[],
            max_turns=20,
        )
        answer = ""
        async for message in query(prompt=question, options=options):
            if isinstance(message, ResultMessage):
                answer = message.result or message.subtype
        return answer


if __name__ == "__main__":
    print(asyncio.run(ask(sys.argv[1])))
