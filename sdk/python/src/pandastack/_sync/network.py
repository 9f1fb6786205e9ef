# Made by tools/unasync.py from _async/network.py. Do not edit.

"""What sandboxes reach, and how they are reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Sequence

from .. import _check
from .._core import Request
from .._generated.models import ConnectionLog, Network, NetworkGroup, NetworkGroupList, Port, PortList

if TYPE_CHECKING:
    from .transport import Transport


class Networks:
    """Networks that link the sandboxes of one owner.

    Sandboxes join at their creation (networks=) or later (Sandbox.network).
    Members reach each other at any port, as <name>.internal or <id>.internal.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str) -> NetworkGroup:
        """Makes a network. name: 1 to 40 of a-z, 0-9 and -, not at the ends (ConflictError if it is taken)."""
        body = {"name": _check.text("name", name, empty=False)}
        return self._transport.call(Request("POST", ("v1", "networks"), json=body), NetworkGroup.from_dict)

    def list(self) -> List[NetworkGroup]:
        """Gives the caller's networks, by name, with their members."""
        return (self._transport.call(Request("GET", ("v1", "networks")), NetworkGroupList.from_dict)).networks

    def get(self, name: str) -> NetworkGroup:
        """Finds a network by its name (NotFoundError)."""
        return self._transport.call(Request("GET", self._path(name)), NetworkGroup.from_dict)

    def delete(self, name: str) -> None:
        """Removes a network without members (ConflictError, NotFoundError)."""
        self._transport.do(Request("DELETE", self._path(name)))

    def _path(self, name: object) -> tuple[str, ...]:
        if isinstance(name, NetworkGroup):
            name = name.name
        return ("v1", "networks", _check.identifier("name", name))


class SandboxNetwork:
    """What one sandbox may reach, and what it has contacted.

    An entry of allow and deny is an address, a range (203.0.113.0/24), a name
    (packages.example.com) or all names below one (*.files.example.com), with a
    port or ports after a colon where it is only for those
    (packages.example.com:443). No entry opens the host, other sandboxes or
    private addresses.
    """

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        self._transport = transport
        self._path = ("v1", "sandboxes", sandbox_id, "network")

    def get(self) -> Network:
        """Gives the rules, and the networks that it has joined."""
        return self._transport.call(Request("GET", self._path), Network.from_dict)

    def set(
        self,
        network: Network | Mapping[str, Any] | None = None,
        *,
        internet: bool | None = None,
        allow: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
        egress_mbps: int | None = None,
        join: Sequence[str] | None = None,
        name: str | None = None,
    ) -> Network:
        """Replaces the rules and the networks; open connections that they forbid are cut.

        network: a whole Network, such as get() gives; what else is given
        replaces parts of it, and what is in neither is the default.
        internet: whether what no entry names may be reached; default True, or
        False where allow has entries.
        egress_mbps: cap of outgoing traffic in megabits per second, 0 is none.
        join: networks by name. name: its own name in those.
        """
        body = {} if network is None else _check.policy("network", network)
        if internet is not None:
            body["internet"] = _check.truth("internet", internet)
        for key, value in (("allow", allow), ("deny", deny), ("join", join)):
            if value is not None:
                body[key] = _check.words(key, value)
        if egress_mbps is not None:
            body["egress_mbps"] = _check.whole("egress_mbps", egress_mbps)
        if name is not None:
            body["name"] = _check.text("name", name)
        return self._transport.call(Request("PUT", self._path, json=body), Network.from_dict)

    def log(self, *, since: int | None = None, limit: int | None = None) -> ConnectionLog:
        """Gives the latest connections and refusals, oldest first.

        since: only those with a greater id. limit: at most so many, default 1000.
        """
        query: dict[str, Any] = {}
        if since is not None:
            query["since"] = _check.whole("since", since)
        if limit is not None:
            query["limit"] = _check.whole("limit", limit, low=1)
        return self._transport.call(Request("GET", (*self._path, "log"), query), ConnectionLog.from_dict)


class Ports:
    """The ports of a sandbox, and who may open their previews in a browser.

    A port that nothing was said about is public: who knows its address, which
    has the sandbox's id in it, may open it.
    """

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        self._transport = transport
        self._path = ("v1", "sandboxes", sandbox_id, "ports")

    def list(self) -> List[Port]:
        """Gives the ports that something listens on or that something was set for, in order."""
        return (self._transport.call(Request("GET", self._path), PortList.from_dict)).ports

    def expose(self, port: int, visibility: str = "public") -> Port:
        """Sets who may open the preview of a port, whether or not anything listens yet.

        visibility: public, or private, which asks for a signed URL or its token.
        """
        body = {"port": port_of(port), "visibility": _check.choice("visibility", visibility, ("public", "private"))}
        return self._transport.call(Request("POST", self._path, json=body), Port.from_dict)

    def close(self, port: int) -> None:
        """Closes the preview of a port to everybody, signed URLs included, until it is exposed again."""
        self._transport.do(Request("DELETE", self._path, {"port": port_of(port)}))


def port_of(port: object) -> int:
    n = _check.whole("port", port, low=1)
    if n > 65535:
        raise ValueError(f"port is at most 65535, not {n}")
    return n
