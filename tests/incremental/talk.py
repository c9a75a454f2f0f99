"""A client's side of long conversations: a session that is chained or held, and requests that resend everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json, to_json
from turnwire.v1.response_pb2 import ResponseCreate, Verbosity
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent

LOOK: dict[str, Any] = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}},
}


def body_of(**body: Any) -> ResponseCreate:
    return from_json(ResponseCreate, json.dumps({"model": "m", "tools": [LOOK], **body}))


def output_for(call_id: str, text: str = "nothing here") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


class Talk:
    """One session."""

    def __init__(self, services: Services, principal: str = "") -> None:
        self.room = SessionRoom(services)
        self.services = services
        self.runner: SessionRunner = self.room.enter(principal, "grpc")
        self.response_id = ""
        self.events: list[ServerEvent] = []

    async def create(self, lane: str = "", **body: Any) -> ResponseDone:
        """Creates a response that continues from the last one, unless told otherwise."""
        body.setdefault("previous_response_id", self.response_id or None)
        create = body_of(**{key: value for key, value in body.items() if value is not None})
        create.verbosity = Verbosity.VERBOSITY_DONE
        return await self.send(ConnectRequest(create=create, lane=lane))

    async def append(self, call_id: str, text: str = "nothing here") -> ResponseDone:
        """Delivers an output into the response that is held."""
        request = ConnectRequest()
        request.append.response_id = self.response_id
        request.append.input.append(from_json(Item, json.dumps(output_for(call_id, text))))
        return await self.send(request)

    async def send(self, request: ConnectRequest) -> ResponseDone:
        self.runner.receive(request, request.ByteSize())
        async with asyncio.timeout(20):
            while True:
                batch = await self.runner.next_batch()
                assert batch is not None
                self.runner.sent(batch.ByteSize(), len(batch.events))
                for event in batch.events:
                    self.events.append(event)
                    assert not event.HasField("rejected"), event
                    if event.HasField("created"):
                        self.response_id = event.created.response.id
                    if event.HasField("done"):
                        return event.done

    def leave(self) -> None:
        self.room.leave(self.runner)


class Resender:
    """A client without a memory on the server: each request is a session of its own and brings everything."""

    def __init__(self, services: Services, principal: str = "") -> None:
        self.services = services
        self.principal = principal
        self.history: list[dict[str, Any]] = []

    async def turn(self, *items: dict[str, Any], **body: Any) -> ResponseDone:
        """Sends the history with new items, and files what comes."""
        self.history += items
        talk = Talk(self.services, self.principal)
        done = await talk.create(input=self.history, store=False, **body)
        talk.leave()
        self.history += public(done.output)
        return done


def public(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Items as JSON doors show them."""
    return [json.loads(to_json(item)) for item in items]


def calls_of(done: ResponseDone) -> list[str]:
    return [item.function_call.call_id for item in done.output if item.HasField("function_call")]
