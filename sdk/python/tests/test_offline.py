"""What needs no sandbox: settings, arguments, and servers that are none."""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Callable, Iterator, List, Tuple

import pytest

import pandastack
from fake import Answer, Fake, serving
from pandastack import AsyncPandaStack, PandaStack, errors
from pandastack._output import Collector, Tail
from pandastack._sse import EventParser
from pandastack._times import parse_time

ME = {"org": "o", "name": "n", "prefix": "p", "admin": False}


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving() as server:
        yield server


@pytest.fixture
def client(fake: Fake) -> Iterator[PandaStack]:
    with PandaStack("pds_x", api_url=fake.url) as client:
        yield client


# Settings


def key_of(client: PandaStack) -> str:
    return client._transport.settings.key


def test_every_way_to_give_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_of(PandaStack("pds_a")) == "pds_a"
    assert key_of(PandaStack(token="pds_a")) == "pds_a"
    assert key_of(PandaStack(api_key="pds_a")) == "pds_a"
    assert key_of(PandaStack(token="pds_a", api_key="pds_a")) == "pds_a"
    monkeypatch.setenv("PANDASTACK_TOKEN", "pds_t")
    assert key_of(PandaStack()) == "pds_t"
    monkeypatch.setenv("PANDASTACK_API_KEY", "pds_k")
    assert key_of(PandaStack()) == "pds_k"
    assert key_of(PandaStack(token="pds_a")) == "pds_a"


@pytest.mark.parametrize("name", ["token", "apiKey", "api_key"])
def test_config_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".config" / "pandastack" / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({name: "pds_f", "api": "http://there:1"}))
    assert (key_of(PandaStack()), PandaStack().base_url) == ("pds_f", "http://there:1")
    monkeypatch.setenv("PANDASTACK_API", "http://env:2/")
    assert PandaStack().base_url == "http://env:2"
    assert PandaStack(api_url="http://arg:3").base_url == "http://arg:3"
    assert PandaStack(base_url="http://arg:3").base_url == "http://arg:3"
    file.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        PandaStack()


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"api_url": "localhost:8080"}, ValueError),
        ({"api_url": "ftp://x"}, ValueError),
        ({"api_url": "http://u:p@x"}, ValueError),
        ({"api_url": "http://x:99999"}, ValueError),
        ({"api_url": "http://x?y"}, ValueError),
        ({"api_url": 3}, TypeError),
        ({"token": 3}, TypeError),
        ({"token": "pds_a\n"}, ValueError),
        ({"token": "a", "api_key": "b"}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"timeout": "5"}, TypeError),
        ({"retries": -1}, ValueError),
        ({"retries": 1.5}, TypeError),
        ({"user_agent": "a\nb"}, ValueError),
    ],
)
def test_wrong_settings(arguments: Any, error: Any) -> None:
    with pytest.raises(error):
        PandaStack(**arguments)


def test_no_key_is_said_before_anything_is_sent(fake: Fake) -> None:
    with PandaStack(api_url=fake.url) as client, pytest.raises(errors.AuthError, match="PANDASTACK_API_KEY"):
        client.me()
    assert fake.asked == []


# Arguments

sandbox_calls: List[Tuple[Callable[[Any], Any], Any]] = [
    (lambda s: s.exec(3), TypeError),
    (lambda s: s.exec(b"ls"), TypeError),
    (lambda s: s.exec(""), ValueError),
    (lambda s: s.exec([]), ValueError),
    (lambda s: s.exec(["a", 1]), TypeError),
    (lambda s: s.exec("a", "b"), TypeError),
    (lambda s: s.exec("a", timeout_seconds="1"), TypeError),
    (lambda s: s.exec("a", timeout_seconds=0), ValueError),
    (lambda s: s.exec("a", env={"A": 1}), TypeError),
    (lambda s: s.exec("a", env=["A"]), TypeError),
    (lambda s: s.exec("a", stdin=b"\xff"), ValueError),
    (lambda s: s.exec("a", on_stdout=3), TypeError),
    (lambda s: s.exec("\ud800"), ValueError),
    (lambda s: s.run_background(None), TypeError),
    (lambda s: s.logs(stream="all"), ValueError),
    (lambda s: s.logs(tail=-1), ValueError),
    (lambda s: s.events(since=1.5), TypeError),
    (lambda s: s.set_ttl(0), ValueError),
    (lambda s: s.set_ttl(True), TypeError),
    (lambda s: s.set_persistent("yes"), TypeError),
    (lambda s: s.fork("x"), TypeError),
    (lambda s: s.fork(0), ValueError),
    (lambda s: s.fork(metadata={"a": None}), TypeError),
    (lambda s: s.snapshot(3), TypeError),
    (lambda s: s.restore(""), ValueError),
    (lambda s: s.filesystem.read(""), ValueError),
    (lambda s: s.filesystem.read("a\0b"), ValueError),
    (lambda s: s.filesystem.read("a", format="x"), ValueError),
    (lambda s: s.filesystem.write("a", 3), TypeError),
    (lambda s: s.filesystem.upload(3, "a"), TypeError),
    (lambda s: s.filesystem.download("a", 3), TypeError),
    (lambda s: s.filesystem.list("a", depth=0), ValueError),
]


@pytest.mark.parametrize("call, error", sandbox_calls)
def test_wrong_arguments_send_nothing(call: Any, error: Any, fake: Fake, client: PandaStack) -> None:
    with pytest.raises(error) as e:
        call(client.sandboxes._handle("x"))
    assert not isinstance(e.value, errors.PandastackError)
    assert fake.asked == []


client_calls: List[Tuple[Callable[[Any], Any], Any]] = [
    (lambda c: c.sandboxes.create(3), TypeError),
    (lambda c: c.sandboxes.create(ttl_seconds="1"), TypeError),
    (lambda c: c.sandboxes.create(cpu=-1), ValueError),
    (lambda c: c.sandboxes.create(metadata={"a": 1}), TypeError),
    (lambda c: c.sandboxes.create(volumes="v"), TypeError),
    (lambda c: c.sandboxes.get(""), ValueError),
    (lambda c: c.sandboxes.get(".."), ValueError),
    (lambda c: c.sandboxes.delete(None), TypeError),
    (lambda c: c.sandboxes.list(status="asleep"), ValueError),
    (lambda c: c.sandboxes.list(limit=0), ValueError),
    (lambda c: c.snapshots.list(kind="x"), ValueError),
    (lambda c: c.snapshots.export("x", 3), TypeError),
    (lambda c: c.snapshots.import_(3), TypeError),
    (lambda c: c.tokens.create(""), ValueError),
    (lambda c: c.tokens.create("x", admin=1), TypeError),
    (lambda c: c.templates.get(""), ValueError),
]


@pytest.mark.parametrize("call, error", client_calls)
def test_wrong_arguments_of_clients_send_nothing(call: Any, error: Any, fake: Fake, client: PandaStack) -> None:
    with pytest.raises(error):
        call(client)
    assert fake.asked == []


def test_bodies_that_are_sent(fake: Fake, client: PandaStack) -> None:
    fake.json({"stdout": "", "stderr": "", "exit_code": 0, "duration_ms": 1, "new_field": {}})
    sandbox = client.sandboxes._handle("a/b")
    sandbox.exec("ls -l", timeout_seconds=3)
    sandbox.exec(["ls", "-l"], env={"A": "ä"})
    sandbox.exec("ls", ["-l"], stdin=b"x")
    assert [json.loads(body) for _, _, body in fake.asked] == [
        {"cmd": "ls -l", "timeout_seconds": 3},
        {"cmd": ["ls", "-l"], "env": {"A": "ä"}},
        {"cmd": "ls", "args": ["-l"], "stdin": "x"},
    ]
    assert fake.asked[0][:2] == ("POST", "/v1/sandboxes/a%2Fb/exec")
    assert fake.headers[0]["Authorization"] == "Bearer pds_x"
    assert fake.headers[0]["User-Agent"].startswith("pandastack-python/")

@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.run_code(7),
        lambda s: s.run_code("1", "python", context="x"),
        lambda s: s.run_code("1", timeout_seconds=0),
        lambda s: s.run_code("1", on_stdout=7),
        lambda s: s.run_code("1", context=".."),
        lambda s: s.pty(rows=0),
        lambda s: s.pty(cols=70_000),
        lambda s: s.pty(["bash"]),
        lambda s: s.processes.kill(0),
        lambda s: s.processes.kill(""),
        lambda s: s.processes.signal(1, 0),
        lambda s: s.processes.start("a", tag=1),
        lambda s: s.processes.send_stdin(1, 7),
        lambda s: s.filesystem.read("a", offset=-1),
        lambda s: s.filesystem.read("a", length=0),
        lambda s: s.filesystem.write("a", "b", atomic=1),
        lambda s: s.filesystem.open("a", "x"),
        lambda s: s.filesystem.chown("a"),
        lambda s: s.filesystem.glob(""),
        lambda s: s.filesystem.search("a", include="*.py"),
        lambda s: s.filesystem.signed_url("a", "delete"),
        lambda s: s.filesystem.upload_archive(b"x", "a"),
        lambda s: s.git.clone(""),
        lambda s: s.git.add("a"),
        lambda s: s.git.commit("m", all=1),
        lambda s: s.git.pull(timeout_seconds=-1),
        lambda s: s.lsp(""),
        lambda s: s.metrics_series(0),
        lambda s: s.preview_url(0),
        lambda s: s.signed_preview_url(65536),
        lambda s: s.ports.expose(80, "open"),
        lambda s: s.network.set(allow="packages.example.com"),
        lambda s: s.network.set(7),
    ],
)
def test_wrong_arguments_inside(call: Callable[[Any], Any], fake: Fake, client: PandaStack) -> None:
    with pytest.raises((TypeError, ValueError)):
        call(client.sandboxes._handle("x"))
    assert fake.asked == []


def test_forms_of_requests_inside(fake: Fake, client: PandaStack) -> None:
    fake.error("sandbox.invalid_state", 409)
    sandbox = client.sandboxes._handle("x")
    calls: List[Callable[[], Any]] = [
        lambda: sandbox.run_code("1", timeout_seconds=0.5),
        lambda: sandbox.run_code("1", context=pandastack.CodeContext("c", "python", "/")),
        lambda: sandbox.processes.signal("tag", 15),
        lambda: sandbox.filesystem.chmod("a", 0o644),
        lambda: sandbox.filesystem.chown("a", 1000, "staff"),
        lambda: sandbox.git.push(auth=pandastack.GitAuth("t", host="h")),
        lambda: sandbox.git.pull(auth="t"),
        lambda: client.sandboxes.create(network=pandastack.Network(internet=False), networks=["n"]),
        lambda: client.ssh_keys.delete("SHA256:a+b/c"),
    ]
    for call in calls:
        with pytest.raises(errors.ConflictError):
            call()
    assert [json.loads(body) for _, _, body in fake.asked if body] == [
        {"code": "1", "timeout_ms": 500},
        {"code": "1", "context_id": "c"},
        {"signal": 15, "tree": False},
        {"path": "a", "mode": "0644", "recursive": False},
        {"path": "a", "recursive": False, "owner": "1000", "group": "staff"},
        {"force": False, "set_upstream": False, "auth": {"password": "t", "host": "h"}},
        {"rebase": False, "auth": {"password": "t"}},
        {"network": {"allow": [], "deny": [], "internet": False, "join": ["n"]}},
    ]
    assert fake.asked[-1][1] == "/v1/ssh-keys/SHA256%3Aa-b_c"
    with pytest.raises(errors.ConflictError):
        sandbox.filesystem.read("a", offset=2, length=3)
    assert fake.headers[-1]["Range"] == "bytes=2-4"


def test_why_a_websocket_was_closed() -> None:
    from pandastack._core import close_error

    e = close_error(1008, "sandbox.died: the server ended")
    assert isinstance(e, errors.ConflictError) and e.message == "the server ended"
    assert isinstance(close_error(1008, "internal: no"), errors.ServerError)
    assert close_error(1000, "exit 0") is None and close_error(1008, "what is this: x") is None


# Servers that are none


def test_errors_carry_what_the_server_said(fake: Fake, client: PandaStack) -> None:
    fake.error("sandbox.not_found", 404, hint="look", request_id="req_1", details={"retryable": False})
    with pytest.raises(errors.NotFoundError) as caught:
        client.sandboxes.get("x")
    e = caught.value
    assert (e.code, e.message, e.hint, e.request_id) == ("sandbox.not_found", "it failed", "look", "req_1")
    assert (e.status, e.status_code, e.retryable) == (404, 404, False)
    assert e.response is not None and e.response.status_code == 404
    assert str(e) == "it failed [sandbox.not_found, req_1]. look"
    copy = pickle.loads(pickle.dumps(e))
    assert (type(copy), str(copy), copy.response) == (type(e), str(e), None)


@pytest.mark.parametrize(
    "answer, said",
    [
        ((200, {"Content-Type": "text/html"}, b"<html>hello"), "not a PandaStack server .status 200, text/html."),
        ((502, {"Content-Type": "text/html"}, b"<html>bad gateway"), "not a PandaStack server .status 502, text/html."),
        ((302, {"Location": "https://other/"}, b""), "redirects to https://other/"),
        ((200, {"Content-Type": "application/json"}, b'{"what": 1}'), "not what this version of the package knows"),
        ((200, {"Content-Type": "application/json"}, b"[1]"), "not what this version of the package knows"),
        ((200, {"Content-Type": "application/json"}, b"{"), "not what this version of the package knows"),
    ],
)
def test_answers_of_something_else(answer: Answer, said: str, fake: Fake, client: PandaStack) -> None:
    fake.answers.append(answer)
    with pytest.raises(errors.APIConnectionError, match=said) as e:
        client.me()
    assert "PANDASTACK_API" in e.value.hint
    assert len(fake.asked) == 1
    if b"html" in answer[2]:
        sandbox = client.sandboxes._handle("x")
        calls: List[Callable[[], Any]] = [
            lambda: list(sandbox.exec_stream("a")), lambda: sandbox.run_background("a"), lambda: sandbox.logs(),
            lambda: list(sandbox.logs(follow=True)), lambda: client.snapshots.export("x", "/tmp/never"),
        ]
        for call in calls:
            with pytest.raises(errors.APIConnectionError, match="not a PandaStack server"):
                call()


def test_a_server_that_is_too_old(fake: Fake, client: PandaStack) -> None:
    fake.error("request.not_found", 404, hint="Check the path.")
    with pytest.raises(errors.NotFoundError, match="may be older than this package"):
        client.sandboxes._handle("x").tree()


def test_a_server_that_is_gone() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    client = PandaStack("pds_x", api_url=f"http://127.0.0.1:{port}")
    with pytest.raises(errors.APIConnectionError, match="connection refused.*pandastack server") as e:
        client.me()
    assert e.value.code == "client.server_unreachable"
    with pytest.raises(errors.APIConnectionError, match="does not resolve"):
        PandaStack("pds_x", api_url="http://nowhere.invalid", retries=0).me()

    async def run() -> None:
        async with AsyncPandaStack("pds_x", api_url=f"http://127.0.0.1:{port}") as ac:
            with pytest.raises(errors.APIConnectionError, match="connection refused"):
                await ac.me()

    asyncio.run(run())


def speak(answer: bytes, wait: float = 0) -> Tuple[str, threading.Thread]:
    """A server that says the same to one caller, whatever it wants."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(answer)
            time.sleep(wait)

    thread = threading.Thread(target=serve)
    thread.start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", thread


@pytest.mark.parametrize(
    "answer, said",
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not speak http"),
        (b"", "the connection ended before the answer did"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "the connection ended before the answer did"),
    ],
)
def test_answers_that_are_no_answers(answer: bytes, said: str) -> None:
    url, thread = speak(answer)
    with pytest.raises(errors.APIConnectionError, match=said):
        PandaStack("pds_x", api_url=url, retries=0).me()
    thread.join()


def test_a_server_that_is_slow() -> None:
    url, thread = speak(b"", 3)
    with pytest.raises(errors.TimeoutError, match="did not answer within 0.5 s") as e:
        PandaStack("pds_x", api_url=url, timeout=0.5).me()
    assert isinstance(e.value, TimeoutError) and e.value.code == "request.timeout"
    thread.join()


# Tries


def test_what_is_tried_again(fake: Fake, client: PandaStack) -> None:
    fake.error("capacity.unavailable", 503)
    fake.error("rate_limit.api", 429, retry_after="1")
    fake.json(ME)
    start = time.monotonic()
    assert client.me().org == "o"
    assert len(fake.asked) == 3
    assert time.monotonic() - start >= 1, "Retry-After is followed"


@pytest.mark.parametrize(
    "code, status", [("internal", 500), ("host.setup_incomplete", 503), ("quota.vcpu_exceeded", 429), ("sandbox.not_found", 404)]
)
def test_what_is_not_tried_again(code: str, status: int, fake: Fake, client: PandaStack) -> None:
    fake.error(code, status)
    with pytest.raises(errors.PandastackError):
        client.me()
    assert len(fake.asked) == 1


def test_a_create_is_repeated_with_its_key(fake: Fake, client: PandaStack) -> None:
    fake.error("capacity.unavailable", 503)
    fake.error("sandbox.boot_failed", 500)
    with pytest.raises(errors.ServerError):
        client.sandboxes.create()
    keys = [headers.get("Idempotency-Key") for headers in fake.headers]
    assert len(keys) == 2 and keys[0] == keys[1] and keys[0]
    with pytest.raises(errors.ServerError):
        client.sandboxes.create()
    assert fake.headers[-1]["Idempotency-Key"] != keys[0], "another create is another key"


def test_nothing_is_done_twice(fake: Fake, client: PandaStack) -> None:
    fake.error("capacity.unavailable", 503)
    for call in (lambda: client.sandboxes.delete("x"), lambda: client.tokens.create("x")):
        fake.asked.clear()
        with pytest.raises(errors.CapacityError):
            call()
        assert len(fake.asked) == 1


def test_tries_end(fake: Fake) -> None:
    fake.error("capacity.unavailable", 503)
    with PandaStack("pds_x", api_url=fake.url, retries=1) as client, pytest.raises(errors.CapacityError):
        client.me()
    assert len(fake.asked) == 2


def test_one_pool(fake: Fake) -> None:
    fake.json(ME)
    with PandaStack("pds_x", api_url=fake.url) as client:
        for _ in range(5):
            client.me()
        assert fake.connections == 1
        threads = [threading.Thread(target=client.me) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(fake.asked) == 13 and fake.connections <= 9
    with pytest.raises(RuntimeError, match="closed"):
        client.me()

    async def run() -> None:
        async with AsyncPandaStack("pds_x", api_url=fake.url) as ac:
            await ac.me()
        with pytest.raises(RuntimeError, match="closed"):
            await ac.me()

    asyncio.run(run())


def test_proxy_of_the_environment(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.json(ME)
    monkeypatch.setenv("http_proxy", fake.url)
    monkeypatch.setenv("no_proxy", "")
    assert PandaStack("pds_x", api_url="http://far.invalid").me().org == "o"
    assert fake.asked[0][1] == "http://far.invalid/v1/me"


# Parts


def test_server_sent_events() -> None:
    whole = b": hello\n\nevent: a\ndata: 1\ndata: 2\n\r\nid: 3\ndata:x\n\nevent: b\n\n"
    want = [("a", b"1\n2"), ("", b"x")]
    assert EventParser().feed(whole) == want
    parser = EventParser()
    got = [e for i in range(len(whole)) for e in parser.feed(whole[i : i + 1])]
    assert got == want
    with pytest.raises(ValueError):
        EventParser().feed(b"x" * (9 << 20))


def test_times() -> None:
    assert parse_time("2026-11-21T07:36:15.376798123Z") == datetime(2026, 11, 21, 7, 36, 15, 376798, timezone.utc)
    assert parse_time("2026-11-21T07:36:15+01:30").utcoffset() == timedelta(hours=1, minutes=30)
    for wrong in ("", "now", "2026-11-21", "2026-13-21T07:36:15Z"):
        with pytest.raises(ValueError):
            parse_time(wrong)


def test_output_is_bounded_and_characters_are_whole() -> None:
    tail = Tail(10)
    for piece in (b"abcdef", b"ghijkl", b"m"):
        tail.add(piece)
    assert (tail.text(), tail.truncated) == ("defghijklm", True)
    collector = Collector()
    texts = [collector.take({"type": "stdout", "data": d}) for d in ("w6k=", "ww==", "qQ==")]
    assert [t.text for t in texts if t] == ["é", "", "é"]


def test_default_client_follows_the_environment(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    from pandastack._sync.client import default_client

    monkeypatch.setenv("PANDASTACK_API", fake.url)
    monkeypatch.setenv("PANDASTACK_API_KEY", "pds_1")
    first = default_client()
    assert default_client() is first
    monkeypatch.setenv("PANDASTACK_API_KEY", "pds_2")
    assert default_client() is not first
    fake.json({"sandboxes": []})
    assert pandastack.Sandbox.list() == []
    assert fake.headers[0]["Authorization"] == "Bearer pds_2"
