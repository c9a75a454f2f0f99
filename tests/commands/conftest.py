"""What the commands' tests share: commands that talk to a server in memory."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result

from turnwire.client import Connect, connect
from turnwire.client.commands.target import Target
from turnwire.client.testing import FakeServer, MemoryTransport

Invoke = Callable[..., Result]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """A server in memory that every command reaches instead of a real one."""
    server = FakeServer()

    def memory(target: Target) -> Connect:
        return connect(target.address, transport=server.transport)

    def raw(target: Target) -> MemoryTransport:
        return server.transport()

    monkeypatch.setattr(Target, "connect", memory)
    monkeypatch.setattr(Target, "transport", raw)
    return server


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command as a shell would, without the variables of whoever runs the tests."""
    for name in ("TURNWIRE_ADDRESS", "TURNWIRE_API_KEY", "TURNWIRE_CA_FILE", "TURNWIRE_MODEL"):
        monkeypatch.delenv(name, raising=False)

    def run(command: click.Command, *arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(command, arguments, input=stdin)

    return run
