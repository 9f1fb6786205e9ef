"""What waits, for asyncio. pandastack._sync._io has the same names for threads."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, TypeVar

from .. import _core
from .._core import CHUNK

if TYPE_CHECKING:
    import httpx

    from .._config import Settings

T = TypeVar("T")

Lock = asyncio.Lock
Condition = asyncio.Condition
CANCELLED: tuple[type[BaseException], ...] = (asyncio.CancelledError,)

sleep = asyncio.sleep


async def wait_until(condition: asyncio.Condition, done: Callable[[], bool], timeout: float | None) -> bool:
    """Waits, holding the condition, until done says so. False is the timeout's end."""
    try:
        await asyncio.wait_for(_wait(condition, done), timeout)
    except asyncio.TimeoutError:
        return done()
    return True


async def _wait(condition: asyncio.Condition, done: Callable[[], bool]) -> None:
    async with condition:
        await condition.wait_for(done)


class Worker:
    """Something that goes on beside its caller."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await work()

        self._task = asyncio.ensure_future(run())

    async def stop(self) -> None:
        """Ends it and waits until it has ended."""
        if self._task is not asyncio.current_task():
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


async def call(callback: Callable[[Any], Any], value: Any) -> None:
    """Calls a callback, which may be a coroutine function."""
    got = callback(value)
    if inspect.isawaitable(got):
        await got


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Runs what may block where it holds up nobody."""
    return await asyncio.to_thread(work, *args)


async def pieces(source: Any, once: Any) -> AsyncIterator[bytes]:
    """The bytes of a file object, async or sync, or of an iterable of bytes."""
    once.started = True
    if hasattr(source, "read"):
        while True:
            if inspect.iscoroutinefunction(source.read):
                chunk = await source.read(CHUNK)
            else:
                chunk = await in_thread(source.read, CHUNK)
            if not chunk:
                return
            yield _bytes(chunk)
    elif isinstance(source, AsyncIterable):
        async for chunk in source:
            yield _bytes(chunk)
    else:
        for chunk in source:
            yield _bytes(chunk)


def is_source(value: object) -> bool:
    return hasattr(value, "read") or isinstance(value, (Iterable, AsyncIterable))


def _bytes(chunk: object) -> bytes:
    if isinstance(chunk, str):
        return chunk.encode()
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(chunk)
    raise TypeError(f"a piece of a file is bytes or str, not {type(chunk).__name__}")


async def write(target: Any, data: bytes) -> None:
    if inspect.iscoroutinefunction(target.write):
        await target.write(data)
    else:
        await in_thread(target.write, data)


def new_http(s: Settings, transport: httpx.AsyncBaseTransport | None, http2: bool) -> httpx.AsyncClient:
    import httpx

    if transport is None:
        transport = httpx.AsyncHTTPTransport(
            verify=_core.tls_context(s),
            http2=http2,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_core.KEPT_CONNECTIONS, keepalive_expiry=90),
            proxy=_core.proxy_of(s),
            socket_options=_core.keepalive_options(),
        )
    return httpx.AsyncClient(transport=transport, trust_env=False)


class DefaultClient:
    """The client of whoever names none: one for each event loop."""

    def __init__(self) -> None:
        self._clients: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()

    def get(self, settings: Any, make: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        had = self._clients.get(loop)
        if had is not None and had[0] == settings:
            client: T = had[1]
            return client
        client = make()
        self._clients[loop] = (settings, client)
        return client


def shut_down(stream: Any) -> None:
    """Does nothing: a task that receives is cancelled instead."""


async def wait_a_second(condition: asyncio.Condition) -> None:
    """Waits for a change, holding the condition, but no longer than a second."""
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(condition.wait(), 1)
