"""The real command in a real process: what it prints, answers and returns."""

from __future__ import annotations

import asyncio
import io
import re
import signal
import socket
import ssl
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from unittest.mock import ANY

import aiohttp
import pytest
import pytest_asyncio
import trustme

Start = Callable[..., Awaitable[Process]]


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Starts `turnwire` with arguments; whatever still runs at the end is killed."""
    processes: list[Process] = []

    async def run(*arguments: str) -> Process:
        command = (sys.executable, "-m", "turnwire.client.cli", *arguments)
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        processes.append(process)
        return process

    yield run
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().rstrip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_says_where_it_listens_and_ends_well_when_told(start: Start, number: signal.Signals) -> None:
    async with asyncio.timeout(30):
        addresses = [word for flag in ("--grpc", "--http", "--metrics") for word in (flag, "127.0.0.1:0")]
        process = await start("serve", *addresses)

        assert re.fullmatch(r"grpc listening on 127\.0\.0\.1:[1-9]\d*", await line(process))
        http = re.fullmatch(r"http listening on http://127\.0\.0\.1:([1-9]\d*)", await line(process))
        assert http is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", int(http[1]))
        writer.write(b"GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b'"code":"unknown_url"' in await reader.read()
        writer.close()
        await writer.wait_closed()
        match = re.fullmatch(r"metrics listening on http://127\.0\.0\.1:([1-9]\d*)/metrics", await line(process))
        assert match is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", int(match[1]))
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"\nturnwire_build_info{" in await reader.read()
        writer.close()
        await writer.wait_closed()
        process.send_signal(number)
        stdout, stderr = await process.communicate()

    assert (process.returncode, stdout) == (0, b"")
    assert b"Traceback" not in stderr


@pytest.mark.parametrize("flag", ["--grpc", "--http", "--metrics"])
async def test_a_port_in_use_is_a_failure_at_run_time(start: Start, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        async with asyncio.timeout(30):
            others = {"--grpc": "127.0.0.1:0", "--http": "off", "--metrics": "off"} | {flag: taken}
            process = await start("serve", *[word for pair in others.items() for word in pair])
            stdout, stderr = await process.communicate()

    assert (process.returncode, stdout) == (1, b"")
    assert stderr.decode().splitlines()[-1].startswith("Error: ")
    assert flag in stderr.decode()
    assert b"Traceback" not in stderr


async def test_a_wrong_flag_is_wrong_usage(start: Start) -> None:
    async with asyncio.timeout(30):
        process = await start("serve", "--http", "8080")
        _, stderr = await process.communicate()

    assert process.returncode == 2
    assert stderr.decode().startswith("Error: --http: expected HOST:PORT, unix:PATH or off")


async def test_a_server_can_do_without_grpc(start: Start) -> None:
    async with asyncio.timeout(30):
        process = await start("serve", "--grpc", "off", "--http", "127.0.0.1:0", "--metrics", "off")

        assert (await line(process)).startswith("http listening on http://127.0.0.1:")
        process.terminate()
        stdout, stderr = await process.communicate()

    assert (process.returncode, stdout) == (0, b"")
    assert b"Traceback" not in stderr


async def test_the_http_door_has_the_same_certificates(start: Start, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.cert_chain_pems[0].write_to_path(cert)
    certificate.private_key_pem.write_to_path(key)
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    flags = ("--tls-cert", str(cert), "--tls-key", str(key), "--metrics", "off")
    async with asyncio.timeout(30):
        process = await start("serve", "--grpc", "off", "--http", "127.0.0.1:0", *flags)

        match = re.fullmatch(r"http listening on https://127\.0\.0\.1:([1-9]\d*)", await line(process))
        assert match is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", int(match[1]), ssl=context)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()
        process.terminate()
        await process.communicate()

    assert process.returncode == 0


async def test_a_streaming_client_hears_the_end_of_a_draining_server(start: Start, tmp_path: Path) -> None:
    scenario = tmp_path / "slow.toml"
    scenario.write_text("[speed]\ntokens_per_second = 20\n[[turn]]\ntext = { tokens = 20 }\n")
    flags = ("--scenario", str(scenario), "--metrics", "off")
    async with asyncio.timeout(30):
        process = await start("serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", *flags)
        await line(process)
        port = int((await line(process)).rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"model":"scripted","input":"hi","stream":true}'
        head = (
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        writer.write(head % len(body) + body)
        await reader.readuntil(b"event: response.created")
        process.terminate()
        rest = await reader.readuntil(b"data: [DONE]\n\n")
        writer.close()
        await process.communicate()

    assert b"event: response.completed" in rest
    assert process.returncode == 0


async def test_what_is_too_large_for_a_websocket_is_taken_over_http(start: Start) -> None:
    # Codex goes on over HTTP with the very message that closed its socket.
    message = b'{"type":"response.create","model":"scripted","input":"hi","padding":"%s"}' % (b"x" * (17 * 1024 * 1024))
    async with asyncio.timeout(50):
        process = await start("serve", "--grpc", "off", "--http", "127.0.0.1:0", "--metrics", "off")
        url = (await line(process)).rsplit(" ", 1)[1] + "/v1/responses"
        async with aiohttp.ClientSession() as client:
            async with client.ws_connect(url) as websocket:
                await websocket.send_str(message.decode())
                assert await websocket.receive() == (aiohttp.WSMsgType.CLOSE, 1009, ANY)
            async with client.post(
                url, data=io.BytesIO(message), headers={"Content-Type": "application/json"}
            ) as response:
                answered = await response.json()
                assert (response.status, answered["status"]) == (200, "completed")
