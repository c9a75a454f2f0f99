"""Compact events become the official stream."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallKind,
    CallStart,
    Channel,
    Chunk,
    EngineFailure,
    Finish,
    FinishReason,
    PassUsage,
    TextChunk,
    TextEnd,
)
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json, to_json
from turnwire.v1.official.stream import OfficialStream
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, Verbosity
from turnwire.v1.server_event_pb2 import ServerEvent

Events = list[dict[str, Any]]
Play = Callable[
    [ResponseCreate, Sequence[Sequence[Chunk]], Finish | EngineFailure], tuple[list[ServerEvent], Response | None]
]

TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
TOOLS = [{"type": "function", "name": "look"}, {"type": "custom", "name": "write"}]
REQUIRED = {
    "id", "object", "created_at", "status", "background", "completed_at", "error", "frequency_penalty",
    "incomplete_details", "instructions", "max_output_tokens", "max_tool_calls", "model", "output",
    "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt_cache_key", "prompt_cache_retention",
    "reasoning", "safety_identifier", "service_tier", "store", "temperature", "text", "tool_choice", "tools",
    "top_logprobs", "top_p", "truncation", "usage", "user", "metadata",
}  # fmt: skip
"""Keys that a response always has: of the live API and of Open Responses."""


def create_of(**fields: Any) -> ResponseCreate:
    create = from_json(ResponseCreate, msgspec.json.encode({"model": "stepped", "input": "hi", **fields}))
    create.verbosity = Verbosity.VERBOSITY_FULL
    return create


def event_of(**fields: Any) -> ServerEvent:
    return ServerEvent(**fields)


def item_of(**fields: Any) -> Item:
    return Item(**fields)


def response_of(**fields: Any) -> Response:
    return Response(**fields)


def official(create: ResponseCreate, events: Sequence[ServerEvent], stream_id: str = "") -> Events:
    """Translates, and checks what holds for every frame."""
    stream = OfficialStream(create, stream_id=stream_id)
    decoded: Events = []
    for event in events:
        for frame in stream.feed(event):
            assert b"\n" not in frame.data
            assert b"\r" not in frame.data
            assert b'"obfuscation"' not in frame.data or create.stream_options.include_obfuscation
            decoded.append(msgspec.json.decode(frame.data))
            assert decoded[-1]["type"] == frame.type
    return decoded


def fold(events: Events) -> list[dict[str, Any]]:
    """Builds the output from the small events alone, and checks every repetition of it on the way.

    An item that is open when the response fails has no end and is no output.
    """
    items: list[dict[str, Any]] = []
    finished = 0
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items.append(event["item"])
            continue
        if "output_index" not in event:
            continue
        # Strictly one after the other: whatever comes is about the last one.
        assert event["output_index"] == len(items) - 1
        item = items[-1]
        if kind != "output_item.done":
            assert event["item_id"] == item["id"]
        if kind == "content_part.added":
            parts = item.setdefault("content", [])
            assert event["content_index"] == len(parts)
            parts.append(event["part"])
        elif kind == "reasoning_summary_part.added":
            assert event["summary_index"] == len(item["summary"])
            item["summary"].append(event["part"])
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            item["content"][event["content_index"]]["text"] += event["delta"]
        elif kind == "refusal.delta":
            item["content"][event["content_index"]]["refusal"] += event["delta"]
        elif kind == "reasoning_summary_text.delta":
            item["summary"][event["summary_index"]]["text"] += event["delta"]
        elif kind == "function_call_arguments.delta":
            item["arguments"] += event["delta"]
        elif kind == "custom_tool_call_input.delta":
            item["input"] += event["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert item["content"][event["content_index"]]["text"] == event["text"]
        elif kind == "refusal.done":
            assert item["content"][event["content_index"]]["refusal"] == event["refusal"]
        elif kind == "reasoning_summary_text.done":
            assert item["summary"][event["summary_index"]]["text"] == event["text"]
        elif kind == "content_part.done":
            assert item["content"][event["content_index"]] == event["part"]
        elif kind == "reasoning_summary_part.done":
            assert item["summary"][event["summary_index"]] == event["part"]
        elif kind == "function_call_arguments.done":
            assert (item["arguments"], item["name"]) == (event["arguments"], event["name"])
        elif kind == "custom_tool_call_input.done":
            assert item["input"] == event["input"]
        elif kind == "output_item.done":
            status = {key: event["item"][key] for key in ("status",) if key in event["item"]}
            if item["type"] == "reasoning" and not item.get("content"):
                # Announced with an empty list, to which parts can be appended; without any it has none.
                assert item.pop("content") == []
            assert {**item, **status} == event["item"]
            items[-1] = event["item"]
            finished += 1
    assert finished == len(items) or (finished == len(items) - 1 and events[-1]["type"] == "response.failed")
    return items[:finished]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SAID = st.builds(TextChunk, st.sampled_from(Channel), TEXT)
FUNCTION = st.lists(TEXT.map(CallDelta), max_size=3).map(lambda deltas: [CallStart("look"), *deltas, CallEnd()])
CUSTOM = st.lists(TEXT.map(CallDelta), max_size=3).map(lambda deltas: [CallStart("write", CallKind.CUSTOM), *deltas])
STEP: st.SearchStrategy[Sequence[Chunk]] = st.one_of(
    st.lists(SAID, min_size=1, max_size=4), st.just([TextEnd()]), FUNCTION, CUSTOM
)
OUTCOME = st.one_of(
    st.builds(Finish, st.sampled_from(FinishReason), st.just(PassUsage(5, 2, 3, 1))),
    st.just(EngineFailure("server_is_overloaded", "too much", 2.0)),
)


@st.composite
def emissions(draw: st.DrawFn) -> list[list[Chunk]]:
    """Draws what a model outputs, cut into any pieces."""
    chunks = [chunk for step in draw(st.lists(STEP, max_size=6)) for chunk in step]
    cuts = sorted(draw(st.sets(st.integers(0, len(chunks)), max_size=4)) | {0, len(chunks)})
    return [chunks[start:end] for start, end in pairwise(cuts)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(emissions(), OUTCOME, st.booleans())
def test_the_events_add_up_to_the_response_that_ends_them(
    play: Play, said: list[list[Chunk]], outcome: Finish | EngineFailure, padded: bool
) -> None:
    options = {"stream_options": {"include_obfuscation": True}} if padded else {}
    create = create_of(tools=TOOLS, shade=3, **options)

    compact, later = play(create, said, outcome)
    events = official(create, compact)

    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["type"] in TERMINAL for event in events] == [False] * (len(events) - 1) + [True]
    assert fold(events) == events[-1]["response"]["output"]
    first, last = events[0]["response"], events[-1]["response"]
    assert (first["status"], first["output"], first["usage"]) == ("in_progress", [], None)
    assert events[1]["response"] == first
    changing = {"status", "completed_at", "output", "usage", "error", "incomplete_details"}
    assert {key: first[key] for key in first.keys() - changing} == {key: last[key] for key in last.keys() - changing}
    assert first.keys() == last.keys() == REQUIRED | {"shade"}
    if later is not None:
        retrieved = msgspec.json.decode(to_json(later, fill=True))
        assert retrieved == last


def test_the_response_known_so_far_is_what_the_last_event_says(play: Play) -> None:
    create = create_of()
    compact, _ = play(create, [[TextChunk(Channel.TEXT, "hello")]], Finish())
    stream = OfficialStream(create)

    frames = [frame for event in compact for frame in stream.feed(event)]

    assert stream.ended
    assert stream.response_id == stream.response.id
    last = msgspec.json.decode(frames[-1].data)
    assert last["response"] == msgspec.json.decode(to_json(stream.response, fill=True))


def test_nothing_follows_the_end(play: Play) -> None:
    create = create_of()
    compact, _ = play(create, [], Finish())
    stream = OfficialStream(create)
    for event in compact:
        stream.feed(event)

    assert all(stream.feed(event) == [] for event in compact)


def test_a_text_has_the_nine_events(play: Play) -> None:
    create = create_of()
    compact, _ = play(create, [[TextChunk(Channel.TEXT, "hi")]], Finish())

    events = official(create, compact)

    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    added, part, delta = events[2], events[3], events[4]
    assert (added["item"]["status"], added["item"]["content"]) == ("in_progress", [])
    assert part["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert (delta["delta"], delta["logprobs"]) == ("hi", [])


def test_every_event_names_the_lane(play: Play) -> None:
    create = create_of()
    compact, _ = play(create, [[TextChunk(Channel.TEXT, "hi")]], Finish())

    assert {event["stream_id"] for event in official(create, compact, "my.lane")} == {"my.lane"}


def test_padding_comes_where_it_is_asked_for_and_hides_the_length(play: Play) -> None:
    create = create_of(stream_options={"include_obfuscation": True})
    said: list[Chunk] = [TextChunk(Channel.TEXT, text) for text in ("a", "abc", "x" * 16, "é")]

    deltas = [e for e in official(create, play(create, [said], Finish())[0]) if e["type"].endswith("delta")]

    assert len({len(f"{each['delta']}".encode() + each["obfuscation"].encode()) for each in deltas}) == 1


def test_a_cancelled_response_ends_as_incomplete() -> None:
    stream = OfficialStream(ResponseCreate())
    stream.feed(event_of(created={"response": {"id": "resp_1"}}))

    [frame] = stream.feed(
        event_of(sequence_number=2, done={"reason": DoneReason.DONE_REASON_CANCELLED, "usage": {"input_tokens": 3}})
    )

    event = msgspec.json.decode(frame.data)
    assert event["type"] == "response.incomplete"
    assert event["response"]["status"] == "incomplete"
    assert event["response"]["incomplete_details"] == {"reason": "cancelled"}
    assert event["response"]["usage"]["input_tokens"] == 3


def test_a_failed_response_says_why() -> None:
    stream = OfficialStream(ResponseCreate())
    stream.feed(event_of(created={"response": {"id": "resp_1"}}))

    [frame] = stream.feed(
        event_of(done={"reason": DoneReason.DONE_REASON_FAILED, "error": {"code": "invalid_prompt", "message": "no"}})
    )

    response = msgspec.json.decode(frame.data)["response"]
    assert (response["id"], response["status"]) == ("resp_1", "failed")
    assert response["error"] == {"code": "invalid_prompt", "message": "no"}


def test_the_pause_of_a_held_response_is_an_event_of_ours() -> None:
    stream = OfficialStream(ResponseCreate(hold=True), stream_id="a")
    stream.feed(event_of(created={"response": {"id": "resp_1"}}))

    [pause] = stream.feed(
        event_of(sequence_number=4, done={"reason": DoneReason.DONE_REASON_TOOL_CALLS, "awaiting_call_ids": ["call_1"]})
    )
    [taken] = stream.feed(event_of(appended={"append_index": 0}))

    event = msgspec.json.decode(pause.data)
    assert (event["type"], event["reason"], event["stream_id"]) == ("response.done", "tool_calls", "a")
    assert (event["sequence_number"], event["awaiting_call_ids"]) == (4, ["call_1"])
    assert msgspec.json.decode(taken.data)["type"] == "response.appended"
    assert not stream.ended
    assert stream.next_sequence == 5


def test_appended_outputs_stand_in_the_response_that_the_server_echoes() -> None:
    stream = OfficialStream(ResponseCreate(hold=True, echo=True))
    stream.feed(event_of(created={"response": {"id": "resp_1", "model": "m"}}))
    stream.feed(event_of(output_item_done={"output_index": 0, "item": {"function_call": {"call_id": "c"}}}))
    output = [item_of(function_call={"call_id": "c"}), item_of(function_call_output={"call_id": "c"})]

    [frame] = stream.feed(
        event_of(done={"reason": DoneReason.DONE_REASON_COMPLETED, "response": {"id": "resp_1", "output": output}})
    )

    items = msgspec.json.decode(frame.data)["response"]["output"]
    assert [item["type"] for item in items] == ["function_call", "function_call_output"]


def test_a_stream_that_is_joined_later_takes_the_settings_from_the_response_it_hears_of() -> None:
    whole = response_of(
        id="resp_1", model="m", status=3, instructions="be brief", output=[item_of(message={"id": "msg_9"})]
    )
    stream = OfficialStream(ResponseCreate())

    [created] = stream.feed(event_of(created={"response": whole}))
    [delta] = stream.feed(event_of(sequence_number=7, output_text_delta={"output_index": 0, "delta": "x"}))

    response = msgspec.json.decode(created.data)["response"]
    assert (response["instructions"], response["status"], response["output"]) == ("be brief", "in_progress", [])
    assert msgspec.json.decode(delta.data)["item_id"] == "msg_9"


def test_an_item_that_cannot_be_sent_ends_the_stream_as_failed() -> None:
    stream = OfficialStream(ResponseCreate())
    stream.feed(event_of(created={"response": {"id": "resp_1"}}))

    [frame] = stream.feed(event_of(output_item_truncated={"output_index": 0, "bytes": 99}))

    assert msgspec.json.decode(frame.data)["response"]["error"]["code"] == "server_error"
    assert stream.ended


@pytest.mark.parametrize(
    "event",
    [
        event_of(),
        event_of(queued={"request_id": "1"}),
        event_of(pong={"nonce": 1}),
        event_of(progress={"in_flight": 1}),
        event_of(go_away={"reason": "shutdown"}),
    ],
)
def test_what_concerns_the_session_is_no_official_event(event: ServerEvent) -> None:
    assert OfficialStream(ResponseCreate()).feed(event) == []


def test_events_of_newer_servers_come_through_as_they_are() -> None:
    stream = OfficialStream(ResponseCreate(), stream_id="a")
    text = '{"type":"response.new","sequence_number":3,\n"x":[1]}'

    [frame] = stream.feed(event_of(sequence_number=3, opaque={"type": "response.new", "json": text}))

    assert frame.type == "response.new"
    assert msgspec.json.decode(frame.data) == {
        "type": "response.new",
        "sequence_number": 3,
        "x": [1],
        "stream_id": "a",
    }
    assert b"\n" not in frame.data


@pytest.mark.parametrize(
    ("member", "of_type"),
    [
        ("mcp_call_in_progress", "response.mcp_call.in_progress"),
        ("web_search_call_searching", "response.web_search_call.searching"),
        ("compaction_compacting", "response.compaction.compacting"),
    ],
)
def test_steps_of_hosted_tools_name_their_item(member: str, of_type: str) -> None:
    stream = OfficialStream(ResponseCreate())
    stream.feed(event_of(output_item_added={"output_index": 1, "item": {"mcp_call": {"id": "mcp_1"}}}))
    event = event_of(sequence_number=3)
    getattr(event, member).output_index = 1

    [frame] = stream.feed(event)

    assert msgspec.json.decode(frame.data) == {
        "type": of_type,
        "item_id": "mcp_1",
        "output_index": 1,
        "sequence_number": 3,
    }


def test_log_probabilities_travel_with_their_text() -> None:
    stream = OfficialStream(ResponseCreate())
    logprobs = [{"token": "a", "logprob": -0.5}]

    [frame] = stream.feed(event_of(output_text_delta={"delta": "a", "logprobs": logprobs}))

    assert msgspec.json.decode(frame.data)["logprobs"] == [
        {"token": "a", "logprob": -0.5, "bytes": [], "top_logprobs": []}
    ]


def test_the_official_sdk_takes_every_event(play: Play) -> None:
    if importlib.util.find_spec("openai") is None:
        pytest.skip("the openai package is not installed")
    from openai.types.responses import Response as SdkResponse
    from openai.types.responses import ResponseStreamEvent
    from pydantic import TypeAdapter

    create = create_of(tools=TOOLS, text={"format": {"type": "json_object"}}, reasoning={"effort": "low"})
    said: list[Chunk] = [
        TextChunk(Channel.SUMMARY, "hm"),
        TextChunk(Channel.REASONING, "so"),
        TextChunk(Channel.TEXT, "text"),
        TextChunk(Channel.REFUSAL, "no"),
        CallStart("look"),
        CallDelta("{}"),
        CallStart("write", CallKind.CUSTOM),
        CallDelta("x"),
    ]
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

    events = official(create, play(create, [said], Finish())[0])

    for event in events:
        taken = adapter.validate_python(event)
        assert taken.type == event["type"]
    SdkResponse.model_validate(events[-1]["response"])
