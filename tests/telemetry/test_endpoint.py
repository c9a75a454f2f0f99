from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from turnwire.server.address import Address
from turnwire.server.session.gauges import Gauges
from turnwire.server.telemetry import endpoint as module
from turnwire.server.telemetry.endpoint import MetricsEndpoint
from turnwire.server.telemetry.metrics import Metrics

Ask = Callable[..., Coroutine[None, None, tuple[str, dict[str, str], str]]]


class Health:
    good = True


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


@pytest_asyncio.fixture
async def address(metrics: Metrics, health: Health) -> AsyncIterator[Address]:
    """A running endpoint; at the end nothing of it may be left."""
    endpoint = MetricsEndpoint(metrics.registry, lambda: health.good)
    yield await endpoint.start(Address("127.0.0.1"))
    async with asyncio.timeout(5):
        await endpoint.stop()
    assert len(asyncio.all_tasks()) == 1


async def exchange(address: Address, request: bytes) -> bytes:
    async with asyncio.timeout(5):
        if address.path:
            reader, writer = await asyncio.open_unix_connection(address.path)
        else:
            reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer


async def ask(address: Address, path: str, method: str = "GET", accept: str = "") -> tuple[str, dict[str, str], str]:
    """Returns the status line, the headers and the body of an answer."""
    request = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"
    head, _, body = (await exchange(address, request.encode())).decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    return status, dict(line.split(": ", 1) for line in lines), body


async def test_metrics_are_answered_in_the_format_asked_for(address: Address, metrics: Metrics) -> None:
    metrics.credit_stall()

    status, headers, body = await ask(address, "/metrics?x=1")
    _, open_headers, open_body = await ask(address, "/metrics", accept="application/openmetrics-text; version=1.0.0")

    assert status == "HTTP/1.1 200 OK"
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert int(headers["Content-Length"]) == len(body.encode())
    assert "\nturnwire_credit_stalls_total 1.0\n" in body
    assert open_headers["Content-Type"].startswith("application/openmetrics-text")
    assert open_body.count("# EOF") == 1
    assert open_body.endswith("# EOF\n")
    assert open_body.count("# TYPE ") == len(list(metrics.registry.collect()))


async def test_health_follows_the_server(address: Address, health: Health) -> None:
    assert await ask(address, "/healthz") == ("HTTP/1.1 200 OK", (await ask(address, "/healthz"))[1], "ok\n")
    health.good = False

    status, _, body = await ask(address, "/healthz")

    assert (status, body) == ("HTTP/1.1 503 Service Unavailable", "draining\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/metrics", 405), ("GET", "/met rics", 400), ("HEAD", "/healthz", 200)],
)
async def test_other_requests_get_their_status(address: Address, method: str, path: str, status: int) -> None:
    line, _, body = await ask(address, path, method)

    assert line.split(" ")[1] == str(status)
    assert (body == "") == (method == "HEAD")


async def test_headers_without_end_are_cut_off(address: Address) -> None:
    assert await exchange(address, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000) == b""


async def test_a_client_that_says_nothing_is_cut_off(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0.01)

    assert await exchange(address, b"GET ") == b""


async def test_too_many_connections_are_refused_and_the_first_go_on(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_CONNECTIONS", 1)
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /healthz")
        await writer.drain()
        # Whether a refused client sees a reset or the end depends on how far its request got.
        with contextlib.suppress(ConnectionResetError):
            assert await exchange(address, b"GET /healthz HTTP/1.1\r\n\r\n") == b""
        writer.write(b" HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()


async def test_a_failing_source_is_a_server_error_and_not_the_end(address: Address, metrics: Metrics) -> None:
    broken = True

    def source() -> list[Gauges]:
        if broken:
            raise RuntimeError
        return []

    metrics.watch(source)
    assert (await ask(address, "/metrics"))[0] == "HTTP/1.1 500 Internal Server Error"
    broken = False
    assert (await ask(address, "/metrics"))[0] == "HTTP/1.1 200 OK"


async def test_stopping_cuts_off_who_is_connected_and_starts_no_threads(metrics: Metrics) -> None:
    threads = threading.active_count()
    endpoint = MetricsEndpoint(metrics.registry)
    address = await endpoint.start(Address("127.0.0.1"))
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        await ask(address, "/healthz")
        await endpoint.stop()
        await endpoint.stop()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    assert threading.active_count() == threads
    assert len(asyncio.all_tasks()) == 1
    with pytest.raises(ConnectionRefusedError):
        await exchange(address, b"")


async def test_a_unix_socket_works_and_is_removed(metrics: Metrics, tmp_path: Path) -> None:
    endpoint = MetricsEndpoint(metrics.registry)
    place = Address(path=str(tmp_path / "m.sock"))

    assert await endpoint.start(place) == place
    assert (await ask(place, "/healthz"))[2] == "ok\n"
    await endpoint.stop()

    assert not (tmp_path / "m.sock").exists()


async def test_a_port_in_use_is_an_error(metrics: Metrics) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        await MetricsEndpoint(metrics.registry).start(Address("127.0.0.1", other.getsockname()[1]))
