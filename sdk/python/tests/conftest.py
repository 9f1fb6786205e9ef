"""A real server for the tests, started once, with real sandboxes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Iterator

import pytest

from pandastack import PandaStack, Sandbox

REPOSITORY = Path(__file__).resolve().parents[3]
START_LIMIT = 300.0  # seconds; the first start may bake snapshots


class Server:
    """A running server."""

    def __init__(self, url: str, key: str, process: "subprocess.Popen[bytes]") -> None:
        self.url = url
        self.key = key
        self.process = process

    def client(self) -> PandaStack:
        return PandaStack(api_url=self.url, api_key=self.key)


def image_cache() -> Path:
    return Path(os.environ.get("IMAGE_CACHE", "/var/cache/pandastack/images"))


def _binary() -> Path:
    path = Path(os.environ.get("PANDASTACK_BIN", REPOSITORY / "bin" / "pandastack"))
    if not path.exists():
        pytest.exit(f"there is no server at {path}: run `make build`, or set PANDASTACK_BIN", 2)
    return path


@pytest.fixture(scope="session")
def code_interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of the base image, from which the template that the seed
    documents name is made: they need no more of it than Python."""
    tags = json.loads((image_cache() / "tags.json").read_text())
    image = image_cache() / (tags["base"].split(":")[1] + ".erofs")
    root = tmp_path_factory.mktemp("root")
    subprocess.run(["mount", "-t", "erofs", "-o", "loop,ro", str(image), str(root)], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", str(root)], check=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from run_server(tmp_path_factory.mktemp("server"))


def run_server(data: Path, *more: str) -> Iterator[Server]:
    command = [str(_binary()), "server", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    command += ["--image-cache", str(image_cache()), *more]
    with open(data / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield _ready(data, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(data: Path, process: "subprocess.Popen[bytes]") -> Server:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            address = json.loads((data / "server.json").read_text())["addr"]
            key = (data / "admin.key").read_text().strip()
        except (OSError, ValueError):
            time.sleep(0.1)
            continue
        server = Server(f"http://{address}", key, process)
        with server.client() as client:
            if client.ready().status == "ok":
                return server
        time.sleep(0.2)
    pytest.exit("the server did not start:\n" + (data / "log").read_text()[-4000:], 2)


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[PandaStack]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="session")
def sandbox(client: PandaStack) -> Iterator[Sandbox]:
    """A sandbox that tests share, for what leaves no trace."""
    with client.sandboxes.create() as sandbox:
        yield sandbox


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the machine's user has set is not the tests'."""
    for name in ("PANDASTACK_API", "PANDASTACK_API_KEY", "PANDASTACK_TOKEN", "http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
