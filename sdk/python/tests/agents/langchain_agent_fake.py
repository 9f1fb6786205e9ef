"""Runs examples/python/langchain_agent.py with a model that follows a script."""

import sys

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

sys.path.insert(0, sys.argv[1])
import langchain_agent  # noqa: E402


class Scripted(GenericFakeChatModel):
    """Says what stands in its script, and at its end what the last tool gave."""

    def bind_tools(self, tools, **kwargs):
        assert [t.name for t in tools] == ["run", "python"]
        return self

    def _generate(self, messages, *args, **kwargs):
        result = super()._generate(messages, *args, **kwargs)
        message = result.generations[0].message
        if message.content == "LAST":
            message.content = next(m.text for m in reversed(messages) if isinstance(m, ToolMessage))
        return result


def call(name, number, **arguments):
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{number}"}])


script = [
    call("python", 1, code="primes = [n for n in range(2, 100) if all(n % d for d in range(2, n))]"),
    call("run", 2, command="echo from the shell > note"),
    call("python", 3, code="print(open('note').read().strip(), len(primes))"),
    AIMessage("LAST"),
]
print(langchain_agent.ask("How many primes are below 100?", Scripted(messages=iter(script))))
