#!/usr/bin/env python3
"""A language server for tests: the real framing, and answers that show who asked."""
import json
import os
import sys


def read():
    length = None
    while line := sys.stdin.buffer.readline().decode().strip():
        name, value = line.split(":", 1)
        if name.lower() == "content-length":
            length = int(value)
    return None if length is None else json.loads(sys.stdin.buffer.read(length))


def write(message):
    data = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n" % len(data) + data)
    sys.stdout.buffer.flush()


documents = {}
print("this goes to nobody", file=sys.stderr)
while message := read():
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        write({"id": message["id"], "result": {"capabilities": {}, "serverInfo": {"name": "script", "version": str(os.getpid())}}})
    elif method == "textDocument/didOpen":
        documents[params["textDocument"]["uri"]] = params["textDocument"]["text"]
        write({"method": "textDocument/publishDiagnostics", "params": {"uri": params["textDocument"]["uri"], "diagnostics": [{"message": f"open: {len(documents)}"}]}})
    elif method == "textDocument/didChange":
        documents[params["textDocument"]["uri"]] = params["contentChanges"][-1]["text"]
    elif method == "textDocument/didClose":
        del documents[params["textDocument"]["uri"]]
    elif method == "textDocument/hover":
        write({"id": message["id"], "result": {"contents": documents.get(params["textDocument"]["uri"], "closed")}})
    elif method == "test/crash":
        os._exit(1)
    elif method == "shutdown":
        write({"id": message["id"], "result": None})
    elif method == "exit":
        break
