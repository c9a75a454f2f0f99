from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.session.assembler import Assembler
from turnwire.server.session.chunks import CallDelta, CallEnd, CallKind, CallStart, Channel, Chunk, TextChunk
from turnwire.server.session.outbox import Outbox, Queue
from turnwire.v1.item_pb2 import Item, Reasoning
from turnwire.v1.response_pb2 import Verbosity
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent

FULL = Verbosity.VERBOSITY_FULL


@dataclass
class Recorder:
    items: list[Item] = field(default_factory=list[Item])
    tokens: int = 0
    hosted: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    numbers: int = 0

    def new_item_id(self, kind: str) -> str:
        self.numbers += 1
        return f"{kind}_{self.numbers}"

    def new_call_id(self, wished: str) -> str:
        self.numbers += 1
        return wished or f"call_{self.numbers}"

    def seal(self, reasoning: Reasoning) -> str | None:
        return None

    def item_done(self, item: Item, data: bytes, tokens: int) -> None:
        assert Item.FromString(data) == item
        self.items.append(item)
        self.tokens += tokens

    def hosted_call(self, call_id: str, name: str, arguments: str, tokens: int) -> None:
        self.hosted.append((call_id, name, arguments))
        self.tokens += tokens

    def split(self, name: str) -> tuple[str, str]:
        return "", name

    def is_hosted(self, name: str) -> bool:
        return name.startswith("hosted_")


def assemble(
    feeds: list[list[Chunk]],
    verbosity: Verbosity.ValueType = FULL,
    *,
    complete: bool = True,
    max_event: int = 1 << 20,
) -> tuple[Recorder, list[ServerEvent], int]:
    recorder = Recorder()
    outbox = Outbox(merge=False)
    queue = Queue(1, 0)
    assembler = Assembler(outbox, queue, verbosity, max_event, recorder)
    for chunks in feeds:
        assembler.feed(chunks)
    assembler.finish(complete=complete)
    events: list[ServerEvent] = []
    while True:
        batch = ConnectResponse()
        outbox.pull(batch, 1 << 16)
        if not batch.events:
            return recorder, events, queue.sequence
        events += batch.events


calls = st.builds(
    CallStart,
    st.sampled_from(["f", "g", "hosted_h"]),
    st.sampled_from(CallKind),
    st.sampled_from(["", "call_a", "call_b"]),
)
chunks = st.lists(
    st.one_of(
        st.builds(TextChunk, st.sampled_from(Channel), st.text(max_size=4), st.integers(0, 3)),
        calls,
        st.builds(CallDelta, st.text(max_size=4), st.integers(0, 3)),
        st.just(CallEnd()),
    ),
    max_size=25,
)


def cut(whole: list[Chunk], places: list[int]) -> list[list[Chunk]]:
    feeds: list[list[Chunk]] = []
    start = 0
    for place in sorted({min(p, len(whole)) for p in places} | {len(whole)}):
        feeds.append(whole[start:place])
        start = place
    return feeds


@given(chunks, st.lists(st.integers(0, 25)), st.booleans())
def test_how_an_engine_groups_its_output_makes_no_difference(
    whole: list[Chunk], places: list[int], complete: bool
) -> None:
    together = assemble([whole], complete=complete)
    apart = assemble(cut(whole, places), complete=complete)
    assert apart == together


@given(chunks, st.booleans())
def test_folding_the_full_stream_gives_the_final_items(whole: list[Chunk], complete: bool) -> None:
    recorder, events, sequence = assemble([whole], complete=complete)
    assert fold(events) == recorder.items
    assert [event.sequence_number for event in events] == list(range(sequence))


@given(chunks, st.sampled_from([Verbosity.VERBOSITY_DELTAS, Verbosity.VERBOSITY_ITEMS, Verbosity.VERBOSITY_DONE]))
def test_less_verbosity_leaves_events_out_and_changes_nothing_else(
    whole: list[Chunk], verbosity: Verbosity.ValueType
) -> None:
    recorder, events, sequence = assemble([whole])
    less, fewer, same = assemble([whole], verbosity)
    assert less.items == recorder.items
    assert same == sequence
    by_number = {event.sequence_number: event for event in events}
    assert all(by_number[event.sequence_number] == event for event in fewer)


@given(chunks)
def test_tokens_are_counted_once(whole: list[Chunk]) -> None:
    recorder, _, _ = assemble([whole])
    said = sum(0 if isinstance(chunk, CallEnd) else chunk.tokens for chunk in whole)
    assert recorder.tokens == said


@given(chunks, st.booleans())
def test_a_client_is_never_sent_more_than_it_can_take(whole: list[Chunk], long: bool) -> None:
    filler: list[Chunk] = (
        [TextChunk(Channel.TEXT, "ö" * 9_000), CallStart("f"), CallDelta("😀" * 3_000)] if long else []
    )
    recorder, events, _ = assemble([[*whole, *filler]], max_event=4_096)
    assert max((event.ByteSize() for event in events), default=0) <= 4_096
    truncated = [e.output_item_truncated for e in events if e.WhichOneof("event") == "output_item_truncated"]
    assert len(truncated) + sum(e.WhichOneof("event") == "output_item_done" for e in events) == len(recorder.items)


@pytest.mark.parametrize("verbosity", [v for v in Verbosity.values() if v])
def test_large_text_is_numbered_alike_at_every_verbosity(verbosity: Verbosity.ValueType) -> None:
    full = assemble([[TextChunk(Channel.TEXT, "x" * 50_000)]], max_event=4_096)
    assert assemble([[TextChunk(Channel.TEXT, "x" * 50_000)]], verbosity, max_event=4_096)[2] == full[2]


def test_arguments_outside_a_call_are_kept_as_text() -> None:
    recorder, _, _ = assemble([[CallDelta("lost?")]])
    assert recorder.items[0].message.content.parts.parts[0].output_text.text == "lost?"


def test_a_hosted_call_is_reported_whole_and_is_no_item_yet() -> None:
    recorder, events, _ = assemble([[CallStart("hosted_h", call_id="h"), CallDelta('{"a"'), CallDelta(":1}")]])
    assert recorder.hosted == [("h", "hosted_h", '{"a":1}')]
    assert not recorder.items
    assert not events


def test_a_hosted_call_that_was_cut_short_is_not_run() -> None:
    recorder, _, _ = assemble([[CallStart("hosted_h", call_id="h"), CallDelta('{"a"')]], complete=False)
    assert not recorder.hosted


def fold(events: list[ServerEvent]) -> list[Item]:
    """Builds items from a full stream as a client does, and checks that every event fits what came before."""
    finished: list[Item] = []
    texts: dict[tuple[str, int], str] = {}
    for event in events:
        kind = event.WhichOneof("event") or ""
        value: Any = getattr(event, kind)
        assert value.output_index == len(finished)
        index = getattr(value, "content_index", getattr(value, "summary_index", 0))
        match kind:
            case "output_item_added":
                texts = {}
            case "output_item_done":
                finished.append(value.item)
                assert texts == _texts(value.item)
            case "content_part_added" | "reasoning_summary_part_added":
                family = _family(value.part)
                assert (family, index) not in texts
                texts[family, index] = ""
            case "content_part_done" | "reasoning_summary_part_done":
                family = _family(value.part)
                assert texts[family, index] == _text(value.part)
            case _ if kind.endswith("_delta"):
                key = (_FAMILIES[kind.removesuffix("_delta")], index)
                texts[key] = texts.get(key, "") + value.delta
            case _:
                key = (_FAMILIES[kind.removesuffix("_done")], index)
                said = next(getattr(value, n) for n in ("text", "refusal", "arguments", "input") if hasattr(value, n))
                assert texts.setdefault(key, "") == said
    return finished


_FAMILIES = {
    "output_text": "output_text",
    "refusal": "refusal",
    "reasoning_text": "reasoning_text",
    "reasoning_summary_text": "summary_text",
    "function_call_arguments": "call",
    "custom_tool_call_input": "call",
}


def _family(part: Any) -> str:
    return str(part.WhichOneof("kind"))


def _text(part: Any) -> str:
    value = getattr(part, _family(part))
    return str(value.refusal if _family(part) == "refusal" else value.text)


def _texts(item: Item) -> dict[tuple[str, int], str]:
    match item.WhichOneof("kind"):
        case "message":
            return {(_family(p), i): _text(p) for i, p in enumerate(item.message.content.parts.parts)}
        case "reasoning":
            parts = [*enumerate(item.reasoning.summary), *enumerate(item.reasoning.content)]
            return {(_family(p), i): _text(p) for i, p in parts}
        case "function_call":
            return {("call", 0): item.function_call.arguments}
        case _:
            return {("call", 0): item.custom_tool_call.input}
