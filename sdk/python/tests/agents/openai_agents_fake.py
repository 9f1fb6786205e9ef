"""Runs examples/python/openai_agents.py with a model that follows a script."""

import asyncio
import json
import sys

from agents import Model, ModelResponse, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

sys.path.insert(0, sys.argv[1])
import openai_agents  # noqa: E402


class Scripted(Model):
    """Calls one tool after another, then says what the last one gave."""

    calls = [
        ("write_file", {"path": "primes.py", "content": "print(sum(all(n % d for d in range(2, n)) for n in range(2, 100)))"}),
        ("read_file", {"path": "nothing.py"}),
        ("run", {"command": "python3 primes.py"}),
    ]

    async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):
        outputs = [i["output"] for i in input if isinstance(i, dict) and i.get("type") == "function_call_output"]
        if len(outputs) < len(self.calls):
            name, arguments = self.calls[len(outputs)]
            assert name in [t.name for t in tools]
            call = ResponseFunctionToolCall(
                type="function_call", call_id=f"call_{len(outputs)}", name=name, arguments=json.dumps(arguments)
            )
            return ModelResponse([call], Usage(), None)
        assert outputs[1].startswith("error: ") and "file.not_found" in outputs[1], outputs
        text = ResponseOutputText(type="output_text", text=outputs[-1], annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse([message], Usage(), None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


set_tracing_disabled(True)
print(asyncio.run(openai_agents.ask("How many primes are below 100?", Scripted())))
