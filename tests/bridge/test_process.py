"""The real command in a real process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import grpc
import pytest
import trustme
from tests.bridge.scene import Server

from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.server.keys import KeyRing

BOUND = 30.0
KEY = "0123456789abcdef"
Start = Callable[..., Awaitable[tuple[Process, str]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts bridges, and waits until they are ready; whatever still runs at the end is killed."""
    processes: list[Process] = []

    async def run(*arguments: str, **variables: str) -> tuple[Process, str]:
        command = (sys.executable, "-m", "turnwire.client.cli", "bridge", "--listen", "127.0.0.1:0", *arguments)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env={**kept, **variables})
        processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(BOUND):
            line = (await process.stdout.readline()).decode().rstrip()
        start, _, url = line.partition(" on ")
        assert start == "bridge listening", (line, process.returncode)
        return process, url

    yield run
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def models(url: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/models") as response:
        return response.status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_bridge_says_where_it_listens_and_ends_well_when_told(
    server: Server, start: Start, number: signal.Signals
) -> None:
    process, url = await start("--to", f"grpc://127.0.0.1:{server.grpc_port}")
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{url}/v1/responses") as socket:
        await socket.send_str(json.dumps({"type": "response.create", "model": "stepped", "input": "hi"}))
        response_id = await server.begun()
        process.send_signal(number)
        server.finish(response_id, "bye")
        async with asyncio.timeout(BOUND):
            texts = [message.data async for message in socket]
        assert json.loads(texts[-1])["type"] == "response.completed"
        assert socket.close_code == 1012
    async with asyncio.timeout(BOUND):
        stdout, stderr = await process.communicate()
    assert (process.returncode, stdout) == (0, b"")
    assert b"Traceback" not in stderr


async def test_a_second_signal_ends_at_once(server: Server, start: Start) -> None:
    process, url = await start("--to", f"grpc://127.0.0.1:{server.grpc_port}", "--drain-grace", "300")
    async with aiohttp.ClientSession() as http:
        body = {"model": "stepped", "input": "hi", "stream": True}
        async with http.post(f"{url}/v1/responses", json=body) as response:
            response_id = await server.begun()
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            async with asyncio.timeout(BOUND):
                while b"draining" not in await process.stderr.readline():
                    pass
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(BOUND):
                await process.wait()
            assert response.status == 200
    assert process.returncode == 0
    await server.aborted(response_id)


async def test_a_port_in_use_is_a_failure_at_run_time(server: Server) -> None:
    taken = f"127.0.0.1:{server.http_port}"
    command = (sys.executable, "-m", "turnwire.client.cli", "bridge", "--listen", taken)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(BOUND):
        stdout, stderr = await process.communicate()
    assert (process.returncode, stdout) == (1, b"")
    assert stderr.decode().splitlines()[-1].startswith(f"Error: cannot listen at {taken}: another server is using it")


async def test_a_server_is_reached_by_tls_with_a_key_of_the_bridge(
    server: Server, start: Start, tmp_path: Path
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(authority.cert_pem.bytes())
    pair = (certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())
    door = GrpcServer(server.services, KeyRing.parse(f"alice:{KEY}"))
    port = door.listen("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await door.start()
    try:
        to = ("--to", f"grpcs://localhost:{port}", "--fallback", "off")
        process, url = await start(*to, "--ca-file", str(authorities), "--api-key-env", "MY_KEY", MY_KEY=KEY)
        assert await models(url) == 200
        _, url = await start(*to, "--ca-file", str(authorities))
        assert await models(url) == 401
        _, url = await start(*to)
        assert await models(url) == 503
        process.terminate()
        async with asyncio.timeout(BOUND):
            _, stderr = await process.communicate()
        assert KEY.encode() not in stderr
    finally:
        await door.stop(0)
