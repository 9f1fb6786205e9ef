"""The async surface against real sandboxes."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path
from typing import Any, AsyncIterator, Awaitable, Callable, List

import pytest

from conftest import Server
from pandastack import AsyncPandaStack, AsyncSandbox, NotFoundError


def run(server: Server, work: Callable[[AsyncPandaStack, AsyncSandbox], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncPandaStack(api_url=server.url, api_key=server.key) as client:
            async with await client.sandboxes.create() as sandbox:
                await asyncio.wait_for(work(client, sandbox), 120)

    asyncio.run(main())


def test_commands(server: Server) -> None:
    async def work(client: AsyncPandaStack, sandbox: AsyncSandbox) -> None:
        assert (await sandbox.exec("echo a", timeout_seconds=30)).stdout == "a\n"
        heard: List[str] = []

        async def hear(text: str) -> None:
            await asyncio.sleep(0)
            heard.append(text)

        result = await sandbox.exec("echo a; echo b >&2", on_stdout=hear, on_stderr=heard.append)
        assert sorted(heard) == ["a\n", "b\n"] and result.stderr == "b\n"
        stream = await sandbox.exec_stream("echo 1; sleep .1; echo 2")
        assert "".join([o.text async for o in stream]) == "1\n2\n"
        assert stream.result is not None and stream.result.exit_code == 0

    run(server, work)


def test_background(server: Server) -> None:
    async def work(client: AsyncPandaStack, sandbox: AsyncSandbox) -> None:
        process = await sandbox.run_background("cat; echo end")
        await process.send_stdin("a\n")
        async for output in process:
            assert output.text == "a\n"
            break
        await process.close_stdin()
        assert (await process.wait(timeout=30)).stdout == "a\nend\n"
        async with await sandbox.run_background("exec sleep 4711") as process:
            with pytest.raises(TimeoutError):
                await process.wait(timeout=0.2)
        assert process.result is not None and process.result.signal == "SIGKILL"
        process = await sandbox.run_background("sleep 1; touch went-on")
        await process.close()
        while not await sandbox.filesystem.exists("went-on"):
            await asyncio.sleep(0.1)

    run(server, work)


def test_cancelling(server: Server) -> None:
    async def work(client: AsyncPandaStack, sandbox: AsyncSandbox) -> None:
        async def slow() -> None:
            async with await sandbox.exec_stream("echo a; exec sleep 4712") as stream:
                await stream.wait()

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slow(), 1)
        while (await sandbox.exec(["pgrep", "-f", "sleep 4712"])).exit_code == 0:
            await asyncio.sleep(0.1)

    run(server, work)


def test_files(server: Server, tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for i in range(10):
            yield bytes([i]) * 100_000

    async def work(client: AsyncPandaStack, sandbox: AsyncSandbox) -> None:
        fs = sandbox.filesystem
        assert (await fs.write("it", pieces())).size == 1_000_000
        assert sum([len(c) async for c in await fs.read("it", format="stream")]) == 1_000_000
        assert await fs.download("it", tmp_path / "it") == 1_000_000
        assert (await fs.upload(tmp_path / "it", "back")).size == 1_000_000
        assert (await fs.upload(io.BytesIO(b"x"), "x")).size == 1
        assert await fs.read("x") == "x" and await fs.read("x", format="bytes") == b"x"
        assert [e.name for e in await fs.list()][-2:] == ["it", "x"]
        with pytest.raises(NotFoundError):
            await fs.stat("nothing")

    run(server, work)


def test_what_it_says(server: Server) -> None:
    async def work(client: AsyncPandaStack, sandbox: AsyncSandbox) -> None:
        await sandbox.exec("echo line")
        assert (await sandbox.logs()).endswith("line\n")
        async with await sandbox.logs(follow=True, tail=1) as lines:
            async for line in lines:
                assert line.line == "line"
                break
        assert [e.type for e in await sandbox.events()] == ["sandbox.running"]
        assert (await sandbox.pause()).status == "paused" and (await sandbox.resume()).status == "running"
        assert sandbox.id in [s.id for s in await client.sandboxes.list()]

    run(server, work)


def test_inside(server: Server, tmp_path: Path) -> None:
    async def work(client: AsyncPandaStack, sandbox: AsyncSandbox) -> None:
        heard: List[str] = []

        async def hear(text: str) -> None:
            await asyncio.sleep(0)
            heard.append(text)

        run = await sandbox.run_code("print('a')\n6 * 7", on_stdout=hear)
        assert (run.text, run.stdout, heard) == ("42", "a\n", ["a\n"])
        async with await sandbox.run_code_stream("1") as stream:
            assert [e.type async for e in stream][-1] == "end"
        context = await sandbox.contexts.create("bash")
        assert (await sandbox.run_code("echo $((1 + 1))", context=context)).stdout == "2\n"

        async with await sandbox.pty("read x; echo got $x") as terminal:
            await terminal.send("it\n")
            assert b"got it" in b"".join([data async for data in terminal]) and terminal.exit_code == 0
            assert await terminal.wait() == 0

        pid = await sandbox.processes.start("cat", keep_stdin=True)
        await sandbox.processes.send_stdin(pid, pieces(), close=True)
        async with await sandbox.processes.attach(pid) as output:
            assert (await output.wait()).stdout == "ab"

        fs = sandbox.filesystem
        async with await fs.open("lines", "w") as file:
            await file.write("1\n2\n")
        async with await fs.open("lines") as file:
            assert [line async for line in file] == ["1\n", "2\n"]
        async with await fs.watch() as events:
            await fs.append("lines", "3\n")
            async for event in events:
                if event.type == "write":
                    break
        assert await fs.download_archive(".", tmp_path / "home.tar.gz") > 0
        assert [m.text for m in (await fs.search("2", "lines")).matches] == ["2"]

    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    run(server, work)


def test_default_client_of_each_loop(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PANDASTACK_API", server.url)
    monkeypatch.setenv("PANDASTACK_API_KEY", server.key)

    async def main() -> Any:
        async with await AsyncSandbox.create() as sandbox:
            assert (await sandbox.exec("echo a")).stdout == "a\n"
            assert (await AsyncSandbox.get(sandbox.id)).id == sandbox.id
            assert sandbox.id in [s.id for s in await AsyncSandbox.list()]

    asyncio.run(main())
    asyncio.run(main())


def test_many_sandboxes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from overhead import many

    monkeypatch.setenv("PANDASTACK_API", server.url)
    monkeypatch.setenv("PANDASTACK_API_KEY", server.key)
    number = int(os.environ.get("MANY", "20"))
    print(f"{number} sandboxes took {asyncio.run(many(number)):.1f} s")


def test_many_at_once(server: Server) -> None:
    async def work(client: AsyncPandaStack, sandbox: AsyncSandbox) -> None:
        more = await asyncio.gather(*(client.sandboxes.create() for _ in range(3)))
        try:
            all_of_them = [sandbox, *more]
            calls = [all_of_them[i % 4].exec(["echo", str(i)]) for i in range(200)]
            results = await asyncio.gather(*calls)
            assert [r.stdout for r in results] == [f"{i}\n" for i in range(200)]
        finally:
            await asyncio.gather(*(s.kill() for s in more))

    run(server, work)
