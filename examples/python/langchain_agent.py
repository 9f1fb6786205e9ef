"""A LangChain model with tools that work in a sandbox of its own.

    pip install pandastack langgraph langchain-anthropic
    export ANTHROPIC_API_KEY=... PANDASTACK_API=... PANDASTACK_API_KEY=...
    python langchain_agent.py "How many primes are below 10000?"
"""

import sys

from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from pandastack import PandastackError, Sandbox

KEPT = 20_000  # characters of output that the model sees


def sandbox_tools(sandbox: Sandbox):
    """The tools with which a model works in a sandbox."""

    @tool
    def run(command: str) -> str:
        """Runs a shell command in a Linux sandbox. Gives what it wrote and its exit code."""
        result = sandbox.exec(command, timeout_seconds=120)
        return f"{result.stdout[-KEPT:]}{result.stderr[-KEPT:]}\n[exit code {result.exit_code}]"

    @tool
    def python(code: str) -> str:
        """Runs Python in an interpreter that keeps what was defined. Gives what it wrote and the last value."""
        result = sandbox.run_code(code, timeout_seconds=120)
        return f"{result.stdout[-KEPT:]}{result.text or ''}{result.error.traceback[-KEPT:] if result.error else ''}"

    return [run, python]


def failed(error: PandastackError) -> str:
    """What the model can do something about is an answer to it."""
    return f"error: {error}"


def ask(question: str, model) -> str:
    with Sandbox.create(ttl_seconds=900, metadata={"example": "langchain"}) as sandbox:
        tools = sandbox_tools(sandbox)
        bound = model.bind_tools(tools)
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [bound.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode(tools, handle_tool_errors=failed))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile().invoke({"messages": [("user", question)]})["messages"][-1].text


if __name__ == "__main__":
    from langchain_anthropic import ChatAnthropic

    print(ask(sys.argv[1], ChatAnthropic(model_name="claude-sonnet-4-5", timeout=None, stop=None)))
