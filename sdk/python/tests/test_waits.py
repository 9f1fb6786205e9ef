"""Calls that wait, streams that are left, and WebSockets that break, without a server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import socket
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, List, Tuple

import httpx
import pytest

from fake import Fake, serving
from pandastack import AsyncPandaStack, PandaStack, errors
from pandastack._code import KEPT, CodeCollector

BYTES = {"Content-Type": "application/octet-stream"}
PAGE = (200, {"Content-Type": "text/html"}, b"<html>log in")
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving() as server:
        yield server


@pytest.fixture
def client(fake: Fake) -> Iterator[PandaStack]:
    with PandaStack("pds_x", api_url=fake.url) as client:
        yield client


# Connections that are left


def under_way(client: Any) -> int:
    """Connections of a client's pool that are not free."""
    pool = client._transport._http._transport._pool
    return sum(not c.is_idle() and not c.is_closed() for c in pool.connections)


def test_what_is_closed_unread_leaves_no_connection(fake: Fake, client: PandaStack) -> None:
    fake.answers.append((200, BYTES, b"abc"))
    fs = client.sandboxes._handle("x").filesystem
    with fs.open("big"):
        assert under_way(client) == 1
    assert under_way(client) == 0
    stream = fs.read("big", format="stream")
    assert under_way(client) == 1
    stream.close()
    assert under_way(client) == 0
    with fs.read("big", format="stream") as stream:
        assert next(stream) == b"abc"
    assert under_way(client) == 0
    assert b"".join(fs.read("big", format="stream")) == b"abc"
    with fs.open("big") as file:
        assert file.read(2) == "ab"
    assert under_way(client) == 0


def test_what_is_closed_unread_leaves_no_connection_of_asyncio(fake: Fake) -> None:
    fake.answers.append((200, BYTES, b"abc"))

    async def run() -> None:
        async with AsyncPandaStack("pds_x", api_url=fake.url) as client:
            fs = client.sandboxes._handle("x").filesystem
            async with await fs.open("big"):
                assert under_way(client) == 1
            assert under_way(client) == 0
            stream = await fs.read("big", format="stream")
            assert under_way(client) == 1
            await stream.close()
            assert under_way(client) == 0
            assert [c async for c in await fs.read("big", format="stream")] == [b"abc"]

    asyncio.run(run())


# Answers of something else


def test_a_page_is_no_file(fake: Fake, client: PandaStack, tmp_path: Path) -> None:
    fake.answers.append(PAGE)
    fs = client.sandboxes._handle("x").filesystem
    target = tmp_path / "target"
    calls: List[Callable[[], Any]] = [
        lambda: fs.read("a"),
        lambda: fs.read("a", format="bytes"),
        lambda: fs.read("a", format="stream"),
        lambda: fs.open("a"),
        lambda: fs.download("a", target),
        lambda: fs.download_archive("a", target),
    ]
    for call in calls:
        with pytest.raises(errors.APIConnectionError, match="not a PandaStack server .status 200, text/html."):
            call()
    assert under_way(client) == 0 and not target.exists()
    fake.answers[0] = (200, {"Content-Type": "application/gzip"}, b"archive")
    assert fs.download_archive("a", target) == 7 and target.read_bytes() == b"archive"


# How long an answer may take


def test_waits_are_longer_than_what_the_server_allows_itself() -> None:
    waits: List[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        return httpx.Response(409, json={"error": {"code": "sandbox.invalid_state", "message": "no"}})

    client = PandaStack("pds_x", api_url="http://server", timeout=5, transport=httpx.MockTransport(answer))
    sandbox = client.sandboxes._handle("x")
    calls: List[Tuple[Callable[[], Any], float]] = [
        (lambda: sandbox.git.status(), 65),
        (lambda: sandbox.git.status(timeout_seconds=7), 12),
        (lambda: sandbox.git.pull(), 605),
        (lambda: sandbox.git.pull(timeout_seconds=7), 12),
        (lambda: sandbox.filesystem.search("a"), 90),
        (lambda: sandbox.filesystem.search("a", timeout_seconds=500), 560),
        (lambda: sandbox.filesystem.replace("a", "b", timeout_seconds=500), 560),
    ]
    for call, _ in calls:
        with pytest.raises(errors.ConflictError):
            call()
    assert waits == [seconds for _, seconds in calls]


# WebSockets


class Sockets:
    """A server that breaks off handshakes, or else takes them and says nothing more."""

    def __init__(self, broken: int) -> None:
        self.broken = broken
        self.asked: List[str] = []
        self.ended = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            connection = self.listener.accept()[0]
            with connection:
                if self.ended.is_set():
                    return
                self.answer(connection)

    def answer(self, connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(4096)
        lines = head.decode().split("\r\n")
        self.asked.append(lines[0].split(" ")[1])
        if len(self.asked) <= self.broken:
            return
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        accept = base64.b64encode(hashlib.sha1(fields["sec-websocket-key"].encode() + GUID).digest()).decode()
        connection.sendall(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"X-Process-Id: 7\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        while connection.recv(4096):
            pass


@contextmanager
def sockets(broken: int = 0) -> Iterator[Sockets]:
    server = Sockets(broken)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        socket.create_connection(server.listener.getsockname()).close()
        thread.join()
        server.listener.close()




def test_a_handshake_that_breaks_is_not_tried_again() -> None:
    """The server may have started the process before it answers."""
    with sockets(broken=1) as server, PandaStack("pds_x", api_url=server.url, retries=3) as client:
        sandbox = client.sandboxes._handle("x")
        with pytest.raises(errors.APIConnectionError, match="ended before the answer did"):
            sandbox.pty("rm a")
        assert len(server.asked) == 1


@pytest.mark.parametrize("code, status", [("rate_limit.api", 429), ("capacity.unavailable", 503)])
def test_a_handshake_that_is_refused_is_not_tried_again(code: str, status: int, fake: Fake, client: PandaStack) -> None:
    fake.error(code, status)
    with pytest.raises(errors.PandastackError):
        client.sandboxes._handle("x").pty()
    assert len(fake.asked) == 1


def test_a_handshake_without_a_connection_is_tried_again() -> None:
    tried: List[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        tried.append(request.url.path)
        raise httpx.ConnectError("refused", request=request)

    client = PandaStack("pds_x", api_url="http://server", retries=1, transport=httpx.MockTransport(answer))
    with pytest.raises(errors.APIConnectionError):
        client.sandboxes._handle("x").pty()
    assert len(tried) == 2


def test_a_terminal_is_asked_for_no_size_that_was_not_given(fake: Fake, client: PandaStack) -> None:
    fake.error("process.not_found", 404)
    sandbox = client.sandboxes._handle("x")
    calls: List[Callable[[], Any]] = [
        lambda: sandbox.pty(),
        lambda: sandbox.pty(tag="a"),
        lambda: sandbox.pty(pid=7, rows=30, cols=90),
        lambda: sandbox.pty(rows=30),
    ]
    for call in calls:
        with pytest.raises(errors.NotFoundError):
            call()
    assert [path.partition("?")[2] for _, path, _ in fake.asked] == ["", "tag=a", "rows=30&cols=90&pid=7", "rows=30"]


def test_nothing_that_comes_in_time_is_no_fault_of_the_server() -> None:
    with sockets() as server, PandaStack("pds_x", api_url=server.url) as client:
        sandbox = client.sandboxes._handle("x")
        with sandbox.pty() as terminal, pytest.raises(TimeoutError) as shown:
            terminal.read(timeout=0.2)
        with sandbox.lsp("python") as language_server, pytest.raises(TimeoutError) as said:
            language_server.receive(timeout=0.2)
    for caught in (shown.value, said.value):
        assert isinstance(caught, errors.TimeoutError) and caught.code == "request.timeout"
        assert (caught.message, caught.hint) == ("nothing came within 0.2 s", "It goes on; wait again.")


def test_a_command_that_does_not_start_is_a_fault_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pandastack._core.SLOW_TIMEOUT", 0.2)
    with sockets() as server, PandaStack("pds_x", api_url=server.url) as client:
        with pytest.raises(errors.TimeoutError, match="did not answer within 0.2 s"):
            client.sandboxes._handle("x").run_background("a")


# Parts


def test_code_keeps_the_first_of_each_stream() -> None:
    collector = CodeCollector()
    collector.take({"type": "start", "execution_count": 1})
    for text in ("a", "b" * (KEPT - 2), "cd", "e"):
        collector.take({"type": "stdout", "text": text})
    collector.take({"type": "stderr", "text": "all"})
    collector.take({"type": "end", "duration_ms": 1})
    run = collector.run
    assert KEPT == 8 << 20, "as the server keeps of a call that is not streamed"
    assert (len(run.stdout), run.stdout[:2], run.stdout[-2:]) == (KEPT, "ab", "bc")
    assert (run.stderr, run.truncated) == ("all", True)


def test_code_that_writes_little_is_whole() -> None:
    collector = CodeCollector()
    for said in ({"type": "stdout", "text": "é"}, {"type": "end", "duration_ms": 1}):
        collector.take(said)
    assert (collector.run.stdout, collector.run.truncated) == ("é", False)
