"""Answers that come bit by bit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Generic, TypeVar

from .. import _core
from .._output import Collector, Output
from .._sse import EventParser

if TYPE_CHECKING:
    import httpx

    from .._generated.models import ExecResult
    from ..errors import PandastackError
    from .transport import AsyncTransport

T = TypeVar("T")
S = TypeVar("S", bound="AsyncStream[Any]")


class AsyncStream(Generic[T]):
    """What the server sends, one by one, until it ends or is closed.

    Iterate over it. Leave a `with` block or call close() to end it early.
    """

    def __init__(self, transport: AsyncTransport, response: httpx.Response, read: Callable[[Any], T | None]) -> None:
        self._transport = transport
        self._response = response
        self._read = read
        self._items = self._events()

    def __aiter__(self: S) -> S:
        return self

    async def __anext__(self) -> T:
        return await self._items.__anext__()

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the stream."""
        await self._response.aclose()

    async def _events(self) -> AsyncIterator[T]:
        async for name, event in self._messages():
            try:
                item = self._take(name, event)
            except (ValueError, TypeError, KeyError, AttributeError) as e:
                raise _core.unknown_answer(self._transport.settings) from e
            if item is not None:
                yield item
        self._finish()

    def _take(self, name: str, event: Any) -> T | None:
        """Reads one event; None is one that is not for the caller."""
        if name == "error":
            raise _core.event_error(event)
        return self._read(event)

    def _finish(self) -> None:
        """Called when the server has ended the stream."""

    async def _messages(self) -> AsyncIterator[tuple[str, Any]]:
        """The events of the answer, their data read as JSON."""
        settings = self._transport.settings
        if not _core.is_kind(self._response, "text/event-stream"):
            await self._response.aclose()
            raise _core.not_a_server(settings, self._response)
        parser = EventParser()
        async for chunk in self._transport.chunks(self._response):
            try:
                events = [(name, json.loads(data)) for name, data in parser.feed(chunk)]
            except ValueError as e:
                raise _core.unknown_answer(settings) from e
            for name, event in events:
                yield name, event


class AsyncByteStream(AsyncStream[bytes]):
    """The bytes of an answer, as they come."""

    def __init__(self, transport: AsyncTransport, response: httpx.Response) -> None:
        super().__init__(transport, response, bytes)

    def _events(self) -> AsyncIterator[bytes]:
        return self._transport.chunks(self._response)


class AsyncExecStream(AsyncStream[Output]):
    """The output of a command as it is written.

    Iterating gives Output. After the end, result says how the command ended;
    it has the output too, the last 16 MiB of each stream. Closing it early
    kills the command.
    """

    def __init__(self, transport: AsyncTransport, response: httpx.Response) -> None:
        self._collector = Collector()
        self._failure: PandastackError | None = None
        super().__init__(transport, response, self._collector.take)

    @property
    def pid(self) -> int | None:
        """The process in the sandbox, once it has started."""
        return self._collector.pid

    @property
    def result(self) -> ExecResult | None:
        """How the command ended; None until then."""
        return self._collector.result

    def _take(self, name: str, event: Any) -> Output | None:
        if name == "error":
            self._failure = _core.event_error(event)
            return None
        return self._collector.take(event)

    def _finish(self) -> None:
        if self.result is None:
            raise self._failure or _core.cut_short()

    async def wait(self) -> ExecResult:
        """Reads to the end and gives the result."""
        async for _ in self:
            pass
        if self.result is None:
            raise _core.cut_short()
        return self.result
