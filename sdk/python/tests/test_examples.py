"""The examples run as they are, those of the seed documents word for word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from conftest import REPOSITORY, Server, run_server

EXAMPLES = REPOSITORY / "examples" / "python"


@pytest.fixture(scope="module")
def with_template(code_interpreter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has the template which the documents name."""
    yield from run_server(tmp_path_factory.mktemp("examples"), "--image", f"code-interpreter={code_interpreter}")


def run(name: str, server: Server, variable: str) -> str:
    environment = {**os.environ, variable: server.key, "PANDASTACK_API": server.url}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_seed_002(with_template: Server) -> None:
    assert run("seed_002.py", with_template, "PANDASTACK_TOKEN") == "1024\n\nhello from inside the VM\n"
    with with_template.client() as client:
        mine = client.sandboxes.list(metadata={"task": "data-analysis"})
        assert sorted(s.boot_mode or "" for s in mine) == ["fork", "restore"]
        for sandbox in mine:
            assert sandbox.filesystem.read("/tmp/notes.txt") == "hello from inside the VM"
            sandbox.kill()


def test_seed_003(with_template: Server) -> None:
    out = run("seed_003.py", with_template, "PANDASTACK_API_KEY")
    assert out.startswith("3.") and out.endswith("\n 0\n")
    with with_template.client() as client:
        snapshots = client.snapshots.list()
        mine = client.sandboxes.list(metadata={"task": "run-agent-snippet"})
        assert len(mine) == 2 and len(snapshots) == 1
        with client.sandboxes.create(from_snapshot=snapshots[0]) as again:
            assert again.filesystem.read("/work/out.txt") == "hello from inside the microVM"
        client.snapshots.delete(snapshots[0])
        for sandbox in mine:
            sandbox.kill()


@pytest.mark.skipif(sys.version_info < (3, 10), reason="the agent SDKs need Python 3.10")
@pytest.mark.parametrize(
    "name, said", [("openai_agents", "25\n\n[exit code 0]"), ("langchain_agent", "from the shell 25"), ("claude_agent", "25")]
)
def test_agents(name: str, said: str, server: Server, tmp_path: Path) -> None:
    """Each agent works in a real sandbox, with a model that follows a script and no network."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PANDASTACK_API": server.url,
        "PANDASTACK_API_KEY": server.key,
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANGSMITH_TRACING": "false",
        # Of the Claude Agent SDK: nothing of this machine's user, and no calls but those for the model.
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    script = Path(__file__).with_name("agents") / f"{name}_fake.py"
    command = [sys.executable, str(script), str(EXAMPLES)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout, done.stdout
    with server.client() as client:
        example = name.replace("_", "-").replace("langchain-agent", "langchain")
        assert client.sandboxes.list(metadata={"example": example}) == []
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60


def test_readme(server: Server) -> None:
    """The first program of the README, as a reader would paste it."""
    text = (REPOSITORY / "sdk" / "python" / "README.md").read_text()
    program = text.split("```python\n")[1].split("```")[0]
    environment = {**os.environ, "PANDASTACK_API": server.url, "PANDASTACK_API_KEY": server.key}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("42\n\nhello\n", "")


def test_readme_is_python() -> None:
    text = (REPOSITORY / "sdk" / "python" / "README.md").read_text()
    programs = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert len(programs) > 5
    for program in programs:
        compile(program, "README.md", "exec")
