"""What the commands' tests share: commands that talk to a server in memory."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result

from turnwire.client import Connect, connect
from turnwire.client._channel import ChannelOptions
from turnwire.client.commands import connection, events
from turnwire.client.testing import FakeServer, MemoryTransport

Invoke = Callable[..., Result]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """A server in memory that every command reaches instead of a real one."""
    server = FakeServer()

    def memory(target: connection.Target) -> Connect:
        return connect(target.address, transport=server.transport)

    def raw(address: str, api_key: str | None, options: ChannelOptions) -> MemoryTransport:
        return server.transport()

    monkeypatch.setattr(connection.Target, "connect", memory)
    monkeypatch.setattr(events, "GrpcTransport", raw)
    return server


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command as a shell would, without the variables of whoever runs the tests."""
    for name in ("TURNWIRE_ADDRESS", "TURNWIRE_API_KEY", "TURNWIRE_MODEL"):
        monkeypatch.delenv(name, raising=False)

    def run(command: click.Command, *arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(command, arguments, input=stdin)

    return run
