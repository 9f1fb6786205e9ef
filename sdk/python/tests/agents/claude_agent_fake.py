"""Runs examples/python/claude_agent.py against a server that speaks the Messages
API and follows a script. The program of the Claude Agent SDK is the real one."""

import asyncio
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.path.insert(0, sys.argv[1])

CALLS = [
    ("mcp__sandbox__write_file", {"path": "primes.py", "content": "print(sum(all(n % d for d in range(2, n)) for n in range(2, 100)))"}),
    ("mcp__sandbox__shell", {"command": "python3 primes.py"}),
]


def blocks(request):
    """What the script says next."""
    results = [
        block
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_result"
    ]
    offered = [tool["name"] for tool in request.get("tools", [])]
    if CALLS[0][0] not in offered:
        return [{"type": "text", "text": "fine"}]  # a question beside the agent's own
    assert not {"Bash", "Edit", "Read", "Write"} & set(offered), offered
    if len(results) < len(CALLS):
        name, arguments = CALLS[len(results)]
        return [{"type": "tool_use", "id": f"toolu_{len(results)}", "name": name, "input": arguments}]
    return [{"type": "text", "text": json.dumps(results[-1]["content"])}]


def events(request):
    """A streamed answer."""
    content = blocks(request)
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "usage": usage}
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "stop_sequence": None}}
    for i, block in enumerate(content):
        if block["type"] == "text":
            empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": i, "content_block": empty}
        yield {"type": "content_block_delta", "index": i, "delta": delta}
        yield {"type": "content_block_stop", "index": i}
    stop = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


class Messages(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.startswith("/v1/messages") or not request.get("stream"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events(request):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_):
        pass


with ThreadingHTTPServer(("127.0.0.1", 0), Messages) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{server.server_port}"
    import claude_agent  # noqa: E402

    print(asyncio.run(claude_agent.ask("How many primes are below 100?")))
    server.shutdown()
