"""A session at its barest: requests out, batches in, nothing in between that could even things out."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from google.protobuf.json_format import MessageToDict
from grpc import aio

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse, GetResponseRequest
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent

BOUND = 30.0
_TIMES = {"created_at", "completed_at", "times", "sequence_number", "cached_tokens"}
_ID = re.compile(r"\b([a-z]+)_[0-9a-f]{24,}\b")


@dataclass
class Turn:
    """What came of a request."""

    done: ResponseDone
    output: list[Item]


class Wire:
    """One session. A request waits for its response's `done` before the next one is sent."""

    def __init__(self, stub: Any, call: Any) -> None:
        self._stub = stub
        self._call = call
        self.events: list[ServerEvent] = []
        self.batches: list[int] = []
        """How many events each message held."""
        self.response_id = ""
        self._handle = 0

    async def create(self, *, hold: bool = False, inherit: bool = False, lane: str = "", **body: Any) -> Turn:
        """Creates a response from a body in public JSON."""
        create = from_json(ResponseCreate, json.dumps({key: value for key, value in body.items() if value is not None}))
        create.hold, create.inherit = hold, inherit
        # A held response that this one continues from has a `done` of its own.
        self._handle = 0
        return await self._send(ConnectRequest(create=create, lane=lane))

    async def append(self, *items: dict[str, Any]) -> Turn:
        """Appends items to the response that is held."""
        request = ConnectRequest()
        request.append.response_id = self.response_id
        request.append.input.extend(from_json(Item, json.dumps(item)) for item in items)
        return await self._send(request)

    async def retrieve(self, response_id: str) -> dict[str, Any]:
        """Returns a stored response."""
        answer = await self._stub.GetResponse(GetResponseRequest(response_id=response_id))
        return MessageToDict(answer.response, preserving_proto_field_name=True)

    async def _send(self, request: ConnectRequest) -> Turn:
        async with asyncio.timeout(BOUND):
            await self._call.write(request)
            output: list[Item] = []
            while True:
                batch: ConnectResponse = await self._call.read()
                self.batches.append(len(batch.events))
                self.events += batch.events
                for event in batch.events:
                    assert not event.HasField("rejected"), event
                    if event.HasField("created"):
                        self.response_id = event.created.response.id
                        self._handle = event.response
                    if event.HasField("output_item_done"):
                        output.append(event.output_item_done.item)
                    if event.HasField("done") and event.response == self._handle:
                        return Turn(event.done, output)


@asynccontextmanager
async def wired(address: str) -> AsyncGenerator[Wire, None]:
    """Opens a session for the length of the block."""
    async with aio.insecure_channel(address) as channel:
        stub = ResponsesServiceStub(channel)
        call = stub.Connect()
        yield Wire(stub, call)
        call.cancel()


class Names:
    """Replaces ids by the order in which they appear."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def plain(self, value: Any) -> Any:
        """Returns a value in which ids are replaced, and times and counts of cached tokens left out."""
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return {key: self._member(key, each) for key, each in members.items() if key not in _TIMES}
        if isinstance(value, list):
            return [self.plain(each) for each in cast("Sequence[Any]", value)]
        return _ID.sub(self._named, value) if isinstance(value, str) else value

    def _member(self, key: str, value: Any) -> Any:
        return "sealed" if key == "encrypted_content" else self.plain(value)

    def _named(self, found: re.Match[str]) -> str:
        return self._known.setdefault(found[0], f"{found[1]} {len(self._known)}")


def told(events: list[ServerEvent], names: Names) -> list[dict[str, Any]]:
    """Returns what a session was told, with neighbouring deltas joined."""
    said: list[dict[str, Any]] = []
    for event in events:
        one = names.plain(MessageToDict(event, preserving_proto_field_name=True))
        if said and (text := _delta(one)) is not None and _place(one) == _place(said[-1]):
            before = _delta(said[-1])
            assert before is not None
            before["delta"] += text["delta"]
        else:
            said.append(one)
    return said


def _delta(event: dict[str, Any]) -> dict[str, Any] | None:
    return next((each for key, each in event.items() if key.endswith("_delta")), None)


def _place(event: dict[str, Any]) -> dict[str, Any] | None:
    """Returns all but the text of a delta; None for other events."""
    if _delta(event) is None:
        return None
    return {
        key: {name: each for name, each in value.items() if name != "delta"} if key.endswith("_delta") else value
        for key, value in event.items()
    }
