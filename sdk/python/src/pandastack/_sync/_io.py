"""What waits, for threads. pandastack._async._io has the same names for asyncio."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, TypeVar

from .. import _core
from .._core import CHUNK

if TYPE_CHECKING:
    import httpx

    from .._config import Settings

T = TypeVar("T")

Lock = threading.Lock
Condition = threading.Condition
CANCELLED: tuple[type[BaseException], ...] = ()

sleep = time.sleep


def wait_until(condition: threading.Condition, done: Callable[[], bool], timeout: float | None) -> bool:
    """Waits until done says so. False is the timeout's end."""
    with condition:
        return condition.wait_for(done, timeout)


class Worker:
    """Something that goes on beside its caller."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name="pandastack", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Waits until it has ended, which it does once its connection is cut."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=10)


def call(callback: Callable[[Any], Any], value: Any) -> None:
    """Calls a callback."""
    callback(value)


def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Runs what may block, here."""
    return work(*args)


def pieces(source: Any, once: Any) -> Iterator[bytes]:
    """The bytes of a file object or of an iterable of bytes."""
    once.started = True
    if hasattr(source, "read"):
        while True:
            chunk = source.read(CHUNK)
            if not chunk:
                return
            yield _bytes(chunk)
    else:
        for chunk in source:
            yield _bytes(chunk)


def is_source(value: object) -> bool:
    return hasattr(value, "read") or isinstance(value, Iterable)


def _bytes(chunk: object) -> bytes:
    if isinstance(chunk, str):
        return chunk.encode()
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(chunk)
    raise TypeError(f"a piece of a file is bytes or str, not {type(chunk).__name__}")


def write(target: Any, data: bytes) -> None:
    target.write(data)


def new_http(s: Settings, transport: httpx.BaseTransport | None, http2: bool) -> httpx.Client:
    import httpx

    if transport is None:
        transport = httpx.HTTPTransport(
            verify=_core.tls_context(s),
            http2=http2,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_core.KEPT_CONNECTIONS, keepalive_expiry=90),
            proxy=_core.proxy_of(s),
            socket_options=_core.keepalive_options(),
        )
    return httpx.Client(transport=transport, trust_env=False)


class DefaultClient:
    """The client of whoever names none: one for the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._had: tuple[Any, Any] | None = None

    def get(self, settings: Any, make: Callable[[], T]) -> T:
        with self._lock:
            if self._had is not None and self._had[0] == settings:
                had: T = self._had[1]
                return had
            client = make()
            self._had = (settings, client)
            return client


def shut_down(stream: Any) -> None:
    """Wakes the thread that receives; closing a socket alone does not."""
    import socket

    sock = stream.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def wait_a_second(condition: threading.Condition) -> None:
    """Waits for a change, holding the condition, but no longer than a second."""
    condition.wait(1)
