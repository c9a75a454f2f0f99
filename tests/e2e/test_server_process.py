"""A real server process: what it says, what it counts, how it ends, and what a killed client leaves in it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from turnwire.client import SessionLost, connect

SERVE = ("-m", "turnwire.client.cli", "serve")
BOUND = 20.0
SLOW = """
[speed]
ttft_ms = 1
tokens_per_second = 100

[[turn]]
when = "^short$"
text = "That was short."
speed = { tokens_per_second = 0 }

[[turn]]
text = { tokens = 100000 }
"""
CLIENT = """
import asyncio, sys
from turnwire.client import connect

async def main():
    async with connect(sys.argv[1]) as session:
        streams = [await session.create(model="scripted", input="long", lane=f"l{n}") for n in range(3)]
        print("running", flush=True)
        async for _ in streams[0]:
            pass

asyncio.run(main())
"""


class Server:
    """A server process and what it said when it was ready."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.address = ""
        self.metrics = ""

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(BOUND):
            return (await self.process.stdout.readline()).decode().rstrip()

    async def exit(self) -> tuple[int, str]:
        """Waits for the end; returns the exit code and what was logged."""
        async with asyncio.timeout(BOUND):
            _, words = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, words.decode()

    async def read(self, path: str) -> str:
        host, _, port = self.metrics.rpartition(":")
        async with asyncio.timeout(BOUND):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
            await writer.wait_closed()
        return answer

    async def count(self, name: str) -> float:
        """Reads a metric, summed over its labels."""
        answer = await self.read("/metrics")
        assert answer.startswith("HTTP/1.1 200")
        # A family with labels has no values before its first event.
        assert f"# TYPE {name} " in answer
        return sum(map(float, re.findall(rf"^{name}(?:\{{.*\}})? ([0-9.e+-]+)$", answer, re.MULTILINE)))

    async def until(self, name: str, value: float) -> None:
        async with asyncio.timeout(BOUND):
            # Another process: there is no event to wait for.
            while await self.count(name) != value:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def drains(self) -> None:
        """Waits until the first signal was heard."""
        async with asyncio.timeout(BOUND):
            while not (await self.read("/healthz")).startswith("HTTP/1.1 503"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}


@asynccontextmanager
async def _started(*arguments: str) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    scenario = tmp_path / "slow.toml"
    scenario.write_text(SLOW)
    settings = ("--grpc", "127.0.0.1:0", "--http", "off", "--metrics", "127.0.0.1:0", "--scenario", str(scenario))
    async with _started(*SERVE, *settings) as process:
        running = Server(process)
        grpc, metrics = await running.line(), await running.line()
        for line, form in ((grpc, "grpc listening on {}"), (metrics, "metrics listening on http://{}/metrics")):
            assert re.fullmatch(form.format(r"127\.0\.0\.1:[1-9]\d*"), line)
        running.address = grpc.removeprefix("grpc listening on ")
        running.metrics = metrics.removeprefix("metrics listening on http://").removesuffix("/metrics")
        yield running


async def test_the_counters_move_with_a_response(server: Server) -> None:
    assert await server.count("turnwire_sessions_opened_total") == 0
    async with connect(server.address) as session:
        stream = await session.create(model="scripted", input="short")
        await stream.get_final_response()
        assert stream.output_text == "That was short."
        assert await server.count("turnwire_sessions") == 1
    await server.until("turnwire_sessions", 0)
    assert await server.count("turnwire_responses_total") == 1
    assert await server.count("turnwire_tokens_total") > 0
    assert await server.count("turnwire_sent_bytes_total") > 0
    assert await server.count("turnwire_responses_in_flight") == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_what_runs_end_and_exits_with_0(server: Server, number: signal.Signals) -> None:
    async with connect(server.address) as session:
        stream = await session.create(model="scripted", input="long")
        await anext(aiter(stream.text_deltas()))
        server.process.send_signal(number)
        await server.drains()
        assert await server.count("turnwire_responses_in_flight") == 1
        await stream.cancel()
        code, words = await server.exit()
    assert code == 0
    assert "draining" in words
    assert "Traceback" not in words


async def test_a_second_signal_stops_at_once(server: Server) -> None:
    async with connect(server.address) as session:
        stream = await session.create(model="scripted", input="long")
        server.process.terminate()
        await server.drains()
        assert await server.count("turnwire_responses_in_flight") == 1
        server.process.terminate()
        code, words = await server.exit()
        with pytest.raises(SessionLost):
            await stream.get_final_response()
    assert code == 0
    assert "Traceback" not in words


async def test_a_signal_right_after_the_ready_line_is_heard(server: Server) -> None:
    server.process.terminate()
    code, words = await server.exit()
    assert code == 0
    assert "Traceback" not in words


async def test_a_port_in_use_is_said_in_a_sentence(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"127.0.0.1:{taken.getsockname()[1]}"
        async with _started(*SERVE, "--grpc", port, "--http", "off", "--metrics", "off") as second:
            code, words = await Server(second).exit()
        assert code == 1
        sentence = f"Error: cannot listen at {port}: another server is using it. Choose another address with --grpc"
        assert words.splitlines()[-1] == sentence
    async with _started(*SERVE, "--grpc", "127.0.0.1:0", "--metrics", server.metrics) as third:
        code, words = await Server(third).exit()
    sentence = f"cannot listen at {server.metrics}: Address already in use. Choose another address with --metrics"
    assert (code, words.splitlines()[-1]) == (1, f"Error: {sentence}")


async def test_a_client_that_is_killed_frees_the_engine(server: Server) -> None:
    async with _started("-c", CLIENT, server.address) as client:
        assert client.stdout is not None
        async with asyncio.timeout(BOUND):
            assert await client.stdout.readline() == b"running\n"
        await server.until("turnwire_responses_in_flight", 3)
        client.kill()
        await server.until("turnwire_responses_in_flight", 0)
    await server.until("turnwire_sessions", 0)
    assert await server.count("turnwire_state_bytes") == 0
    # And the server serves on.
    async with connect(server.address) as session:
        await (await session.create(model="scripted", input="short")).get_final_response()
