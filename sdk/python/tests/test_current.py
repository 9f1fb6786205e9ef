"""What is made by tools is current, and the tables agree with their sources."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pandastack
from pandastack import errors
from pandastack._generated.errors import CATALOGUE

PACKAGE = Path(__file__).resolve().parents[1]
REPOSITORY = PACKAGE.parents[1]


@pytest.mark.parametrize("tool", ["generate.py", "unasync.py", "reference.py"])
def test_tools(tool: str) -> None:
    done = subprocess.run([sys.executable, str(PACKAGE / "tools" / tool), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_error_table_is_the_catalogue() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (\d+) \|", (REPOSITORY / "docs" / "errors.md").read_text(), re.M)
    assert {code: int(status) for code, status in rows} == {code: row[1] for code, row in CATALOGUE.items()}


@pytest.mark.parametrize(
    "code, cls",
    [
        ("auth.token_revoked", errors.AuthError),
        ("sandbox.not_found", errors.NotFoundError),
        ("file.is_directory", errors.BadRequestError),
        ("file.permission_denied", errors.BadRequestError),
        ("request.unsupported", errors.BadRequestError),
        ("snapshot.exists", errors.ConflictError),
        ("quota.vcpu_exceeded", errors.QuotaError),
        ("rate_limit.api", errors.QuotaError),
        ("capacity.unavailable", errors.CapacityError),
        ("file.no_space", errors.CapacityError),
        ("request.timeout", errors.TimeoutError),
        ("internal", errors.ServerError),
        ("client.server_unreachable", errors.APIConnectionError),
    ],
)
def test_families(code: str, cls: type) -> None:
    assert errors.family(code, None) is cls


def test_codes_from_the_future_go_by_their_status() -> None:
    assert errors.family("new.thing", 404) is errors.NotFoundError
    assert errors.family("new.thing", 418) is errors.BadRequestError
    assert errors.family("new.thing", 599) is errors.ServerError


def test_every_name_can_be_imported() -> None:
    for name in pandastack.__all__:
        assert getattr(pandastack, name) is not None
    assert pandastack.Client is pandastack.PandaStack
    assert pandastack.AsyncClient is pandastack.AsyncPandaStack
    with pytest.raises(AttributeError):
        pandastack.Nothing  # noqa: B018


def test_versions_are_the_servers() -> None:
    version = (REPOSITORY / "VERSION").read_text().strip()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert pandastack.__version__ == version
    assert json.loads((REPOSITORY / "sdk" / "typescript" / "package.json").read_text())["version"] == version
    assert "$(shell cat VERSION)" in (REPOSITORY / "Makefile").read_text()


def test_both_surfaces_have_the_same_names() -> None:
    from importlib import import_module

    modules = [path.stem for path in (PACKAGE / "src" / "pandastack" / "_async").glob("[a-z]*.py")]
    assert {"client", "sandbox", "filesystem", "git"} <= set(modules)
    for module in modules:
        ours, theirs = (import_module(f"pandastack.{side}.{module}") for side in ("_async", "_sync"))
        for name in vars(ours):
            if name.startswith("Async") and name not in ("AsyncIterator", "AsyncIterable"):
                a, b = getattr(ours, name), getattr(theirs, name[len("Async") :])
                public = [n for n in dir(a) if not n.startswith("_")]
                assert public == [n for n in dir(b) if not n.startswith("_")]


def _child(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_is_lazy() -> None:
    loaded = _child(
        "import sys; from pandastack import PandaStack, Sandbox, NotFoundError;"
        "print([m for m in ('httpx', 'asyncio', 'wsproto', 'ssl') if m in sys.modules])"
    )
    assert loaded == "[]"


def test_import_time() -> None:
    # Processor time, the best of some, so that what else runs here counts little.
    code = (
        "import time; t = time.process_time(); from pandastack import PandaStack, Sandbox;"
        "print(time.process_time() - t)"
    )
    assert min(float(_child(code)) for _ in range(5)) < 0.150


def test_overhead_of_exec() -> None:
    """What the package adds to the same call made with httpx, on the processor."""
    overhead = float(_child("import runpy; m = runpy.run_path(%r); print(m['on_the_processor']())" % str(PACKAGE / "tests" / "overhead.py")))
    print(f"exec adds {overhead * 1e6:.0f} microseconds")
    assert overhead < 0.0005
