"""The sync surface against real sandboxes."""

from __future__ import annotations

import io
import os
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, List, Optional

import pytest

from conftest import Server
from pandastack import (
    APIConnectionError,
    AuthError,
    BadRequestError,
    NotFoundError,
    PandaStack,
    PandastackError,
    Sandbox,
    VolumeMount,
)


def test_every_form_of_exec(sandbox: Sandbox) -> None:
    assert sandbox.exec("echo a | tr a b").stdout == "b\n"
    assert sandbox.exec(["echo", "a | b"]).stdout == "a | b\n"
    assert sandbox.exec("echo", ["a | b"]).stdout == "a | b\n"
    assert sandbox.exec("echo", args=["a", "b"]).stdout == "a b\n"
    result = sandbox.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert 0 < result.duration_ms < 60_000 and result.pid


def test_exec_options(sandbox: Sandbox) -> None:
    assert sandbox.exec("pwd; echo $A", cwd="/tmp", env={"A": "é"}).stdout == "/tmp\né\n"
    assert sandbox.exec("id -un", user="root").stdout == "root\n"
    assert sandbox.exec("cat", stdin="hello").stdout == "hello"
    assert sandbox.exec("cat", stdin=b"hello").stdout == "hello"
    assert sandbox.exec(["no-such-program"]).exit_code == 127
    with pytest.raises(BadRequestError) as e:
        sandbox.exec("true", user="nobody-here")
    assert e.value.code == "process.invalid" and e.value.request_id.startswith("req_")


@pytest.mark.parametrize("streamed", [False, True])
def test_exec_timeout(sandbox: Sandbox, streamed: bool) -> None:
    callback = (lambda text: None) if streamed else None
    result = sandbox.exec("echo a; sleep 60", timeout_seconds=0.5, on_stdout=callback)
    assert (result.stdout, result.exit_code, result.timed_out) == ("a\n", 124, True)


def test_exec_callbacks(sandbox: Sandbox) -> None:
    out: List[str] = []
    err: List[str] = []
    result = sandbox.exec("echo 1; sleep .2; echo 2; echo 3 >&2", on_stdout=out.append, on_stderr=err.append)
    assert ("".join(out), "".join(err), len(out)) == ("1\n2\n", "3\n", 2)
    assert (result.stdout, result.stderr, result.exit_code) == ("1\n2\n", "3\n", 0)


def gone(sandbox: Sandbox, program: str) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if sandbox.exec(["pgrep", "-f", program]).exit_code != 0:
            return True
        time.sleep(0.1)
    return False


def test_a_callback_that_fails_ends_the_command(sandbox: Sandbox) -> None:
    def fail(_: str) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sandbox.exec("echo a; exec sleep 4711", on_stdout=fail)
    assert gone(sandbox, "sleep 4711")


def test_exec_stream(sandbox: Sandbox) -> None:
    stream = sandbox.exec_stream("printf '\\303'; sleep .3; printf '\\251'; echo e >&2; exit 4")
    got = list(stream)
    assert "".join(o.text for o in got if o.stream == "stdout") == "é"
    assert b"".join(o.data for o in got if o.stream == "stderr") == b"e\n"
    assert stream.result is not None and (stream.result.stdout, stream.result.exit_code) == ("é", 4)
    assert stream.pid == stream.result.pid
    with pytest.raises(BadRequestError):
        sandbox.exec_stream("true", user="nobody-here").wait()


def test_exec_stream_has_no_limit(sandbox: Sandbox) -> None:
    stream = sandbox.exec_stream("head -c 20000000 /dev/zero")
    assert sum(len(o.data) for o in stream) == 20_000_000
    assert stream.result is not None and stream.result.truncated
    assert len(stream.result.stdout) == 16 << 20


def test_leaving_a_stream_kills_the_command(sandbox: Sandbox) -> None:
    with sandbox.exec_stream("echo a; exec sleep 4712") as stream:
        assert next(iter(stream)).text == "a\n"
    assert gone(sandbox, "sleep 4712")


def test_background(sandbox: Sandbox) -> None:
    heard: List[str] = []
    process = sandbox.run_background("cat; echo end", on_stdout=heard.append)
    assert process.pid and process.result is None
    process.send_stdin("a\n")
    process.send_stdin(b"b\n")
    process.close_stdin()
    result = process.wait(timeout=30)
    assert (result.stdout, result.exit_code) == ("a\nb\nend\n", 0)
    assert process.result is result and "".join(heard) == result.stdout
    assert b"".join(o.data for o in process) == b"a\nb\nend\n", "output is there for who comes late"
    process.kill()  # has ended: nothing to do
    with pytest.raises(NotFoundError):
        process.send_stdin("x")
    process.close()


def test_background_kill_and_wait(sandbox: Sandbox) -> None:
    process = sandbox.run_background(["sleep", "4713"])
    with pytest.raises(TimeoutError, match="It goes on"):
        process.wait(timeout=0.2)
    threading.Timer(0.2, process.kill).start()
    result = process.wait(timeout=30)
    assert (result.exit_code, result.signal) == (137, "SIGKILL")
    process = sandbox.run_background("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep .1; done")
    assert next(iter(process)).text == "ready\n"
    process.terminate()
    assert process.wait(timeout=30).exit_code == 7
    with sandbox.run_background("exec sleep 4714") as process:
        pass
    assert process.result is not None and process.result.exit_code == 137


def test_background_goes_on_without_its_connection(sandbox: Sandbox) -> None:
    process = sandbox.run_background("sleep 1; echo done > /tmp/went-on")
    process.close()
    with pytest.raises(PandastackError):
        process.wait(timeout=30)
    deadline = time.monotonic() + 30
    while not sandbox.filesystem.exists("/tmp/went-on"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_background_output_that_nobody_takes(sandbox: Sandbox) -> None:
    process = sandbox.run_background("head -c 30000000 /dev/zero; echo end >&2")
    result = process.wait(timeout=120)
    assert (len(result.stdout), result.truncated, result.stderr) == (16 << 20, True, "end\n")


def test_background_input_and_output_at_once(sandbox: Sandbox) -> None:
    # Both directions are full: neither may wait for the other.
    data = os.urandom(3 << 20)
    process = sandbox.run_background("cat")
    total = 0

    def feed() -> None:
        process.send_stdin(data)
        process.close_stdin()

    feeder = threading.Thread(target=feed)
    feeder.start()
    got = b"".join(o.data for o in process)
    feeder.join()
    total += len(got)
    assert got == data and total == len(data)


def test_files(sandbox: Sandbox, tmp_path: Path) -> None:
    fs = sandbox.filesystem
    info = fs.write("notes/a.txt", "héllo")
    assert (info.path, info.size, info.type, info.owner) == ("/home/user/notes/a.txt", 6, "file", "user")
    assert fs.read("notes/a.txt") == "héllo"
    assert fs.read("notes/a.txt", format="bytes") == "héllo".encode()
    fs.write("notes/b", b"\xff\x00")
    with pytest.raises(ValueError, match="format='bytes'"):
        fs.read("notes/b")
    assert fs.write("notes/empty", "").size == 0 and fs.read("notes/empty") == ""
    assert [e.name for e in fs.list("notes")] == ["a.txt", "b", "empty"]
    assert fs.stat("notes").type == "directory" and fs.stat("notes/a.txt").modified.tzinfo is not None
    assert fs.mkdir("notes/d/e").type == "directory" and fs.mkdir("notes/d/e").type == "directory"
    fs.rename("notes/a.txt", "notes/d/e/f")
    assert {e.path.rsplit("/", 1)[1] for e in fs.list("notes", depth=3)} == {"b", "d", "e", "f", "empty"}
    assert fs.exists("notes/d/e/f") and not fs.exists("notes/a.txt")
    fs.remove("notes")
    assert not fs.exists("notes")
    assert fs.write("/root/r", "x", user="root").owner == "root"
    with pytest.raises(BadRequestError) as directory:
        fs.read("/tmp")
    assert directory.value.code == "file.is_directory"
    with pytest.raises(NotFoundError) as absent:
        fs.read("nothing/here")
    assert absent.value.code == "file.not_found" and absent.value.status == 404


def test_files_as_streams(sandbox: Sandbox, tmp_path: Path) -> None:
    fs = sandbox.filesystem
    data = os.urandom(5_000_001)
    local = tmp_path / "local"
    local.write_bytes(data)
    assert fs.upload(local, "up").size == len(data)
    assert fs.download("up", str(tmp_path / "back")) == len(data)
    assert (tmp_path / "back").read_bytes() == data
    with open(local, "rb") as f:
        f.seek(1_000_000)
        assert fs.write("part", f).size == len(data) - 1_000_000
    assert b"".join(fs.read("part", format="stream")) == data[1_000_000:]
    target = io.BytesIO()
    fs.upload(io.BytesIO(data), "up2")
    assert fs.download("up2", target) == len(data) and target.getvalue() == data
    assert fs.write("it", (bytes([i]) * 1000 for i in range(100))).size == 100_000
    assert fs.write("text", io.StringIO("é" * 10)).size == 20
    for broken in ([1], ["a", None]):
        with pytest.raises(TypeError):
            fs.write("broken", broken)  # type: ignore[arg-type]


def test_a_download_that_fails_leaves_what_was_there(sandbox: Sandbox, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("before")
    with pytest.raises(NotFoundError):
        sandbox.filesystem.download("nothing-here", target)
    assert target.read_text() == "before" and os.listdir(tmp_path) == ["target"]
    sandbox.filesystem.write("x", "x")
    assert sandbox.filesystem.download("x", "/dev/null") == 1
    assert not os.path.isfile("/dev/null")


def test_logs(client: PandaStack) -> None:
    with client.sandboxes.create() as sandbox:
        sandbox.exec("echo one; echo two >&2; echo three")
        assert sorted(sandbox.logs(tail=3).split()) == ["one", "three", "two"]
        assert sandbox.logs(stream="stderr") == "two\n" and "three\n" in sandbox.logs()
        assert sandbox.logs(stream="stdout", tail=1) == "three\n"
        with sandbox.logs(follow=True, stream="stdout", tail=2) as lines:
            first = next(lines)
            assert (first.line, first.stream) == ("one", "stdout") and first.time.tzinfo is not None
            assert next(lines).line == "three"
            sandbox.exec("echo four")
            assert next(lines).line == "four"


def test_events(client: PandaStack) -> None:
    with client.sandboxes.create() as sandbox:
        events = sandbox.events()
        assert [e.type for e in events] == ["sandbox.running"] and events[0].sandbox_id == sandbox.id
        with sandbox.events(follow=True, since=events[0].id) as stream:
            sandbox.pause()
            assert next(stream).type == "sandbox.paused"
        sandbox.resume()
        assert len(sandbox.events(tail=2)) == 2


def test_life(client: PandaStack) -> None:
    sandbox = client.sandboxes.create(
        "base", ttl_seconds=600, metadata={"task": "life"}, env={"A": "b"}, cpu=1, memory_mb=512
    )
    with sandbox:
        assert (sandbox.template, sandbox.status, sandbox.metadata) == ("base", "running", {"task": "life"})
        assert (sandbox.ttl_seconds, sandbox.memory_mb, sandbox.cpu) == (600, 512, 1)
        assert sandbox.expires_at is not None and sandbox.expires_at > sandbox.created_at
        assert sandbox.exec("echo $A").stdout == "b\n"
        assert client.sandboxes.get(sandbox.id).record == sandbox.refresh().record
        assert [s.id for s in client.sandboxes.list(metadata={"task": "life"}, status="running")] == [sandbox.id]
        assert client.sandboxes.list(metadata={"task": "other"}) == []
        assert client.sandboxes.list(status=["paused", "failed"]) == []
        assert sandbox.pause().status == "paused" and sandbox.resume() is sandbox
        assert sandbox.set_ttl(900).ttl_seconds == 900
        assert sandbox.set_persistent().persistent is True
        assert sandbox.set_persistent(False).persistent is False
        assert sandbox.lifecycle().expires_at is not None
        usage = sandbox.metrics()
        assert usage.uptime_seconds > 0 and usage.host_rss_bytes > 0
    with pytest.raises(NotFoundError) as e:
        sandbox.exec("true")
    assert e.value.code == "sandbox.not_found"
    client.sandboxes.create().kill()


def test_pages(client: PandaStack, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandastack._sync.resources as resources

    monkeypatch.setattr(resources, "PAGE", 1)
    made = [client.sandboxes.create(metadata={"pages": "1"}) for _ in range(3)]
    try:
        listed = client.sandboxes.list(metadata={"pages": "1"})
        assert [s.id for s in listed] == [s.id for s in reversed(made)]
        assert len(client.sandboxes.list(metadata={"pages": "1"}, limit=2)) == 2
    finally:
        for sandbox in made:
            client.sandboxes.delete(sandbox.id)


def test_what_the_server_refuses(client: PandaStack) -> None:
    with pytest.raises(NotFoundError) as e:
        client.sandboxes.create(template="no-such-template")
    assert e.value.code == "template.not_found" and "template list" in e.value.hint
    calls: List[Any] = [
        lambda: client.sandboxes.create(ttl_seconds=10**9), lambda: client.sandboxes.create(driver="moon"),
        lambda: client.sandboxes.create(volumes=[VolumeMount("v")]),
    ]
    for call in calls:
        with pytest.raises(PandastackError):
            call()


def test_account(client: PandaStack, server: Server) -> None:
    assert client.me().admin and client.version().version
    assert client.health().status == "ok" and client.ready().status == "ok"
    assert "base" in [t.name for t in client.templates.list()]
    assert client.templates.get("base").status == "ready"
    key = client.tokens.create("mine")
    assert key.prefix in [t.prefix for t in client.tokens.list()]
    with PandaStack(key.token, api_url=server.url) as other:
        assert other.me().name == "mine"
        client.tokens.revoke(key.prefix)
        with pytest.raises(AuthError) as e:
            other.me()
    assert e.value.code == "auth.token_revoked"
    with PandaStack("pds_" + "0" * 40, api_url=server.url) as other, pytest.raises(AuthError, match="auth.invalid_token"):
        other.sandboxes._handle("x").run_background("true")


def test_global_default(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PANDASTACK_API", server.url)
    monkeypatch.setenv("PANDASTACK_TOKEN", server.key)
    with Sandbox.create(metadata={"default": "1"}) as sandbox:
        assert Sandbox.get(sandbox.id).id == sandbox.id
        assert [s.id for s in Sandbox.list(metadata={"default": "1"})] == [sandbox.id]
        sandbox.kill()  # its block then has nothing to end


def test_one_client_and_many_threads(client: PandaStack, sandbox: Sandbox) -> None:
    results: List[str] = []

    def work(i: int) -> None:
        for j in range(5):
            results.append(sandbox.exec(["echo", f"{i}-{j}"]).stdout.strip())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == sorted(f"{i}-{j}" for i in range(8) for j in range(5))


def test_close(server: Server) -> None:
    client = server.client()
    before = len(os.listdir("/proc/self/fd"))
    client.me()
    assert len(os.listdir("/proc/self/fd")) > before
    client.close()
    assert len(os.listdir("/proc/self/fd")) <= before
    with pytest.raises(RuntimeError):
        client.me()


class Relay:
    """Passes connections on to the server, with TLS if there is a context."""

    def __init__(self, server: Server, tls: Optional[ssl.SSLContext] = None) -> None:
        host, port = server.url[len("http://") :].split(":")
        self.target = (host, int(port))
        self.tls = tls
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.ends: List[socket.socket] = []
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://localhost:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._accept)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            try:
                if self.tls:
                    near = self.tls.wrap_socket(near, server_side=True)
            except OSError:
                near.close()
                continue
            far = socket.create_connection(self.target)
            self.ends += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(a, b), daemon=True).start()

    @staticmethod
    def _pump(a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self) -> None:
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        self.cut()
        for end in self.ends:
            end.close()


def test_a_connection_that_breaks(sandbox: Sandbox, server: Server) -> None:
    """A relay is cut while commands run: the calls end at once and say so."""
    with Relay(server) as relay, PandaStack(server.key, api_url=relay.url, retries=0) as client:
        handle = client.sandboxes.get(sandbox.id)
        process = handle.run_background("echo up; exec sleep 4715")
        stream = handle.exec_stream("echo up; exec sleep 4716")
        assert next(stream).text == "up\n"
        relay.cut()
        with pytest.raises(PandastackError, match="connection"):
            stream.wait()
        with pytest.raises(PandastackError, match="connection"):
            process.wait(timeout=30)
    sandbox.exec("pkill -f 'sleep 471[56]'")


def test_tls(sandbox: Sandbox, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    make += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Relay(server, context) as relay:
        with pytest.raises(APIConnectionError, match="is not trusted.*SSL_CERT_FILE"):
            PandaStack(server.key, api_url=relay.url, retries=0).me()
        with pytest.raises(APIConnectionError, match="does not speak https"):
            PandaStack(server.key, api_url="https" + server.url[len("http") :], retries=0).me()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with PandaStack(server.key, api_url=relay.url) as client:
            handle = client.sandboxes.get(sandbox.id)
            assert handle.exec("echo a").stdout == "a\n"
            process = handle.run_background("cat")
            process.send_stdin("b")
            process.close_stdin()
            assert process.wait(timeout=30).stdout == "b"
