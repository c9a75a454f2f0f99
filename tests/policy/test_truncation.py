"""What a conversation is left without that does not fit."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.policy.truncation import Truncated, truncate
from turnwire.server.session.calls import NO_CALLS, CallKey, pair
from turnwire.server.session.transcript import Entry, Origin
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json


def entry(item: dict[str, Any], tokens: int = 10) -> Entry:
    made = from_json(Item, json.dumps(item))
    return Entry(made.SerializeToString(), Origin.INPUT, tokens)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}


def output(name: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": "x"}


def left(room: int, *items: dict[str, Any]) -> list[str] | None:
    truncated = truncate([entry(item) for item in items], NO_CALLS, room)
    return None if truncated is None else names(truncated)


def names(truncated: Truncated) -> list[str]:
    return [name(each.item()) for each in truncated.entries]


def name(item: Item) -> str:
    kind = str(item.WhichOneof("kind"))
    return item.message.content.text if kind == "message" else f"{kind}:{getattr(item, kind).call_id}"


def test_the_oldest_go_first_and_no_more_than_must() -> None:
    items = [user("a"), said("b"), user("c"), said("d"), user("e")]
    assert left(50, *items) == ["a", "b", "c", "d", "e"]
    assert left(49, *items) == ["b", "c", "d", "e"]
    assert left(20, *items) == ["d", "e"]
    assert left(10, *items) == ["e"]


def test_the_newest_input_stays_or_nothing_fits() -> None:
    assert left(20, user("a"), said("b"), user("c"), user("d")) == ["c", "d"]
    assert left(19, user("a"), said("b"), user("c"), user("d")) is None


def test_a_call_goes_with_its_output() -> None:
    items = [user("a"), call("1"), output("1"), said("b"), user("c")]
    assert left(30, *items) == ["b", "c"]


def test_calls_that_the_newest_input_answers_stay() -> None:
    items = [user("a"), said("b"), call("1"), call("2"), output("1"), output("2")]
    assert left(40, *items) == [
        "function_call:1",
        "function_call:2",
        "function_call_output:1",
        "function_call_output:2",
    ]
    assert left(39, *items) is None


def test_what_developers_said_goes_last() -> None:
    items = [{"role": "developer", "content": "rules"}, user("a"), said("b"), user("c")]
    assert left(20, *items) == ["rules", "c"]
    assert left(10, *items) == ["c"]


def test_an_open_approval_that_is_dropped_is_open_no_more() -> None:
    asked = {"type": "mcp_approval_request", "id": "m", "server_label": "s", "name": "f", "arguments": "{}"}
    key = CallKey("mcp_approval", "m")
    entries = [entry(each) for each in (user("a"), asked, user("b"), said("c"), user("d"))]
    truncated = truncate(entries, frozenset({key}), 20)
    assert truncated is not None
    assert truncated.open_calls == NO_CALLS
    kept = truncate(entries, frozenset({key}), 50)
    assert kept is not None
    assert kept.open_calls == {key}


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 8))):
        match draw(st.integers(0, 2)):
            case 0:
                items.append(user(f"u{number}"))
            case 1:
                items.append(said(f"a{number}"))
            case _:
                count = draw(st.integers(1, 3))
                items += [call(f"{number}.{each}") for each in range(count)]
                items += [output(f"{number}.{each}") for each in draw(st.permutations(range(count)))]
    return items


@given(conversations(), st.integers(0, 250), st.lists(st.integers(1, 20), min_size=48, max_size=48))
def test_whatever_is_left_fits_and_pairs(items: list[dict[str, Any]], room: int, sizes: list[int]) -> None:
    entries = [entry(item, tokens) for item, tokens in zip(items, sizes, strict=False)]
    truncated = truncate(entries, NO_CALLS, room)
    if truncated is None:
        return
    assert truncated.tokens == sum(each.tokens for each in truncated.entries) <= room
    assert pair(NO_CALLS, [each.item() for each in truncated.entries]) == NO_CALLS
    order = [each for each in entries if each in truncated.entries]
    assert order == list(truncated.entries)
