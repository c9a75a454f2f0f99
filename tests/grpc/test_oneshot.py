"""The methods beside Connect: one response, look-ups, and what the server can do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.profile import Capabilities, ModelProfile, Price
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.runtime.services import FEATURES
from turnwire.server.session.limits import SessionLimits
from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.item_pb2 import FunctionCallOutput, Item, ToolOutput
from turnwire.v1.response_pb2 import DoneReason, Input, InputItems, ResponseCreate, ResponseStatus

if TYPE_CHECKING:
    from tests.grpc.conftest import Door, Doors, Ended


def _asking(**more: Any) -> ResponseCreate:
    fields: dict[str, Any] = {"model": "stepped", "input": Input(text="hello"), **more}
    return ResponseCreate(**fields)


async def _create(door: Door, create: ResponseCreate, says: str = "hi") -> pb.CreateResponseResponse:
    before = len(door.engine.passes)
    asking = asyncio.create_task(door.ask("CreateResponse", pb.CreateResponseRequest(create=create)))
    async with asyncio.timeout(5):
        sampling = (await door.engine.started(before + 1))[-1]
    response = door.created(sampling.prompt.response_id)
    door.say(response, says)
    door.finish(response)
    answer = await asking
    assert isinstance(answer, bytes)
    return pb.CreateResponseResponse.FromString(answer)


async def _refused(door: Door, create: ResponseCreate) -> list[Ended]:
    """Asks for a response both ways, which must be refused."""
    unary = await door.ask("CreateResponse", pb.CreateResponseRequest(create=create))
    assert not isinstance(unary, bytes)
    streamed = await door.stream(pb.StreamResponseRequest(create=create)).ended()
    return [unary, streamed]


async def test_create_response_answers_with_the_whole_response(door: Door) -> None:
    answer = await _create(door, _asking(instructions="be short", metadata={"a": "b"}))
    response = answer.response
    assert (response.model, response.instructions, dict(response.metadata)) == ("stepped", "be short", {"a": "b"})
    assert response.status == ResponseStatus.RESPONSE_STATUS_COMPLETED
    assert response.output[0].message.content.parts.parts[0].output_text.text == "hi"
    await door.emptied()


async def test_one_shot_responses_chain_through_the_store_and_are_forgotten_when_told(door: Door) -> None:
    first = (await _create(door, _asking())).response
    second = (await _create(door, _asking(previous_response_id=first.id))).response
    assert second.usage.input_tokens > first.usage.input_tokens
    found = await door.ask("GetResponse", pb.GetResponseRequest(response_id=first.id))
    assert isinstance(found, bytes)
    deleted = await door.ask("DeleteResponse", pb.DeleteResponseRequest(response_id=first.id))
    assert deleted == b""
    for name, request in (
        ("GetResponse", pb.GetResponseRequest(response_id=first.id)),
        ("DeleteResponse", pb.DeleteResponseRequest(response_id=first.id)),
    ):
        gone = await door.ask(name, request)
        assert not isinstance(gone, bytes)
        assert (gone.code, gone.error) == (grpc.StatusCode.NOT_FOUND, ("response_not_found", "response_id"))
    for ended in await _refused(door, _asking(previous_response_id=first.id)):
        assert ended.code is grpc.StatusCode.NOT_FOUND
    # Descendants keep what they need.
    await _create(door, _asking(previous_response_id=second.id))


async def test_what_is_not_stored_cannot_be_found_again(door: Door) -> None:
    response = (await _create(door, _asking(store=False))).response
    gone = await door.ask("GetResponse", pb.GetResponseRequest(response_id=response.id))
    assert not isinstance(gone, bytes)
    assert gone.code is grpc.StatusCode.NOT_FOUND


_REFUSED: dict[str, tuple[dict[str, Any], str, tuple[str, str | None]]] = {
    "no model": ({"model": None}, "INVALID_ARGUMENT", ("missing_required_parameter", "model")),
    "an unknown model": ({"model": "x"}, "NOT_FOUND", ("model_not_found", "model")),
    "a hold": ({"hold": True}, "INVALID_ARGUMENT", ("unsupported_parameter", "hold")),
    "background without a store": (
        {"background": True, "store": False},
        "INVALID_ARGUMENT",
        ("invalid_value", "store"),
    ),
    "a hold in the background": (
        {"background": True, "hold": True},
        "INVALID_ARGUMENT",
        ("unsupported_parameter", "hold"),
    ),
    "background with a bad number": (
        {"background": True, "top_p": 3.0},
        "INVALID_ARGUMENT",
        ("invalid_value", "top_p"),
    ),
    "a number out of range": ({"temperature": 3.0}, "INVALID_ARGUMENT", ("invalid_value", "temperature")),
    "an unknown parent": (
        {"previous_response_id": "resp_x"},
        "NOT_FOUND",
        ("previous_response_not_found", "previous_response_id"),
    ),
    "much metadata": (
        {"metadata": {str(n): "" for n in range(17)}},
        "INVALID_ARGUMENT",
        ("invalid_value", "metadata"),
    ),
}


@pytest.mark.parametrize(("fields", "status", "error"), _REFUSED.values(), ids=_REFUSED)
async def test_what_cannot_be_obeyed_is_a_status_with_details(
    door: Door, fields: dict[str, Any], status: str, error: tuple[str, str | None]
) -> None:
    for ended in await _refused(door, _asking(**fields)):
        assert (ended.code.name, ended.error) == (status, error)
        assert ended.reason == error[0].upper()
        assert ended.message
    assert not door.engine.passes
    await door.emptied()


async def test_an_empty_request_is_refused_by_name(door: Door) -> None:
    for ended in await _refused(door, ResponseCreate()):
        assert ended.error[0] == "missing_required_parameter"


async def test_stream_is_refused_where_nothing_can_be_streamed(door: Door) -> None:
    create = pb.CreateResponseRequest(create=_asking(stream=True))
    ended = await door.ask("CreateResponse", create)
    assert not isinstance(ended, bytes)
    assert ended.error == ("unsupported_parameter", "stream")


async def test_a_large_request_is_refused_naming_what_is_large(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_request_bytes=4096))
    for ended in await _refused(door, _asking(instructions="x" * 5_000)):
        assert (ended.code.name, ended.error) == ("RESOURCE_EXHAUSTED", ("request_too_large", "instructions"))


async def test_a_response_that_fails_is_a_status_of_create_response(door: Door) -> None:
    asking = asyncio.create_task(door.ask("CreateResponse", pb.CreateResponseRequest(create=_asking())))
    (sampling,) = await door.engine.started(1)
    door.engine.fail(sampling.prompt.response_id, "server_is_overloaded", "busy", retry_after=2.5)
    ended = await asking
    assert not isinstance(ended, bytes)
    assert (ended.code.name, ended.error, ended.message, ended.retry_after) == (
        "UNAVAILABLE",
        ("server_is_overloaded", None),
        "busy",
        2.5,
    )


async def test_a_streamed_response_comes_in_order_and_ends_with_done(door: Door) -> None:
    stream = door.stream(pb.StreamResponseRequest(create=_asking()))
    created = await stream.until("created")
    response = door.created(created.response.id)
    door.say(response, "a")
    await stream.until("output_text_delta")
    door.call(response, "call_1")
    door.finish(response)
    done = await stream.until("done")
    assert (done.reason, list(done.awaiting_call_ids)) == (DoneReason.DONE_REASON_COMPLETED, ["call_1"])
    assert (await stream.ended()).code is grpc.StatusCode.OK
    kinds = [event.WhichOneof("event") for event in stream.seen]
    assert (kinds[0], kinds[-1]) == ("created", "done")
    numbers = [event.sequence_number for event in stream.seen]
    assert numbers == sorted(set(numbers))
    assert {event.response for event in stream.seen} == {1}
    # Its calls are answered by another one.
    output = Item(function_call_output=FunctionCallOutput(call_id="call_1", output=ToolOutput(text="x")))
    await _create(door, _asking(previous_response_id=response.id, input=Input(items=InputItems(items=[output]))))


async def test_a_streamed_response_of_any_length_comes_to_its_end(door: Door) -> None:
    stream = door.stream(pb.StreamResponseRequest(create=_asking()))
    response = door.created((await stream.until("created")).response.id)
    for _ in range(64):
        door.say(response, "x" * 16_384)
        await stream.until("output_text_delta")
    door.finish(response)
    assert (await stream.until("done")).reason == DoneReason.DONE_REASON_COMPLETED


async def test_a_streamed_response_that_fails_says_so_in_done(door: Door) -> None:
    stream = door.stream(pb.StreamResponseRequest(create=_asking()))
    created = await stream.until("created")
    door.engine.fail(created.response.id, "server_error")
    done = await stream.until("done")
    assert (done.reason, done.error.code) == (DoneReason.DONE_REASON_FAILED, "server_error")
    assert (await stream.ended()).code is grpc.StatusCode.OK


async def test_a_client_that_goes_frees_the_engine_of_its_one_shot_request(door: Door) -> None:
    asking = asyncio.create_task(door.ask("CreateResponse", pb.CreateResponseRequest(create=_asking())))
    await door.engine.started(1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    async with asyncio.timeout(5):
        await door.engine.told(0, "abort")

    stream = door.stream(pb.StreamResponseRequest(create=_asking()))
    created = await stream.until("created")
    stream.call.cancel()
    await door.told(door.created(created.response.id), "abort")
    await door.emptied()


async def test_a_streamed_response_that_nobody_reads_is_cut_off_and_its_engine_freed(door: Door) -> None:
    stream = door.stream(pb.StreamResponseRequest(create=_asking()), channel=door.new_channel())
    created = await stream.until("created")
    response = door.created(created.response.id)
    await door.fill(response)
    door.clock.advance(SessionLimits().stall_timeout * 2)
    await door.told(response, "abort")
    await door.emptied()
    ended = await stream.ended()
    assert (ended.code.name, ended.error) == ("RESOURCE_EXHAUSTED", ("slow_consumer", None))


async def test_capabilities_tell_what_there_is_and_what_is_not(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_lanes=7))
    answer = await door.ask("GetCapabilities", b"")
    assert isinstance(answer, bytes)
    capabilities = pb.GetCapabilitiesResponse.FromString(answer)
    assert capabilities.server == "turnwire"
    assert tuple(capabilities.features) == FEATURES
    assert not capabilities.unimplemented
    assert (capabilities.limits.max_lanes, capabilities.limits.stall_timeout.seconds) == (7, 120)


async def test_models_are_listed_with_their_engine(door: Door) -> None:
    answer = await door.ask("ListModels", b"")
    assert isinstance(answer, bytes)
    (model,) = pb.ListModelsResponse.FromString(answer).models
    assert (model.id, model.engine, model.HasField("context_length")) == ("stepped", "stepped", False)
    # What nobody says of a model stays unset.
    assert {described.name for described, _ in model.ListFields()} == {"id", "owned_by", "engine", "created"}
    assert model.created == 1_800_000_000


async def test_models_are_listed_with_their_aliases_what_they_take_and_what_they_cost(open_door: Doors) -> None:
    profile = ModelProfile(
        context_length=1000,
        max_output_tokens=100,
        capabilities=Capabilities(images=False),
        unsupported=frozenset({"top_p", "temperature"}),
        ignores=True,
        price=Price(1.25, 0.125, 10.0, "EUR"),
    )
    infos = [ModelInfo("m", "us", 1000, ("fast", "default"), profile)]
    door = await open_door(engines=[StepEngine(infos)])
    answer = await door.ask("ListModels", b"")
    assert isinstance(answer, bytes)
    (model,) = pb.ListModelsResponse.FromString(answer).models
    assert (model.id, model.owned_by, model.context_length, model.max_output_tokens) == ("m", "us", 1000, 100)
    assert list(model.aliases) == ["fast", "default"]
    assert model.capabilities == pb.ModelCapabilities(
        images=False, tools=True, parallel_tool_calls=True, json_schema=True, reasoning=True, logprobs=True
    )
    assert (list(model.unsupported_parameters), model.ignores_unsupported) == (["temperature", "top_p"], True)
    assert model.price == pb.ModelPrice(input=1.25, cached_input=0.125, output=10.0, currency="EUR")


@pytest.mark.parametrize("response_id", ["x" * 1_000_000, "ä" * 100_000, "\x00\n\x7f"], ids=["long", "wide", "odd"])
async def test_ids_of_any_length_and_kind_are_answered_by_a_status(door: Door, response_id: str) -> None:
    for name, request in (
        ("GetResponse", pb.GetResponseRequest(response_id=response_id)),
        ("DeleteResponse", pb.DeleteResponseRequest(response_id=response_id)),
        ("CreateResponse", pb.CreateResponseRequest(create=_asking(model=response_id))),
        ("CreateResponse", pb.CreateResponseRequest(create=_asking(previous_response_id=response_id))),
    ):
        ended = await door.ask(name, request)
        assert not isinstance(ended, bytes)
        assert ended.code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
        assert len(ended.message.encode()) < 1024


async def test_an_empty_id_is_a_missing_one(door: Door) -> None:
    ended = await door.ask("GetResponse", b"")
    assert not isinstance(ended, bytes)
    assert ended.error == ("missing_required_parameter", "response_id")
