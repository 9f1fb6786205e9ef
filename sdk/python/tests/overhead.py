"""Measures what this package adds to an exec over plain HTTP, and what many
sandboxes cost that one process drives.

    python tests/overhead.py                    # without a server
    PANDASTACK_API=... PANDASTACK_API_KEY=... python tests/overhead.py 200
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from typing import Callable, List

import httpx

import pandastack

BODY = b'{"stdout":"hello\\n","stderr":"","exit_code":0,"duration_ms":1.5}'


def on_the_processor() -> float:
    """Seconds of processor time that exec takes more than httpx does for the same call."""
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, content=BODY, headers={"Content-Type": "application/json"})
    )
    client = pandastack.PandaStack(api_url="http://server", api_key="pds_x", transport=transport)
    sandbox = client.sandboxes._handle("x")
    raw = httpx.Client(transport=transport, trust_env=False)

    def ours() -> None:
        assert sandbox.exec("echo hello").exit_code == 0

    def theirs() -> None:
        answer = raw.post("http://server/v1/sandboxes/x/exec", json={"cmd": "echo hello"})
        assert answer.json()["exit_code"] == 0

    def time_of(call: Callable[[], None], n: int) -> float:
        start = time.process_time()
        for _ in range(n):
            call()
        return (time.process_time() - start) / n

    time_of(ours, 50), time_of(theirs, 50)
    # Whatever else runs on the machine makes both slower; the best of some counts.
    return min(time_of(ours, 100) for _ in range(5)) - min(time_of(theirs, 100) for _ in range(5))


def over_the_wire(n: int = 200) -> None:
    """Prints how long exec takes with and without this package, against a real server."""
    with pandastack.Sandbox.create() as sandbox:
        settings = sandbox._transport.settings
        url = f"{settings.base_url}/v1/sandboxes/{sandbox.id}/exec"
        with httpx.Client(headers={"Authorization": f"Bearer {settings.key}"}, trust_env=False) as raw:
            ours: List[float] = []
            theirs: List[float] = []
            for _ in range(n):  # in turns, so that both meet the same load
                start = time.perf_counter()
                raw.post(url, json={"cmd": "true"}).raise_for_status().json()
                middle = time.perf_counter()
                sandbox.exec("true")
                ours.append(time.perf_counter() - middle)
                theirs.append(middle - start)
    a, b = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
    print(f"exec: {a:.2f} ms with this package, {b:.2f} ms without, {a - b:+.2f} ms (medians of {n})")


async def many(count: int, commands: int = 5, at_once: int = 16) -> float:
    """Creates sandboxes, runs commands in all of them at the same time, and deletes
    them; gives how long it took. at_once: creates under way, which are the server's work."""
    start = time.monotonic()
    gate = asyncio.Semaphore(at_once)
    async with pandastack.AsyncPandaStack(timeout=300) as client:

        async def create() -> pandastack.AsyncSandbox:
            async with gate:
                return await client.sandboxes.create(ttl_seconds=900, metadata={"test": "many"}, memory_mb=64)

        async def use(sandbox: pandastack.AsyncSandbox, number: int) -> None:
            for i in range(commands):
                result = await sandbox.exec(["echo", f"{number}-{i}"], timeout_seconds=120)
                assert (result.stdout, result.exit_code) == (f"{number}-{i}\n", 0)
            await sandbox.filesystem.write("number", str(number))
            assert await sandbox.filesystem.read("number") == str(number)

        made = await asyncio.gather(*(create() for _ in range(count)), return_exceptions=True)
        sandboxes = [s for s in made if isinstance(s, pandastack.AsyncSandbox)]
        try:
            failed = [s for s in made if isinstance(s, BaseException)]
            if failed:
                raise failed[0]
            await asyncio.gather(*(use(s, i) for i, s in enumerate(sandboxes)))
        finally:
            await asyncio.gather(*(s.kill() for s in sandboxes))
    return time.monotonic() - start


if __name__ == "__main__":
    print(f"exec adds {on_the_processor() * 1e6:.0f} microseconds of processor time")
    if os.environ.get("PANDASTACK_API"):
        over_the_wire()
        wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 20
        print(f"{wanted} sandboxes driven by one process: {asyncio.run(many(wanted)):.1f} s, no errors")
