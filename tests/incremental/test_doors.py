"""Resent histories and compactions through every door: a conversation is known whichever door it came through."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from aiohttp import ClientSession

from turnwire.server.address import parse_address
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.doors.websocket.door import WebSocketDoor
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.testing import make_services, serving
from turnwire.v1.responses_service_pb2 import CreateResponseRequest
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub

from .fakes import LOOP, scripted_engine
from .talk import LOOK, body_of, output_for, public

LONG = "result " * 200
RULE = [{"type": "compaction", "compact_threshold": 1_000}]


class Doors:
    """All doors of one server, each asked for one response at a time."""

    def __init__(self, http: ClientSession, url: str, stub: ResponsesServiceStub) -> None:
        self._http = http
        self._url = url
        self._stub = stub

    async def http(self, **body: Any) -> dict[str, Any]:
        async with self._http.post(f"{self._url}/v1/responses", json=self._body(body)) as answer:
            assert answer.status == 200, await answer.text()
            response: dict[str, Any] = await answer.json()
            return response

    async def events(self, **body: Any) -> list[dict[str, Any]]:
        async with self._http.post(f"{self._url}/v1/responses", json=self._body({**body, "stream": True})) as answer:
            assert answer.status == 200, await answer.text()
            text = await answer.text()
        frames = [frame.split("\ndata: ", 1)[1] for frame in text.split("\n\n") if frame.startswith("event: ")]
        return [json.loads(frame) for frame in frames]

    async def websocket(self, **body: Any) -> dict[str, Any]:
        async with self._http.ws_connect(f"{self._url}/v1/responses") as socket:
            await socket.send_json({"type": "response.create", **self._body(body)})
            async for message in socket:
                event = json.loads(message.data)
                assert event["type"] != "error", event
                if event["type"] == "response.completed":
                    response: dict[str, Any] = event["response"]
                    return response
        raise AssertionError

    async def grpc(self, **body: Any) -> dict[str, Any]:
        answer = await self._stub.CreateResponse(CreateResponseRequest(create=body_of(**body)))
        response = answer.response
        cached = response.usage.input_tokens_details.cached_tokens
        return {
            "output": public(response.output),
            "usage": {"input_tokens_details": {"cached_tokens": cached}},
            "previous_response_id": response.previous_response_id or None,
        }

    @staticmethod
    def _body(body: dict[str, Any]) -> dict[str, Any]:
        return {"model": "m", "tools": [LOOK], **body}


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    services = make_services([scripted_engine(LOOP)])
    backend = LocalBackend(SessionRoom(services))
    server = HttpServer(backend, services.clock, websocket=WebSocketDoor(backend).handle)
    place = parse_address("127.0.0.1:0")
    assert place is not None
    address = await server.listen(place)
    async with serving(services) as target, grpc.aio.insecure_channel(target) as channel, ClientSession() as http:
        yield Doors(http, f"http://{address}", ResponsesServiceStub(channel))
    await server.stop(0)


@pytest.mark.parametrize("store", [True, False])
async def test_a_history_is_known_whichever_door_it_came_through(doors: Doors, store: bool) -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
    known = 0
    for ask in (doors.http, doors.websocket, doors.grpc, doors.http, doors.grpc, doors.websocket):
        response = await ask(input=history, store=store)
        cached = response["usage"]["input_tokens_details"]["cached_tokens"]
        assert cached > known or known == 0
        assert response["previous_response_id"] is None
        if len(history) > 1:
            assert cached > 0
        known = cached
        history += response["output"]
        history.append(output_for(response["output"][-1]["call_id"]))


async def test_a_compaction_streams_in_the_public_shape(doors: Doors) -> None:
    response = await doors.http(input="begin")
    for _ in range(6):
        call = response["output"][-1]["call_id"]
        previous = response["id"]
        response = await doors.http(input=[output_for(call, LONG)], previous_response_id=previous)
    call = response["output"][-1]["call_id"]
    events = await doors.events(
        input=[output_for(call, "newest")], previous_response_id=response["id"], context_management=RULE
    )
    assert [event["type"] for event in events[:5]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    item = events[4]["item"]
    assert (item["type"], events[3]["item_id"], events[3]["output_index"]) == ("compaction", item["id"], 0)
    final = events[-1]["response"]
    assert final["output"][0] == item
    assert final["usage"]["input_tokens"] < 1_000
    after = await doors.http(input=[output_for(final["output"][-1]["call_id"])], previous_response_id=final["id"])
    assert after["usage"]["input_tokens"] < 1_000


async def test_a_trigger_ends_its_response_with_the_compaction(doors: Doors) -> None:
    response = await doors.websocket(input="begin")
    for _ in range(3):
        call = response["output"][-1]["call_id"]
        response = await doors.websocket(input=[output_for(call, LONG)], previous_response_id=response["id"])
    call = response["output"][-1]["call_id"]
    compacted = await doors.websocket(
        input=[output_for(call, "newest"), {"type": "compaction_trigger"}], previous_response_id=response["id"]
    )
    assert [item["type"] for item in compacted["output"]] == ["compaction"]
    following = await doors.http(input="go on", previous_response_id=compacted["id"])
    assert following["output"][-1]["type"] == "function_call"
