"""Every operation of the server's description has a call here, and sends what the description says."""

from __future__ import annotations

import io
import json
import re
from typing import Any, Callable, Dict, List
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from conftest import REPOSITORY
from pandastack import PandaStack, PandastackError, Sandbox

DOCUMENT = json.loads((REPOSITORY / "api" / "openapi.json").read_text())
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
Call = Callable[[PandaStack, Sandbox], Any]

CALLS: Dict[str, Call] = {
    "health": lambda c, s: c.health(),
    "ready": lambda c, s: c.ready(),
    "version": lambda c, s: c.version(),
    "prometheusMetrics": lambda c, s: c.prometheus_metrics(),
    "me": lambda c, s: c.me(),
    "listTokens": lambda c, s: c.tokens.list(),
    "createToken": lambda c, s: c.tokens.create("n", admin=True),
    "revokeToken": lambda c, s: c.tokens.revoke("p"),
    "listTemplates": lambda c, s: c.templates.list(),
    "getTemplate": lambda c, s: c.templates.get("t"),
    # Sandboxes
    "createSandbox": lambda c, s: c.sandboxes.create(
        "base", ttl_seconds=60, metadata={"a": "b"}, env={"A": "b"}, persistent=True, driver="gvisor", cpu=1,
        memory_mb=64, disk_mb=64, from_snapshot="s", idle_timeout_seconds=5, idle={"timeout_seconds": 5},
        checkpoints={"keep": 2}, volumes=["v"], egress_mbps=5,
        network={"internet": False}, networks=["n"],
    ),
    "listSandboxes": lambda c, s: c.sandboxes.list(metadata={"a": "b"}, status="running", template="base", limit=5),
    "getSandbox": lambda c, s: s.refresh(),
    "deleteSandbox": lambda c, s: s.kill(),
    "pauseSandbox": lambda c, s: s.pause(),
    "resumeSandbox": lambda c, s: s.resume(),
    "hibernateSandbox": lambda c, s: s.hibernate(),
    "wakeSandbox": lambda c, s: s.wake(),
    "getLifecycle": lambda c, s: s.lifecycle(),
    "setLifecycle": lambda c, s: s.set_lifecycle(
        ttl_seconds=5, persistent=False, idle_seconds=5, idle={"timeout_seconds": 5}, checkpoints={"keep": 2}
    ),
    "getMetrics": lambda c, s: s.metrics(),
    "getMetricsSeries": lambda c, s: s.metrics_series("1h", "1m"),
    "getLogs": lambda c, s: s.logs(stream="stdout", follow=True, tail=5),
    "getEvents": lambda c, s: s.events(follow=True, tail=5, since=1),
    # Copies
    "createSnapshot": lambda c, s: s.snapshot("n", memory=False, metadata={"a": "b"}),
    "listSandboxSnapshots": lambda c, s: s.snapshots(),
    "listSnapshots": lambda c, s: c.snapshots.list(sandbox_id="i", kind="snapshot", limit=5),
    "importSnapshot": lambda c, s: c.snapshots.import_(io.BytesIO(b"x"), name="n"),
    "getSnapshot": lambda c, s: c.snapshots.get("n"),
    "deleteSnapshot": lambda c, s: c.snapshots.delete("n"),
    "exportSnapshot": lambda c, s: c.snapshots.export("n", io.BytesIO()),
    "forkSandbox": lambda c, s: s.fork(metadata={"a": "b"}, env={"A": "b"}, ttl_seconds=5, persistent=True, checkpoint="p"),
    "forkTree": lambda c, s: s.fork_tree(2, metadata={"a": "b"}, cpu=1, memory_mb=64),
    "promoteSandbox": lambda c, s: s.promote("t", cleanup_siblings=True),
    "getTree": lambda c, s: s.tree(),
    "createCheckpoint": lambda c, s: s.checkpoint("n"),
    "listCheckpoints": lambda c, s: s.checkpoints(),
    "deleteCheckpoint": lambda c, s: s.delete_checkpoint("n"),
    "restoreSandbox": lambda c, s: s.restore("n"),
    # Commands
    "exec": lambda c, s: s.exec("a", ["b"], timeout_seconds=1, cwd="/", env={"A": "b"}, user="root", stdin="x"),
    "execStream": lambda c, s: s.exec_stream("a"),
    "execWebSocket": lambda c, s: s.run_background("a"),
    "execTerminal": lambda c, s: s.pty("a", rows=1, cols=1, cwd="/", user="root", term="xterm", tag="t"),
    "listProcesses": lambda c, s: s.processes.list(all=True),
    "attachProcess": lambda c, s: s.processes.attach(1, replay=False),
    "killProcess": lambda c, s: s.processes.kill("tag"),
    "feedProcess": lambda c, s: s.processes.send_stdin(1, b"x", close=True),
    "closeStdin": lambda c, s: s.processes.close_stdin(1),
    "signalProcess": lambda c, s: s.processes.signal(1, "INT", tree=True),
    # Code
    "runCode": lambda c, s: s.run_code("1", "python", env={"A": "b"}, timeout_seconds=1, on_stdout=print),
    "sandboxLanguages": lambda c, s: s.languages(),
    "createContext": lambda c, s: s.contexts.create("python", cwd="/", env={"A": "b"}),
    "listContexts": lambda c, s: s.contexts.list(),
    "deleteContext": lambda c, s: s.contexts.delete("x"),
    "restartContext": lambda c, s: s.contexts.restart("x"),
    "interruptContext": lambda c, s: s.contexts.interrupt("x"),
    "replLanguages": lambda c, s: c.languages(),
    "lspLanguages": lambda c, s: c.lsp_languages(),
    "lspWebSocket": lambda c, s: s.lsp("python"),
    # Files
    "readFile": lambda c, s: s.filesystem.read("f", offset=1, length=2, user="root"),
    "writeFile": lambda c, s: s.filesystem.write("f", "x", atomic=True, offset=0, user="root"),
    "appendFile": lambda c, s: s.filesystem.append("f", "x", user="root"),
    "removeFile": lambda c, s: s.filesystem.remove("f", user="root"),
    "statFile": lambda c, s: s.filesystem.stat("f", user="root"),
    "listDir": lambda c, s: s.filesystem.list("f", depth=2, user="root"),
    "makeDir": lambda c, s: s.filesystem.mkdir("f", user="root"),
    "moveFile": lambda c, s: s.filesystem.rename("f", "g", user="root"),
    "copyFile": lambda c, s: s.filesystem.copy("f", "g", overwrite=True, user="root"),
    "changeMode": lambda c, s: s.filesystem.chmod("f", 0o755, recursive=True, user="root"),
    "changeOwner": lambda c, s: s.filesystem.chown("f", "root", 0, recursive=True, user="root"),
    "makeLink": lambda c, s: s.filesystem.symlink("t", "f", user="root"),
    "readLink": lambda c, s: s.filesystem.readlink("f", user="root"),
    "globFiles": lambda c, s: s.filesystem.glob("*", "d", limit=5, user="root"),
    "searchFiles": lambda c, s: s.filesystem.search(
        "x", "d", literal=True, ignore_case=True, names=True, include=["*"], exclude=["*"], context=1, max_results=5,
        timeout_seconds=5, user="root",
    ),
    "replaceInFiles": lambda c, s: s.filesystem.replace(
        "x", "y", "d", literal=True, ignore_case=True, include=["*"], exclude=["*"], dry_run=True, timeout_seconds=5, user="root"
    ),
    "getArchive": lambda c, s: s.filesystem.download_archive("d", io.BytesIO(), user="root"),
    "putArchive": lambda c, s: s.filesystem.upload_archive(io.BytesIO(b"x"), "d", user="root"),
    "watchFiles": lambda c, s: s.filesystem.watch("d", recursive=True, user="root"),
    "signFile": lambda c, s: s.filesystem.signed_url("f", "write", expires_seconds=5, user="root"),
    # Networks
    "getSandboxNetwork": lambda c, s: s.network.get(),
    "setSandboxNetwork": lambda c, s: s.network.set(
        {"internet": True}, internet=False, allow=["a.example"], deny=["b.example"], egress_mbps=5, join=["n"], name="x"
    ),
    "getNetworkLog": lambda c, s: s.network.log(since=1, limit=5),
    "createNetwork": lambda c, s: c.networks.create("n"),
    "listNetworks": lambda c, s: c.networks.list(),
    "getNetwork": lambda c, s: c.networks.get("n"),
    "deleteNetwork": lambda c, s: c.networks.delete("n"),
    "listPorts": lambda c, s: s.preview_urls(),
    "exposePort": lambda c, s: s.ports.expose(80, "private"),
    "closePort": lambda c, s: s.ports.close(80),
    "previewSandbox": lambda c, s: s.preview_url(80),
    "signPreview": lambda c, s: s.signed_preview_url(80, ttl_seconds=5),
    "listSSHKeys": lambda c, s: c.ssh_keys.list(),
    "addSSHKey": lambda c, s: c.ssh_keys.add("ssh-ed25519 A", name="n"),
    "deleteSSHKey": lambda c, s: c.ssh_keys.delete("SHA256:x"),
    "getSSHInfo": lambda c, s: s.ssh(),
    # Git
    "gitClone": lambda c, s: s.git.clone("u", "d", branch="b", depth=1, auth="t", user="root", timeout_seconds=5),
    "gitStatus": lambda c, s: s.git.status("d", user="root", timeout_seconds=5),
    "gitDiff": lambda c, s: s.git.diff("d", staged=True, base="a", to="b", paths=["p"]),
    "gitAdd": lambda c, s: s.git.add(["p"], path="d"),
    "gitCommit": lambda c, s: s.git.commit("m", path="d", all=True, allow_empty=True, author_name="n", author_email="e"),
    "gitBranch": lambda c, s: s.git.create_branch("b", path="d", start="a"),
    "gitCheckout": lambda c, s: s.git.checkout("r", path="d", create=True),
    "gitPull": lambda c, s: s.git.pull("d", remote="o", branch="b", rebase=True, auth={"password": "t"}),
    "gitPush": lambda c, s: s.git.push("d", remote="o", branch="b", force=True, set_upstream=True),
    "gitLog": lambda c, s: s.git.log("d", ref="r", limit=5, skip=1, paths=["p"]),
}

# Calls of one thing under another name or method, which this package makes in one way.
SAME = {
    "snapshotSandbox": "createSnapshot", "putDir": "makeDir", "repl": "runCode", "runInSession": "runCode",
    "createSession": "createContext", "listSessions": "listContexts", "deleteSession": "deleteContext",
}

# What others speak: this package gives them the address.
ADDRESSES: Dict[str, Call] = {
    **dict.fromkeys(("mcp", "mcpStream", "mcpEnd"), lambda c, s: c.mcp_config()["url"]),
    **dict.fromkeys(("sandboxMCP", "sandboxMCPStream", "sandboxMCPEnd"), lambda c, s: s.mcp_config()["url"]),
}
V1_MCP = {"mcpV1", "mcpV1Stream", "mcpV1End"}  # another path of mcp
SIGNED = {"readSigned", "writeSigned"}  # URLs that filesystem.signed_url gives to programs without this package


def test_no_operation_is_missing() -> None:
    known = {*CALLS, *SAME, *ADDRESSES, *V1_MCP, *SIGNED}
    assert set(OPERATIONS) - known == set(), "operations that have no call here"
    assert known - set(OPERATIONS) == set(), "calls of operations that there are not"
    assert set(SAME.values()) <= set(CALLS)


@pytest.fixture
def asked() -> List[httpx.Request]:
    return []


@pytest.fixture
def fake(asked: List[httpx.Request]) -> PandaStack:
    """A client whose server refuses everything."""

    def answer(request: httpx.Request) -> httpx.Response:
        request.read()
        asked.append(request)
        return httpx.Response(409, json={"error": {"code": "sandbox.invalid_state", "message": "no"}})

    return PandaStack("pds_x", api_url="http://server/base", transport=httpx.MockTransport(answer))


def matches(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path) is not None


def fields(schema: Dict[str, Any]) -> Dict[str, Any]:
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    properties: Dict[str, Any] = schema["properties"]
    return properties


@pytest.mark.parametrize("name", CALLS)
def test_operation(name: str, fake: PandaStack, asked: List[httpx.Request]) -> None:
    if name not in OPERATIONS:
        pytest.fail("the server's description has no such operation")
    method, template, operation = OPERATIONS[name]
    with pytest.raises(PandastackError) as e:
        CALLS[name](fake, fake.sandboxes._handle("k3v9x0q2m7c1b8n4t6zd"))
    assert e.value.code == "sandbox.invalid_state" and len(asked) == 1
    request = asked[0]
    assert (request.method, True) == (method, matches("/base" + template, request.url.path)), request.url
    parameters = {p["name"] for p in operation.get("parameters", []) if p["in"] == "query"}
    assert {k for k, _ in parse_qsl(request.url.query.decode())} <= parameters
    content = operation.get("requestBody", {}).get("content", {})
    if request.headers.get("Content-Type") == "application/json":
        sent = json.loads(request.content)
        assert set(sent) <= set(fields(content["application/json"]["schema"])), sent
    else:
        assert bool(request.content) == ("application/octet-stream" in content)


@pytest.mark.parametrize("name", ADDRESSES)
def test_address(name: str, fake: PandaStack) -> None:
    url = ADDRESSES[name](fake, fake.sandboxes._handle("k3v9x0q2m7c1b8n4t6zd"))
    assert matches("/base" + OPERATIONS[name][1], urlsplit(url).path)
