"""Requests, tries and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, TypeVar

from .. import _core
from .._config import Settings
from .._core import Request
from . import _io

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class AsyncTransport:
    """One server, one key, one pool of connections."""

    def __init__(self, settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.settings = settings
        self._own = transport
        self._http = _io.new_http(settings, transport, settings.http2)
        self._upgrading: httpx.AsyncClient | None = None

    async def close(self) -> None:
        await self._http.aclose()
        if self._upgrading is not None:
            await self._upgrading.aclose()

    async def call(self, r: Request, read: Callable[[Any], T]) -> T:
        """Makes a call whose answer is JSON."""
        response = await self.send(r)
        return _core.decoded(self.settings, response, read)

    async def do(self, r: Request) -> None:
        """Makes a call whose answer, if there is one, says nothing."""
        await self.send(r)

    async def send(self, r: Request) -> httpx.Response:
        """Makes a call and reads the whole answer."""
        return await self._tries(r, False, self._http)

    async def open(self, r: Request) -> httpx.Response:
        """Makes a call whose answer is read as it comes. The caller closes it."""
        return await self._tries(r, True, self._http)

    async def upgrade(self, r: Request) -> httpx.Response:
        """Makes a call that becomes another protocol, which HTTP/2 cannot."""
        http = self._http
        if self.settings.http2 and self._own is None:
            if self._upgrading is None:
                self._upgrading = _io.new_http(self.settings, None, False)
            http = self._upgrading
        return await self._tries(r, True, http)

    async def _tries(self, r: Request, stream: bool, http: httpx.AsyncClient) -> httpx.Response:
        import httpx

        s = self.settings
        url, headers, body = _core.url_of(s, r), _core.headers_of(s, r), _core.body_of(r)
        timeouts = _core.timeouts_of(s, r)
        once = _core.Once()
        attempt = 0
        while True:
            content = body
            if body is not None and not isinstance(body, bytes):
                content = _io.pieces(body, once)
            request = http.build_request(r.method, url, content=content, headers=headers, timeout=httpx.Timeout(**timeouts))
            failure: Exception
            try:
                response = await http.send(request, stream=stream)
                if response.is_success or (stream and response.status_code == 101):
                    return response
                error = _core.answer_error(s, response, await _small_body(response, stream))
                failure = error
            except httpx.TransportError as e:
                failure, error = e, _core.transport_error(s, e, timeouts["read"])
            wait = _core.wait_before_retry(s, r, attempt, once, failure, error)
            if wait is None:
                raise error from (None if failure is error else failure)
            await _io.sleep(wait)
            attempt += 1

    async def chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The body of an answer as it comes."""
        import httpx

        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx.TransportError as e:
            raise _core.transport_error(self.settings, e) from e
        finally:
            await response.aclose()


async def _small_body(response: httpx.Response, stream: bool) -> bytes:
    """The body of a failed request, as far as an error can be that long."""
    if not stream:
        return response.content
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _core.ERROR_BODY_LIMIT:
                break
    finally:
        await response.aclose()
    return body
