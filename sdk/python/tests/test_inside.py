"""What there is inside a sandbox: code, terminals, processes, files and git."""

from __future__ import annotations

import base64
import io
import json
import tarfile
import threading
from pathlib import Path
from typing import Any, Iterator, List, Tuple
from urllib.request import Request, urlopen

import pytest

from conftest import image_cache
from pandastack import (
    CodeOutput,
    CodeRun,
    ConflictError,
    GitAuth,
    NotFoundError,
    PandaStack,
    Sandbox,
)

LIMIT = 60.0  # seconds for what takes none when the machine is idle


@pytest.fixture(scope="module")
def sandbox(client: PandaStack) -> Iterator[Sandbox]:
    """One of its own: what is done here leaves traces."""
    with client.sandboxes.create() as sandbox:
        yield sandbox


# Code


def test_run_code(sandbox: Sandbox) -> None:
    run = sandbox.run_code("import math\nx = 6 * 7\nprint('hi')\nx")
    assert (run.text, run.stdout, run.stderr, run.error) == ("42", "hi\n", "", None)
    assert [r.text for r in run.results] == ["42"] and run.results[0].is_main_result
    assert sandbox.run_code("math.floor(x / 5)").text == "8", "what was defined stays"
    failed = sandbox.run_code("1 / 0")
    assert failed.error is not None and failed.error.name == "ZeroDivisionError" and "1 / 0" in failed.error.traceback
    assert sandbox.run_code("1 + 1", "javascript").text == "2"
    assert sandbox.run_code("import os; len(os.environ['A'])", env={"A": "bcd"}).text == "3"
    assert {"python", "bash"} <= set(sandbox.languages())


def test_code_as_it_runs(sandbox: Sandbox) -> None:
    heard: List[Tuple[str, Any]] = []
    run = sandbox.run_code(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\n10 + 1",
        on_stdout=lambda text: heard.append(("out", text)),
        on_stderr=lambda text: heard.append(("err", text)),
        on_result=lambda result: heard.append(("result", result.text)),
    )
    assert sorted(heard) == [("err", "err\n"), ("out", "out\n"), ("result", "11")]
    assert (run.text, run.stdout, run.stderr) == ("11", "out\n", "err\n")
    errors: List[str] = []
    assert sandbox.run_code("1 / 0", on_error=lambda e: errors.append(e.name)).error is not None
    assert errors == ["ZeroDivisionError"]
    with sandbox.run_code_stream("print(1)\nprint(2)\n3") as stream:
        assert stream.run is None
        kinds = [event.type for event in stream]
    assert kinds[0] == "start" and kinds[-1] == "end" and "result" in kinds
    assert stream.run is not None and stream.run.stdout == "1\n2\n" and stream.run.text == "3"
    slow = sandbox.run_code("import time\nprint('a', flush=True)\ntime.sleep(600)", timeout_seconds=1)
    assert slow.timed_out and slow.stdout == "a\n"


def test_contexts(sandbox: Sandbox) -> None:
    context = sandbox.contexts.create("python", cwd="/tmp", env={"MINE": "1"})
    assert (context.language, context.cwd) == ("python", "/tmp")
    assert context.id in [c.id for c in sandbox.contexts.list()]
    assert sandbox.run_code("import os; y = 1; os.environ['MINE'], os.getcwd()", context=context).text == "('1', '/tmp')"
    assert sandbox.run_code("y").error is not None, "contexts are apart"
    sandbox.contexts.restart(context)
    assert sandbox.run_code("y", context=context.id).error is not None
    started = threading.Event()
    runs: List[CodeRun] = []
    code = "import time\nprint('on')\ntime.sleep(600)"
    thread = threading.Thread(
        target=lambda: runs.append(sandbox.run_code(code, context=context, on_stdout=lambda _: started.set()))
    )
    thread.start()
    assert started.wait(LIMIT)
    sandbox.contexts.interrupt(context)
    thread.join(LIMIT)
    assert runs and runs[0].error is not None and runs[0].error.name == "KeyboardInterrupt"
    sandbox.contexts.delete(context)
    with pytest.raises(NotFoundError) as e:
        sandbox.run_code("1", context=context)
    assert e.value.code == "context.not_found"


def test_rich_results(client: PandaStack) -> None:
    tags = json.loads((image_cache() / "tags.json").read_text())
    if "code-interpreter" not in tags:
        pytest.skip("the image code-interpreter is not built here: make code-interpreter")
    with client.sandboxes.create("code-interpreter") as sandbox:
        run = sandbox.run_code(
            "import pandas, matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4]); plt.show()\npandas.DataFrame({'a': [1, 2]})",
            timeout_seconds=300,
        )
        assert run.error is None
        table = next(r for r in run.results if r.is_main_result)
        assert table.data == {"a": [1, 2]} and "<table" in (table.html or "")
        chart = next(r for r in run.results if r.png)
        assert chart.chart["type"] == "line" and chart.content("png").startswith(b"\x89PNG")
        shown = run._repr_html_()
        assert "<iframe sandbox" in shown and "data:image/png;base64," in shown


def test_what_a_notebook_shows() -> None:
    png = base64.b64encode(b"\x89PNG").decode()
    picture = CodeOutput(True, png=png, text="<Figure>")
    assert picture.formats() == ["text", "png"]
    assert picture._repr_mimebundle_(include=["image/png"]) == {"image/png": png}
    assert set(picture._repr_mimebundle_()) == {"text/plain", "text/html", "image/png"}
    # Nothing of what comes from a sandbox runs in the page of the notebook.
    evil = CodeOutput(True, html='<script>steal()</script>"', javascript="steal()", markdown="<script>steal()</script>")
    assert "<script" not in (evil._repr_html_() or "") and 'sandbox="allow-scripts"' in (evil._repr_html_() or "")
    assert set(evil._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert CodeOutput(True, png='"><script>')._repr_html_() is None
    svg = CodeOutput(True, svg='<svg onload="steal()">')
    assert "onload" not in (svg._repr_html_() or "") and svg.content("svg") == b'<svg onload="steal()">'
    run = CodeRun("a < b\n", "", [picture], 1, 1.0, text="<Figure>")
    assert "a &lt; b" in run._repr_html_() and "<img" in run._repr_html_()
    with pytest.raises(ValueError, match="it has text, png"):
        picture.content("pdf")


# Terminals


def test_pty(sandbox: Sandbox) -> None:
    with sandbox.pty("stty size; read line; echo got $line; exit 7", rows=33, cols=99) as terminal:
        shown = b""
        while b"33 99" not in shown:
            shown += terminal.read(timeout=LIMIT)
        terminal.send("hello\n")
        shown = b"".join(terminal)
        assert b"got hello" in shown and terminal.exit_code == 7 and terminal.signal is None
        assert terminal.read() == b""
        terminal.kill()


def test_pty_goes_on(sandbox: Sandbox) -> None:
    with sandbox.pty(tag="shell") as terminal:
        terminal.send("stty -echo; PS1=; echo one$((1 + 1))\n")
        shown = b""
        while b"one2" not in shown:
            shown += terminal.read(timeout=LIMIT)
        terminal.resize(40, 120)
        with pytest.raises(TimeoutError):
            while True:
                terminal.read(timeout=0.5)
        pid = terminal.pid
    assert [(p.tag, p.terminal) for p in sandbox.processes.list() if p.pid == pid] == [("shell", True)]
    with sandbox.pty(tag="shell") as again:
        shown = b""
        while b"one2" not in shown:
            shown += again.read(timeout=LIMIT)
        again.send("stty size\n")
        while b"40 120" not in shown:  # it keeps its size
            shown += again.read(timeout=LIMIT)
    with sandbox.pty(pid=pid, rows=50, cols=100) as again:
        again.send("stty size\n")
        shown = b""
        while b"50 100" not in shown:
            shown += again.read(timeout=LIMIT)
        again.kill()
        assert again.wait() == 137 and again.signal == "SIGKILL"
    with pytest.raises(NotFoundError):
        sandbox.pty(pid=pid + 100_000)


# Processes


def test_processes(sandbox: Sandbox) -> None:
    processes = sandbox.processes
    pid = processes.start("echo ready; while read x; do echo got $x; done; exit 5", tag="reader", keep_stdin=True)
    assert [p.tag for p in processes.list() if p.pid == pid] == ["reader"]
    processes.send_stdin(pid, "one\n")
    processes.send_stdin("reader", io.BytesIO(b"two\n"), close=True)
    with processes.attach("reader") as stream:
        result = stream.wait()
    assert (result.stdout, result.exit_code) == ("ready\ngot one\ngot two\n", 5)
    ended = next(p for p in processes.list(all=True) if p.pid == pid)
    assert ended.exit_code == 5 and ended.ended_at is not None
    with pytest.raises(NotFoundError):
        processes.signal(pid, "SIGTERM")


def test_signals(sandbox: Sandbox) -> None:
    processes = sandbox.processes
    pid = processes.start("trap 'echo int; exit 3' INT; echo on; while :; do sleep 0.1; done")
    with processes.attach(pid) as stream:
        next(o for o in stream if "on" in o.text)
        processes.signal(pid, "INT")
        assert stream.wait().exit_code == 3
    pid = processes.start(["sleep", "4721"], keep_stdin=True)
    with processes.connect(pid) as process:
        assert process.pid == pid
        processes.close_stdin(pid)
        processes.kill(pid)
        assert process.wait(timeout=LIMIT).signal == "SIGKILL"
    with sandbox.run_background("cat", tag="mine") as process:
        assert "mine" in [p.tag for p in processes.list()]
        process.close_stdin()
        process.wait(timeout=LIMIT)


# Files


def test_parts_of_files(sandbox: Sandbox) -> None:
    fs = sandbox.filesystem
    fs.write("parts", "0123456789")
    assert fs.read("parts", offset=3, length=4) == "3456"
    assert fs.read("parts", format="bytes", offset=8) == b"89"
    assert b"".join(fs.read("parts", format="stream", length=2)) == b"01"
    assert fs.append("parts", "ab").size == 12
    assert fs.write("parts", "XY", offset=10).size == 12 and fs.read("parts").endswith("9XY")
    fs.write("parts", "whole", atomic=True)
    assert fs.read("parts") == "whole"


def test_file_objects(sandbox: Sandbox) -> None:
    fs = sandbox.filesystem
    with fs.open("lines", "w") as text:
        assert text.write("ä\n") == 2
        text.write("x" * (1 << 20))
        text.write("\nlast")
    with fs.open("lines", "a") as text:
        text.write("!")
    with fs.open("lines") as text:
        assert text.read(1) == "ä" and text.readline() == "\n"
        assert [len(line) for line in text] == [(1 << 20) + 1, 5]
        assert text.read() == ""
    with fs.open("lines", "rb") as binary:
        assert binary.read(2) == "ä".encode() and len(binary.read()) == (1 << 20) + 7
        with pytest.raises(ValueError):
            binary.write(b"x")
    with pytest.raises(ValueError):
        binary.read()
    with pytest.raises(NotFoundError):
        fs.open("nothing")


def test_tree_operations(sandbox: Sandbox) -> None:
    fs = sandbox.filesystem
    fs.write("tree/a.py", "alpha = 1\n")
    fs.write("tree/sub/b.py", "beta = 2\nALPHA = 3\n")
    assert fs.copy("tree", "twin") == 4
    with pytest.raises(ConflictError):
        fs.copy("tree/a.py", "twin/a.py")
    assert fs.copy("tree/a.py", "twin/a.py", overwrite=True) == 1
    assert fs.move("twin", "moved").path.endswith("/moved") and not fs.exists("twin")
    assert fs.chmod("moved/a.py", 0o600) == 1 and fs.stat("moved/a.py").mode == "-rw-------"
    assert fs.chmod("moved", "0755", recursive=True) == 4
    assert fs.chown("moved/a.py", "root") == 1 and fs.stat("moved/a.py").owner == "root"
    fs.symlink("a.py", "tree/link")
    assert fs.readlink("tree/link") == "a.py"
    assert sorted(m.name for m in fs.glob("**/*.py", "tree").matches) == ["a.py", "b.py"]
    found = fs.search("alpha", "tree", ignore_case=True, include=["*.py"])
    assert sorted((m.line, m.text) for m in found.matches) == [(1, "alpha = 1"), (2, "ALPHA = 3")]
    assert [m.before for m in fs.search("ALPHA", "tree", context=1).matches] == [["beta = 2"]]
    assert [m.path.rsplit("/", 1)[1] for m in fs.search("b.py", "tree", names=True, literal=True).matches] == ["b.py"]
    assert fs.replace("beta", "gamma", "tree", dry_run=True).count == 1
    assert fs.replace(r"(\w+) = 2", "$1 = 4", "tree").count == 1
    assert fs.read("tree/sub/b.py") == "beta = 4\nALPHA = 3\n"
    assert [e.name for e in fs.list("tree", depth=2)] == ["a.py", "link", "sub", "b.py"]


def test_archives(sandbox: Sandbox, tmp_path: Path) -> None:
    fs = sandbox.filesystem
    fs.write("pack/one", "1")
    fs.write("pack/two/three", "3")
    assert fs.download_archive("pack", tmp_path / "pack.tar.gz") > 0
    with tarfile.open(tmp_path / "pack.tar.gz") as tar:
        assert {n.strip("./") for n in tar.getnames()} >= {"one", "two/three"}
    done = fs.upload_archive(tmp_path / "pack.tar.gz", "unpacked")
    assert done.files >= 3 and fs.read("unpacked/two/three") == "3"
    with open(tmp_path / "pack.tar.gz", "rb") as file:
        assert fs.upload_archive(file, "again").bytes == 2


def test_watch(sandbox: Sandbox) -> None:
    fs = sandbox.filesystem
    fs.mkdir("watched/below")
    with fs.watch("watched", recursive=True) as events:
        fs.write("watched/below/new", "x")
        assert next(e for e in events if e.type == "create").path.endswith("/watched/below/new")  # type: ignore[union-attr]
        fs.remove("watched/below/new")
        assert next(e for e in events if e.type == "remove").path.endswith("/watched/below/new")  # type: ignore[union-attr]
        fs.remove("watched")
        assert all(e.type != "overflow" for e in events), "it ends with the directory"


def test_signed_urls(sandbox: Sandbox) -> None:
    fs = sandbox.filesystem
    up = fs.signed_url("signed.txt", "write", expires_seconds=600)
    assert up.method == "PUT"
    with urlopen(Request(up.url, data=b"by url", method="PUT"), timeout=LIMIT) as answer:
        assert json.loads(answer.read())["size"] == 6
    down = fs.signed_url("signed.txt")
    with urlopen(down.url, timeout=LIMIT) as answer:
        assert (down.method, answer.read()) == ("GET", b"by url")


# Git


@pytest.fixture(scope="module")
def repository(client: PandaStack) -> Iterator[Sandbox]:
    with client.sandboxes.create() as sandbox:
        if sandbox.exec(["git", "--version"]).exit_code != 0:
            pytest.skip("the base image has no git")
        sandbox.exec("git init -q --bare -b main remote.git && git clone -q remote.git work", timeout_seconds=LIMIT)
        yield sandbox


def test_git(repository: Sandbox) -> None:
    git, fs = repository.git, repository.filesystem
    home = repository.exec("pwd").stdout.strip()
    work = f"{home}/work"
    fs.write(f"{work}/a", "1\n")
    status = git.status(work)
    assert not status.clean and [(f.path, f.worktree) for f in status.files] == [("a", "untracked")]
    assert [f.staged for f in git.add(["a"], path=work).files] == ["added"]
    assert "+1" in git.diff(work, staged=True).diff
    first = git.commit("first", path=work, author_name="Ann", author_email="ann@example.com")
    assert first.subject == "first" and first.author == "Ann"
    with pytest.raises(ConflictError) as e:
        git.commit("again", path=work, author_name="Ann", author_email="ann@example.com")
    assert e.value.code == "git.nothing_to_commit"
    git.push(work, set_upstream=True)
    assert "side" in [b.name for b in git.create_branch("side", path=work)]
    assert git.checkout("side", path=work).branch == "side"
    fs.write(f"{work}/a", "2\n")
    git.commit("second", path=work, all=True, author_name="Ann", author_email="ann@example.com")
    assert [c.subject for c in git.log(work, limit=5)] == ["second", "first"]
    assert "-1" in git.diff(work, base="main", to="side").diff
    git.checkout("main", path=work)
    assert "side" not in [b.name for b in git.delete_branch("side", path=work, force=True)]
    assert "main" in [b.name for b in git.branches(work) if b.current]
    assert git.pull(work).clean
    with pytest.raises(NotFoundError) as missing:
        git.status("/tmp")
    assert missing.value.code == "git.not_a_repository"
    assert git.clone(f"file://{home}/remote.git", f"{home}/copy", depth=1, auth=None).branch == "main"


# Language servers and MCP


def test_lsp(client: PandaStack, sandbox: Sandbox) -> None:
    languages = client.lsp_languages()
    assert "python" in [x.id for x in languages] and languages[0].servers
    with pytest.raises(NotFoundError):
        sandbox.lsp("klingon")
    with pytest.raises(ConflictError) as e:
        sandbox.lsp("python")
    assert e.value.code == "lsp.not_installed" and "nstall" in e.value.hint
    sandbox.filesystem.write("/home/user/.local/bin/pylsp", SERVER)
    sandbox.filesystem.chmod("/home/user/.local/bin/pylsp", 0o755)
    with sandbox.lsp("python") as server:
        server.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}})
        answer = server.receive(timeout=LIMIT)
        assert answer["id"] == 1 and answer["result"] == {"capabilities": {"hoverProvider": True}}


SERVER = """#!/usr/bin/env python3
import json, sys
i, o = sys.stdin.buffer, sys.stdout.buffer
while True:
    size = 0
    while True:
        line = i.readline()
        if not line:
            sys.exit()
        if not line.strip():
            break
        if line.lower().startswith(b"content-length:"):
            size = int(line.split(b":")[1])
    message = json.loads(i.read(size))
    if message.get("method") == "exit":
        sys.exit()
    if "id" in message:
        result = {"capabilities": {"hoverProvider": True}} if message["method"] == "initialize" else None
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        o.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
        o.flush()
"""


def test_mcp_config(client: PandaStack, sandbox: Sandbox) -> None:
    for config, tool in ((client.mcp_config(), "create_sandbox"), (sandbox.mcp_config(), "shell")):
        assert config["type"] == "http"
        headers = {**config["headers"], "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        initialize = {
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
        }
        with urlopen(Request(config["url"], json.dumps(initialize).encode(), headers), timeout=LIMIT) as answer:
            session = answer.headers["Mcp-Session-Id"]
            assert b"serverInfo" in answer.read()
        more = {**headers, **({"Mcp-Session-Id": session} if session else {})}
        body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).encode()
        with urlopen(Request(config["url"], body, more), timeout=LIMIT) as answer:
            assert tool.encode() in answer.read()


# Figures


def test_series(sandbox: Sandbox) -> None:
    sandbox.exec("true")
    series = sandbox.metrics_series("10m", step=30)
    assert series.sandbox_id == sandbox.id and series.step_seconds == 30
    assert "pandastack_" in PandaStack(api_url=str(sandbox._transport.settings.base_url)).prometheus_metrics()


def test_git_auth_is_checked(sandbox: Sandbox) -> None:
    with pytest.raises(TypeError):
        sandbox.git.clone("https://example.invalid/x.git", auth=7)  # type: ignore[arg-type]
    assert GitAuth(password="x").username is None
