"""The entry to a server."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, List

from .. import _config, _core
from .._core import Request
from .._lazy import models
from ..errors import PandastackError
from . import _io
from .resources import AsyncSandboxes, AsyncSnapshots, AsyncSSHKeys, AsyncTemplates, AsyncTokens
from .transport import AsyncTransport

if TYPE_CHECKING:
    import httpx

    from .._generated.models import Health, LSPLanguage, Me, Version
    from .network import AsyncNetworks


class AsyncPandaStack:
    """Talks to one server with one key, over one pool of connections.

    token, api_key: the key (two names of one thing); default the environment's
    PANDASTACK_API_KEY or PANDASTACK_TOKEN, then ~/.config/pandastack/config.json.
    api_url, base_url: the server's address; default PANDASTACK_API, then the
    config file, then http://127.0.0.1:8080.
    timeout: seconds that the server may take to answer; calls that make or
    move a whole sandbox may take 300 at least, and a command takes as long as
    its own timeout_seconds says.
    retries: how often a request is tried again where that cannot do anything
    twice. http2: default where TLS offers it and the h2 package is installed.
    user_agent: goes before the package's own. transport: an httpx transport
    instead of the pool.

    It sends nothing until it is used. close() it, or use it in a `with` block.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        api_key: str | None = None,
        api_url: str | None = None,
        base_url: str | None = None,
        timeout: float = _config.DEFAULT_TIMEOUT,
        retries: int = _config.DEFAULT_RETRIES,
        http2: bool | None = None,
        user_agent: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        settings = _config.settings(token, api_key, api_url, base_url, timeout, retries, user_agent, http2)
        self._setup(AsyncTransport(settings, transport))

    def _setup(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self.sandboxes: AsyncSandboxes = AsyncSandboxes(transport)
        self.snapshots: AsyncSnapshots = AsyncSnapshots(transport)
        self.templates: AsyncTemplates = AsyncTemplates(transport)
        self.tokens: AsyncTokens = AsyncTokens(transport)
        self.ssh_keys: AsyncSSHKeys = AsyncSSHKeys(transport)

    @property
    def networks(self) -> AsyncNetworks:
        """Networks that link sandboxes."""
        from .network import AsyncNetworks

        return AsyncNetworks(self._transport)

    @property
    def base_url(self) -> str:
        """The address of the server."""
        return self._transport.settings.base_url

    def __repr__(self) -> str:
        return f"<AsyncPandaStack {self.base_url}>"

    async def me(self) -> Me:
        """Says who the key belongs to (AuthError)."""
        return await self._transport.call(Request("GET", ("v1", "me")), models.Me.from_dict)

    async def version(self) -> Version:
        """Says what the server runs. It needs no key."""
        return await self._transport.call(Request("GET", ("version",)), models.Version.from_dict)

    async def health(self) -> Health:
        """Asks whether the server is up. It needs no key."""
        return await self._transport.call(Request("GET", ("healthz",)), models.Health.from_dict)

    async def ready(self) -> Health:
        """Asks whether creates are fast. One that is not there yet answers with
        a status other than ok and what it waits for, which is not an error."""
        from .._core import decoded

        try:
            return await self._transport.call(Request("GET", ("readyz",)), models.Health.from_dict)
        except PandastackError as e:
            if e.status_code != 503 or e.response is None or e.code != "client.not_a_pandastack_server":
                raise
            return decoded(self._transport.settings, e.response, models.Health.from_dict)

    async def languages(self) -> List[str]:
        """Gives the languages that run_code knows. A sandbox has those whose programs its template has."""
        return (await self._transport.call(Request("GET", ("v1", "repl", "languages")), models.CodeLanguages.from_dict)).languages

    async def lsp_languages(self) -> List[LSPLanguage]:
        """Gives the languages for which there are language servers, and how to install those."""
        request = Request("GET", ("v1", "lsp", "languages"))
        return (await self._transport.call(request, models.LSPLanguageList.from_dict)).languages

    async def prometheus_metrics(self) -> str:
        """Gives the server's counters in the text form of Prometheus. It needs no key."""
        response = await self._transport.send(Request("GET", ("metrics",), accept="text/plain"))
        if not _core.is_kind(response, "text/plain"):
            raise _core.not_a_server(self._transport.settings, response)
        return response.content.decode("utf-8", "replace")

    def mcp_config(self) -> dict[str, Any]:
        """The entry for this server in the configuration of an MCP client. It has the key in it."""
        return _core.mcp_config(self._transport.settings, ("mcp",))

    async def close(self) -> None:
        """Closes the connections. Calls after it fail."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncPandaStack:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


_default = _io.DefaultClient()


def default_client() -> AsyncPandaStack:
    """The client of whoever names none, made of the environment and the config file."""
    settings = _config.settings(
        None, None, None, None, _config.DEFAULT_TIMEOUT, _config.DEFAULT_RETRIES, None, None
    )
    return _default.get(settings, AsyncPandaStack)
