from __future__ import annotations

from typing import Any

from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.session.calls import CallKey
from turnwire.server.session.transcript import (
    EMPTY,
    ENTRY_OVERHEAD,
    SEGMENT_OVERHEAD,
    Entry,
    Origin,
    Transcript,
    count_turns,
)
from turnwire.v1.item_pb2 import Item


def entry(data: bytes, tokens: int = 1) -> Entry:
    return Entry(data, Origin.INPUT, tokens)


@given(st.lists(st.lists(st.binary(max_size=5), max_size=4), max_size=8))
def test_a_walk_gives_what_was_added_in_order_and_the_sums_agree(steps: list[list[bytes]]) -> None:
    transcript = EMPTY
    for turns, step in enumerate(steps):
        transcript = transcript.extend([entry(data, len(data)) for data in step], frozenset(), turns=turns)
    said = [data for step in steps for data in step]
    assert [e.data for e in transcript.walk()] == said
    assert transcript.length == len(said)
    assert transcript.tokens == sum(map(len, said))
    assert transcript.bytes == sum(len(data) + ENTRY_OVERHEAD for data in said) + SEGMENT_OVERHEAD * len(steps)
    assert transcript.turns == sum(range(len(steps)))
    assert transcript.bytes == sum(segment.own_bytes for segment in transcript.segments())


def test_forks_share_their_history_and_know_nothing_of_each_other() -> None:
    key = CallKey("function", "c")
    trunk = EMPTY.extend([entry(b"a"), entry(b"b")], frozenset({key}))
    left = trunk.extend([entry(b"l")], frozenset())
    right = trunk.extend([entry(b"r")], frozenset({key}))
    assert left.parent is right.parent is trunk
    assert [e.data for e in left.walk()] == [b"a", b"b", b"l"]
    assert [e.data for e in right.walk()] == [b"a", b"b", b"r"]
    assert trunk.open_calls == right.open_calls == {key}
    assert not left.open_calls


def test_a_long_chain_is_walked_without_recursion() -> None:
    transcript: Transcript = EMPTY
    for _ in range(50_000):
        transcript = transcript.extend([entry(b"x")], frozenset())
    assert sum(1 for _ in transcript.walk()) == 50_000


def test_turns_are_runs_of_the_models_items() -> None:
    kinds: list[dict[str, Any]] = [
        {"message": {"role": "ROLE_USER"}},
        {"reasoning": {}},
        {"function_call": {"call_id": "c"}},
        {"function_call_output": {"call_id": "c"}},
        {"message": {"role": "ROLE_ASSISTANT"}},
        {"message": {"role": "ROLE_USER"}},
        {"message": {"role": "ROLE_ASSISTANT"}},
    ]
    assert count_turns([ParseDict(kind, Item()) for kind in kinds]) == 3
    assert count_turns([]) == 0
