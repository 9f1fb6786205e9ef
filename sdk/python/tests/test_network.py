"""What sandboxes reach, and how they are reached."""

from __future__ import annotations

import time
import uuid
from typing import Any, Iterator
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from pandastack import BadRequestError, ConflictError, Network, NotFoundError, PandaStack, Sandbox

LIMIT = 60.0  # seconds for what takes none when the machine is idle


@pytest.fixture(scope="module")
def sandbox(client: PandaStack) -> Iterator[Sandbox]:
    """One of its own: what is done here leaves traces."""
    with client.sandboxes.create() as sandbox:
        yield sandbox


def until(what: Any) -> Any:
    """Waits until something is true."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        got = what()
        if got:
            return got
        time.sleep(0.2)
    raise AssertionError("it did not become true")


def opened(client: PandaStack, url: str) -> bytes:
    """What a browser on this machine gets: names below localhost need not resolve."""
    parts = urlsplit(url)
    server = urlsplit(client.base_url)
    request = Request(f"http://{server.netloc}{parts.path or '/'}?{parts.query}", headers={"Host": parts.netloc})
    try:
        with urlopen(request, timeout=LIMIT) as answer:
            content: bytes = answer.read()
            return content
    except HTTPError as e:
        with e:
            return b"status %d" % e.code


def test_rules(client: PandaStack) -> None:
    with client.sandboxes.create(network=Network(internet=False)) as sandbox:
        assert sandbox.network.get().internet is False

        def refused() -> Any:
            assert sandbox.exec(["bash", "-c", "exec 3<>/dev/tcp/192.0.2.1/80"], timeout_seconds=LIMIT).exit_code != 0
            return [c for c in sandbox.network.log().connections if c.verdict == "denied"]

        line = until(refused)[0]
        assert (line.address, line.port) == ("192.0.2.1", 80)
        assert all(c.id > line.id for c in sandbox.network.log(since=line.id, limit=5).connections)
        rules = sandbox.network.set(allow=["example.com:443", "203.0.113.0/24"], egress_mbps=5)
        assert (rules.allow, rules.egress_mbps) == (["example.com:443", "203.0.113.0/24"], 5)
        assert sandbox.network.set(rules, internet=True).allow == rules.allow
        with pytest.raises(BadRequestError):
            sandbox.network.set(allow=["no such thing!"])


def test_networks(client: PandaStack) -> None:
    name = "net-" + uuid.uuid4().hex[:8]
    group = client.networks.create(name)
    assert group.name == name and group.members == []
    with pytest.raises(ConflictError):
        client.networks.create(name)
    with client.sandboxes.create(network={"name": "one"}, networks=[name]) as one, client.sandboxes.create() as two:
        two.network.set(join=[name], name="two")
        members = client.networks.get(name).members
        assert {m.sandbox_id: m.name for m in members} == {one.id: "one", two.id: "two"}
        with pytest.raises(ConflictError):
            client.networks.delete(name)
        with one.run_background("python3 -m http.server 8000"):
            fetch = "import urllib.request; print(urllib.request.urlopen('http://one.internal:8000', timeout=5).status)"
            until(lambda: two.exec(["python3", "-c", fetch], timeout_seconds=LIMIT).stdout == "200\n")
    until(lambda: not client.networks.get(name).members)
    assert name in [n.name for n in client.networks.list()]
    client.networks.delete(group.name)
    with pytest.raises(NotFoundError):
        client.networks.get(name)


def test_previews(client: PandaStack, sandbox: Sandbox) -> None:
    sandbox.filesystem.write("site/index.html", "hello from a sandbox")
    with sandbox.run_background("python3 -m http.server 8123", cwd="/home/user/site"):
        until(lambda: 8123 in sandbox.preview_urls())
        url = sandbox.preview_url(8123)
        assert sandbox.id in url and url == sandbox.preview_urls()[8123]
        assert until(lambda: opened(client, url)) == b"hello from a sandbox"
        assert sandbox.ports.expose(8123, "private").visibility == "private"
        assert opened(client, url) == b"status 401"
        token = sandbox.preview_token(8123, ttl_seconds=60)
        assert token.token in token.url and token.url.startswith(url)
        server = urlsplit(client.base_url).netloc
        headers = {"Host": urlsplit(url).netloc, "X-PandaStack-Preview-Token": token.token}
        with urlopen(Request(f"http://{server}/", headers=headers), timeout=LIMIT) as answer:
            assert answer.read() == b"hello from a sandbox"
        assert sandbox.signed_preview_url(8123).startswith(url)
        sandbox.ports.close(8123)
        assert opened(client, token.url).startswith(b"status 4")
        found = next(p for p in sandbox.ports.list() if p.port == 8123)
        assert found.listening and found.visibility == "closed"


def test_ssh_keys(client: PandaStack, sandbox: Sandbox) -> None:
    line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHbQOGgk0Vpw9Vd5fC6NrLnkUzYGQWkYbIFxWCqPmVnF me@laptop"
    key = client.ssh_keys.add(line)
    assert key.name == "me@laptop" and key.public_key in line
    assert key.fingerprint in [k.fingerprint for k in client.ssh_keys.list()]
    client.ssh_keys.delete(key)
    with pytest.raises(NotFoundError):
        client.ssh_keys.delete(key.fingerprint)
    with pytest.raises(BadRequestError):
        client.ssh_keys.add("no key")
    try:
        assert sandbox.id in sandbox.ssh().command
    except BadRequestError as e:
        assert e.code == "request.unsupported"
