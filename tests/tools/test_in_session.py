"""Hosted tools under a real session: what the client sees, and what the engine is given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.json_format import ParseDict

from turnwire.server.engine.stepped import StepEngine
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.session.chunks import CallDelta, CallEnd, CallStart
from turnwire.server.testing import make_services
from turnwire.server.tools.config import McpConfig, ToolsConfig
from turnwire.server.tools.room import HostedRoom
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import Item
from turnwire.v1.server_event_pb2 import ServerEvent

from .conftest import BOUND, Hosts


class Client:
    """A client of a session in this process."""

    def __init__(self, room: HostedRoom) -> None:
        self.engine = StepEngine()
        self._runner = SessionRunner(make_services((self.engine,), tools=room), "anna", "test")
        self.seen: list[ServerEvent] = []

    def create(self, **body: Any) -> None:
        create = {"model": "stepped", "input": {"text": "go"}, **body}
        request = ParseDict({"create": create}, ConnectRequest())
        self._runner.receive(request, request.ByteSize())

    async def until(self, kind: str) -> ServerEvent:
        """Reads events up to one of a kind."""
        async with asyncio.timeout(BOUND):
            while True:
                batch = await self._runner.next_batch()
                assert batch is not None
                self.seen += batch.events
                for event in batch.events:
                    if event.WhichOneof("event") == kind:
                        return event

    def items(self) -> list[Item]:
        return [e.output_item_done.item for e in self.seen if e.WhichOneof("event") == "output_item_done"]

    def call(self, name: str, **arguments: Any) -> None:
        self.engine.emit(-1, [CallStart(name), CallDelta(json.dumps(arguments)), CallEnd()])
        self.engine.finish(-1)

    def close(self) -> None:
        self._runner.abandon()


@asynccontextmanager
async def connected(room: HostedRoom) -> AsyncGenerator[Client]:
    client = Client(room)
    try:
        yield client
    finally:
        client.close()


def server(label: str, **fields: Any) -> dict[str, Any]:
    return {"tools": {"tools": [{"mcp": {"server_label": label, **fields}}]}}


async def test_a_whole_turn_with_a_real_server(hosts: Hosts) -> None:
    async with connected(hosts.room(docs=hosts.stdio())) as client:
        client.create(**server("docs", require_approval='"never"', allowed_tools='["add"]'))
        (first,) = await client.engine.started(1)
        functions = first.prompt.tools.parsed().tools
        assert [tool.function.name for tool in functions] == ["docs__add"]
        assert json.loads(functions[0].function.parameters)["required"] == ["a", "b"]
        client.call("docs__add", a=20, b=22)
        await client.engine.started(2)
        client.engine.finish(-1)
        done = await client.until("done")
        assert done.done.passes == 2
        listing, call = client.items()
        assert json.loads(listing.mcp_list_tools.tools[0])["name"] == "add"
        assert (call.mcp_call.server_label, call.mcp_call.name, call.mcp_call.output) == ("docs", "add", "42")


async def test_the_engine_sees_no_secret(hosts: Hosts) -> None:
    url = await hosts.http()
    async with connected(hosts.room(url)) as client:
        client.create(**server("docs", server_url=url, authorization="s3cret", headers={"x": "s3cret"}), echo=True)
        (first,) = await client.engine.started(1)
        assert len(first.prompt.tools.parsed().tools) > 5
        assert b"s3cret" not in first.prompt.tools.data
        client.engine.finish(-1)
        await client.until("done")
        assert b"s3cret" not in b"".join(event.SerializeToString() for event in client.seen)


async def test_a_server_that_cannot_be_reached_is_no_end(hosts: Hosts) -> None:
    async with connected(hosts.room(docs=hosts.rude("liar"))) as client:
        client.create(**server("docs"))
        (first,) = await client.engine.started(1)
        assert not first.prompt.tools.parsed().tools
        client.engine.finish(-1)
        await client.until("done")
        assert "does not follow the protocol" in client.items()[0].mcp_list_tools.error


async def test_a_url_that_is_not_allowed_is_a_refused_create() -> None:
    room = HostedRoom(ToolsConfig(McpConfig(allowed_urls=("https://example.com/",))))
    async with connected(room) as client:
        client.create(**server("docs", server_url="http://169.254.169.254/"))
        error = (await client.until("rejected")).rejected.error
        assert (error.code, error.param) == ("unsupported_parameter", "tools[0].server_url")


async def test_a_client_that_leaves_stops_its_tool(hosts: Hosts) -> None:
    async with connected(hosts.room(docs=hosts.stdio())) as client:
        client.create(**server("docs", require_approval='"never"'))
        await client.engine.started(1)
        client.call("docs__hang")
        await hosts.witness.heard("hanging")
    await hosts.witness.heard("cancelled")
