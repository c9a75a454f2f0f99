"""Decodable requests that cannot be obeyed: refused by code and parameter, and everything else goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from turnwire.server.session.limits import SessionLimits
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import FunctionCall, FunctionCallOutput, Item, Message, MessageContent, Role, ToolOutput
from turnwire.v1.response_pb2 import Input, InputItems
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolSet

if TYPE_CHECKING:
    from tests.grpc.conftest import Door, Doors, Peer

    from turnwire.server.runtime.services import Services


Case = tuple[str, dict[str, Any], str, str | None]
"""What is wrong, the request, and the code and the parameter it is refused with."""


def _each(name: str, cases: list[Case]) -> pytest.MarkDecorator:
    values = [case[1:] for case in cases]
    return pytest.mark.parametrize((name, "code", "param"), values, ids=[case[0] for case in cases])


def _items(*items: Item) -> Input:
    return Input(items=InputItems(items=items))


def _tools(parameters: str, name: str = "look") -> ToolSet:
    return ToolSet(tools=[Tool(function=FunctionTool(name=name, parameters=parameters))])


_BAD_CREATES: list[Case] = [
    ("a missing model", {"model": None}, "missing_required_parameter", "model"),
    ("an empty model", {"model": ""}, "missing_required_parameter", "model"),
    ("an unknown model", {"model": "gpt-nowhere"}, "model_not_found", "model"),
    ("no JSON as schema", {"tools": _tools("{")}, "invalid_function_parameters", "tools[0].parameters"),
    (
        "a wrong type in a schema",
        {"tools": _tools('{"type":"object","properties":{"a":{"type":"strin"}}}')},
        "invalid_function_parameters",
        "tools[0].parameters",
    ),
    (
        "a schema of no object",
        {"tools": _tools('{"type":"array"}')},
        "invalid_function_parameters",
        "tools[0].parameters",
    ),
    ("a tool without kind", {"tools": ToolSet(tools=[Tool()])}, "missing_required_parameter", "tools[0].type"),
    ("a tool with a bad name", {"tools": _tools("{}", "a b")}, "invalid_value", "tools[0].name"),
    ("a low temperature", {"temperature": -0.1}, "invalid_value", "temperature"),
    ("a high temperature", {"temperature": 2.1}, "invalid_value", "temperature"),
    ("a temperature that is no number", {"temperature": float("nan")}, "invalid_value", "temperature"),
    ("an endless temperature", {"temperature": float("inf")}, "invalid_value", "temperature"),
    ("a high top_p", {"top_p": 1.5}, "invalid_value", "top_p"),
    ("few output tokens", {"max_output_tokens": 15}, "invalid_value", "max_output_tokens"),
    ("negative output tokens", {"max_output_tokens": -(2**31)}, "invalid_value", "max_output_tokens"),
    ("many logprobs", {"top_logprobs": 21}, "invalid_value", "top_logprobs"),
    ("a bias out of range", {"logit_bias": {"1": 101.0}}, "invalid_value", "logit_bias.1"),
    ("a negative time-out", {"timeouts": {"hold": {"seconds": -1}}}, "invalid_value", "timeouts.hold"),
    ("much metadata", {"metadata": {f"k{n}": "v" for n in range(17)}}, "invalid_value", "metadata"),
    ("a long metadata key", {"metadata": {"k" * 65: "v"}}, "string_above_max_length", "metadata"),
    ("a long metadata value", {"metadata": {"k": "v" * 513}}, "string_above_max_length", "metadata.k"),
    (
        "an unknown item",
        {"input": _items(Item())},
        "missing_required_parameter",
        "input[0].type",
    ),
    (
        "an output without its call",
        {"input": _items(Item(function_call_output=FunctionCallOutput(call_id="x", output=ToolOutput(text=""))))},
        "invalid_request_error",
        "input",
    ),
    (
        "a call without its output",
        {
            "input": Input(
                items=InputItems(items=[Item(function_call=FunctionCall(call_id="x", name="f", arguments="{}"))])
            )
        },
        "invalid_request_error",
        "input",
    ),
    ("an unknown parent", {"previous_response_id": "resp_x"}, "previous_response_not_found", "previous_response_id"),
    ("background", {"background": True}, "unsupported_parameter", "background"),
    ("a conversation", {"conversation": '"conv_1"'}, "unsupported_parameter", "conversation"),
    ("an unknown word", {"truncation": "perhaps"}, "invalid_value", "truncation"),
    ("broken JSON text", {"prompt_cache_options": "{"}, "invalid_json", "prompt_cache_options"),
    ("an unknown name to reset", {"inherit": True, "reset": ["metadata"]}, "invalid_value", "reset[0]"),
]


@_each("fields", _BAD_CREATES)
async def test_a_create_that_cannot_be_obeyed_is_refused_by_name(
    door: Door, peer: Peer, fields: dict[str, Any], code: str, param: str | None
) -> None:
    busy = await peer.create("busy")

    assert await peer.refusal(request_id="bad", lane="a", create=peer.asking(**fields)) == (code, param)
    refused = peer.seen[-1].rejected
    assert (refused.request_id, refused.lane, refused.duplicate) == ("bad", "a", False)

    # The lane of the refused request is free, and what ran beside it goes on.
    await door.completes(peer, "a")
    door.say(busy, "still here")
    assert (await peer.until("output_text_delta", busy.handle)).delta == "still here"
    door.finish(busy)
    await peer.until("done", busy.handle)
    await peer.close()


_BAD_EVENTS: list[Case] = [
    ("an append without response", {"append": {}}, "missing_required_parameter", "response_id"),
    ("an append to an unknown response", {"append": {"response_id": "resp_x"}}, "response_not_found", "response_id"),
    ("a cancel of nothing", {"cancel": {}}, "missing_required_parameter", "response_id"),
    ("a cancel of an unknown response", {"cancel": {"response_id": "resp_x"}}, "response_not_found", "response_id"),
    (
        "a cancel of an unknown request",
        {"cancel": {"target_request_id": "nobody"}},
        "response_not_found",
        "target_request_id",
    ),
    (
        "an acknowledgement of what was not sent",
        {"ack": {"last_event_id": 2**63}},
        "invalid_value",
        "ack.last_event_id",
    ),
    ("a late open", {"open": {}}, "session_already_open", "open"),
    ("an id with spaces", {"request_id": "a b", "ping": {}}, "invalid_value", "request_id"),
    ("an id that is too long", {"request_id": "x" * 129, "ping": {}}, "invalid_value", "request_id"),
]


@_each("event", _BAD_EVENTS)
async def test_an_event_that_cannot_be_obeyed_is_refused_by_name(
    door: Door, peer: Peer, event: dict[str, Any], code: str, param: str | None
) -> None:
    await peer.send(ping={"nonce": 1})

    assert await peer.refusal(**event) == (code, param)

    await door.completes(peer)
    await peer.close()


async def test_a_steer_that_cannot_be_obeyed_is_answered_by_its_own_event(door: Door, peer: Peer) -> None:
    await peer.send(steer={"previous_response_id": "resp_x", "input": {"text": "left"}})
    assert (await peer.until("steer_failed")).error.code == "response_not_found"
    running = await peer.create("a")
    await peer.send(steer={"previous_response_id": running.id, "input": {"text": "left"}})
    assert (await peer.until("steer_failed")).error.code == "steering_not_supported"
    door.finish(running)
    await peer.until("done", running.handle)
    await door.completes(peer)


@pytest.mark.parametrize("name", ["a b", "ä", "a/b", "x" * 257, "a\n"])
async def test_an_invalid_lane_name_is_refused(door: Door, peer: Peer, name: str) -> None:
    assert await peer.refusal(lane=name, create=peer.asking()) == ("invalid_stream_id", "lane")
    await door.completes(peer)


async def test_one_lane_too_many_is_refused_and_known_lanes_go_on(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_lanes=2))
    peer = door.connect()
    await door.completes(peer, "a")
    await door.completes(peer, "b")
    assert await peer.refusal(lane="c", create=peer.asking()) == ("lane_limit_reached", "lane")
    await door.completes(peer, "b")
    await door.completes(peer, "")


async def test_one_response_too_many_waits_and_one_request_too_many_is_refused(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_in_flight=2, max_queued=1))
    peer = door.connect()
    first = await peer.create("a")
    await peer.send(lane="a", create=peer.asking(), request_id="waits")
    assert (await peer.until("queued")).request_id == "waits"
    assert (await peer.refusal(lane="a", create=peer.asking()))[0] == "too_many_requests"
    door.finish(first)
    created = await peer.until("created")
    assert created.request_id == "waits"


async def test_one_held_response_too_many_is_refused(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_held=1))
    peer = door.connect()
    await door.paused(peer, lane="a")
    assert await peer.refusal(lane="b", create=peer.asking(hold=True)) == ("too_many_requests", "hold")
    await door.completes(peer, "b")


async def test_a_request_over_the_limit_is_refused_naming_what_is_large(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_request_bytes=64 * 1024))
    peer = door.connect()
    assert await peer.refusal(create=peer.asking("x" * 70_000)) == ("request_too_large", "input")
    large = peer.asking(instructions="x" * 70_000)
    assert await peer.refusal(create=large) == ("request_too_large", "instructions")
    tools = peer.asking(tools=_tools("{" + " " * 70_000 + "}"))
    assert await peer.refusal(create=tools) == ("request_too_large", "tools")
    await door.completes(peer)


async def test_too_many_items_and_too_many_tools_are_refused(open_door: Doors) -> None:
    door = await open_door(limits=SessionLimits(max_items=2, max_tools=2))
    peer = door.connect()
    message = Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text="x")))
    items = peer.asking(input=_items(*[message] * 3))
    assert await peer.refusal(create=items) == ("array_above_max_length", "input")
    tools = ToolSet(tools=[Tool(function=FunctionTool(name=f"f{n}")) for n in range(3)])
    assert await peer.refusal(create=peer.asking(tools=tools)) == ("array_above_max_length", "tools")
    await door.completes(peer)


async def test_a_large_request_that_is_wrong_is_refused_like_a_small_one(door: Door, peer: Peer) -> None:
    # Large enough to be checked in a thread.
    assert await peer.refusal(lane="a", create=peer.asking("x" * 100_000, top_p=7.0)) == ("invalid_value", "top_p")
    await door.completes(peer, "a")


async def test_a_repeated_request_is_answered_by_its_first_outcome(door: Door, peer: Peer) -> None:
    await peer.send(request_id="r", create=peer.asking())
    created = await peer.until("created")
    await peer.send(request_id="r", create=peer.asking())
    again = await peer.until("created")
    assert (again.response.id, again.duplicate, created.duplicate) == (created.response.id, True, False)
    assert len(door.engine.passes) == 1

    assert await peer.refusal(request_id="r", create=peer.asking("other")) == ("request_id_reused", "request_id")
    assert await peer.refusal(request_id="r", cancel={"response_id": created.response.id}) == (
        "request_id_reused",
        "request_id",
    )

    door.engine.finish(created.response.id)
    assert not (await peer.until("done")).request_id
    await peer.send(request_id="r", create=peer.asking())
    late = await peer.until("done")
    assert (late.request_id, late.response_id) == ("r", created.response.id)
    await door.completes(peer)


async def test_a_repeated_refusal_is_refused_again_and_marked(door: Door, peer: Peer) -> None:
    for duplicate in (False, True, True):
        await peer.send(request_id="r", create=peer.asking(model="nobody"))
        rejected = await peer.until("rejected")
        assert (rejected.error.code, rejected.duplicate) == ("model_not_found", duplicate)
    await door.completes(peer)


async def test_an_open_that_cannot_be_obeyed_leaves_the_session_with_its_defaults(door: Door, peer: Peer) -> None:
    assert await peer.refusal(open={"session_credit_bytes": 1}) == ("invalid_value", "open.session_credit_bytes")
    await door.completes(peer)
    for field, value in (
        ("response_credit_bytes", 2**32 - 1),
        ("max_event_bytes", 0),
        ("batch_window", {"seconds": -1}),
        ("verbosity", 77),
    ):
        other = door.connect()
        assert await other.refusal(open={field: value}) == ("invalid_value", f"open.{field}")
        await door.completes(other)


async def test_arguments_that_are_not_json_are_carried_as_the_model_wrote_them(door: Door, peer: Peer) -> None:
    response = await peer.create("a", hold=True)
    door.call(response, "call_1", '{"path": "unfinished')
    item = (await peer.until("output_item_done", response.handle)).item
    assert item.function_call.arguments == '{"path": "unfinished'
    door.finish(response)
    await peer.until("done", response.handle)
    # What the model wrote may be replayed, with its output.
    replayed = [item, peer.output("call_1")]
    again = await peer.create("b", input=_items(*replayed))
    door.finish(again)
    await peer.until("done", again.handle)
    await door.completes(peer)


async def test_unknown_fields_are_tolerated(door: Door, peer: Peer) -> None:
    newer = ConnectRequest(lane="a", create=peer.asking()).SerializeToString()
    await peer.send_bytes(newer + b"\xba\x3e\x03new")  # field 999
    created = await peer.until("created")
    door.engine.finish(created.response.id)
    await peer.until("done")


async def test_an_event_without_member_and_one_of_a_newer_version_are_told_apart(door: Door, peer: Peer) -> None:
    assert await peer.refusal() == ("missing_event", "event")
    assert await peer.refusal(request_id="r", lane="a") == ("missing_event", "event")
    await peer.send_bytes(b"\x0a\x01r\xba\x3e\x03new")
    error = (await peer.until("rejected")).error
    assert (error.code, error.param) == ("unknown_event", "event")
    assert "999" not in error.code
    await door.completes(peer)


async def test_what_a_client_wrote_is_not_repeated_at_length(door: Door, peer: Peer) -> None:
    long = "x" * 100_000
    for event in (
        {"create": peer.asking(truncation=long)},
        {"create": peer.asking(tools=_tools("{}", long))},
    ):
        await peer.send(**event)
        assert (await peer.until("rejected")).ByteSize() < 4096
    await door.completes(peer)


async def test_a_long_name_of_a_model_is_not_repeated_at_length(door: Door, peer: Peer) -> None:
    await peer.send(create=peer.asking(model="x" * 100_000))
    assert (await peer.until("rejected")).ByteSize() < 4096


async def test_bad_ids_are_not_repeated_at_length(door: Door, peer: Peer) -> None:
    long = "x" * 100_000
    events: list[dict[str, Any]] = [
        {"request_id": long, "ping": {}},
        {"lane": long, "create": peer.asking()},
        {"append": {"response_id": long, "input": [peer.output("c")]}},
        {"cancel": {"response_id": long}},
        {"cancel": {"target_request_id": long}},
        {"create": peer.asking(previous_response_id=long)},
    ]
    for event in events:
        await peer.send(**event)
        rejected = await peer.until("rejected")
        assert rejected.ByteSize() < 4096, rejected.error.code
    await door.completes(peer)


async def test_a_session_can_be_described_at_any_time(door: Door, peer: Peer) -> None:
    await peer.send(open={"session_credit_bytes": 32 * 1024, "features": ["append", "fork", "telepathy"]})
    first = await peer.until("opened")
    assert list(first.features) == ["append", "fork"]
    await peer.send(ping={"nonce": 1, "describe": True})
    assert await peer.until("opened") == first
    await door.completes(peer)


async def test_tokens_over_grpc_wait_for_company_where_neither_client_nor_operator_says(open_door: Doors) -> None:
    def unsaid(services: Services) -> None:
        services.batch_window = None

    door = await open_door(services_of=unsaid)
    peer = door.connect()
    await peer.send(open={})
    assert (await peer.until("opened")).batch_window.ToMilliseconds() == 2
