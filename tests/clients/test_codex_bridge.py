"""The Codex CLI repairs the sample project through a bridge: over gRPC, and over WebSocket where that is blocked."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.bridge.app import Bridge
from turnwire.bridge.config import BridgeConfig
from turnwire.client.demo.sample import copy_project, plain_pytest, run_tests
from turnwire.server.address import Address

from .harness.codex import Codex
from .harness.node import installed
from .harness.relay import Relay
from .harness.server import Server

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

_HERE = Address("127.0.0.1", 0)


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    installed()


async def _repairs(bridge: Bridge, folder: Path, *, websockets: bool) -> None:
    """Lets Codex repair a copy of the sample project through a bridge, and checks that it did."""
    project = copy_project(folder / "project")
    url = f"http://{await bridge.listen(_HERE)}/v1"
    try:
        run = await Codex(folder / "home", websockets=websockets).exec(url, project)
    finally:
        await bridge.stop(0)
    assert run.exit_code == 0, run.stderr
    with plain_pytest():
        after = await run_tests(project)
    assert after.passed, after.summary


@pytest.mark.parametrize("websockets", [False, True], ids=["http", "websocket"])
async def test_codex_repairs_the_sample_project_over_grpc(
    codex_server: Server, tmp_path: Path, websockets: bool
) -> None:
    relay = Relay(int(codex_server.grpc.rpartition(":")[2]))
    async with relay.listening():
        bridge = Bridge(BridgeConfig(server=f"grpc://127.0.0.1:{relay.port}"))
        await _repairs(bridge, tmp_path, websockets=websockets)
    assert relay.sent
    print(f"\n{relay.sent} bytes up and {relay.received} down over {relay.connections} gRPC connections")


@pytest.mark.parametrize("websockets", [False, True], ids=["http", "websocket"])
async def test_codex_repairs_the_sample_project_where_grpc_does_not_get_through(
    codex_server: Server, tmp_path: Path, websockets: bool
) -> None:
    # The discard port, where nobody listens.
    config = BridgeConfig(server="grpc://127.0.0.1:9", fallback=codex_server.websocket_url.removesuffix("/v1"))
    bridge = Bridge(config)
    await _repairs(bridge, tmp_path, websockets=websockets)
    assert bridge.routes.current.address.startswith("ws://")
