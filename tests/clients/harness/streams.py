"""What every official event stream must be like, whatever was asked.

Above it: the tests that record streams. Below it: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

Event = dict[str, Any]
_WHOLE: Final = {
    "response.output_text": "text",
    "response.reasoning_text": "text",
    "response.refusal": "refusal",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.reasoning_summary_text": "text",
}
"""Prefixes of events whose deltas add up to a field of the one that ends in `.done`."""


def check_stream(events: Sequence[Event]) -> None:
    """Checks a whole stream: numbers, the order of items, that deltas add up, and that the end repeats all of it.

    Raises:
        AssertionError: Something is not as it must be.
    """
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    first, last = events[0], events[-1]
    assert first["type"] == "response.created"
    assert last["type"] in ("response.completed", "response.incomplete", "response.failed"), last
    assert first["response"]["id"] == last["response"]["id"]
    assert (first["response"]["output"], first["response"]["usage"]) == ([], None)
    done: list[Event] = []
    joined: dict[tuple[Any, ...], str] = {}
    for event in events[1:-1]:
        prefix, _, ending = event["type"].rpartition(".")
        index = event.get("output_index", len(done))
        assert index == len(done), f"{event['type']} of item {index} while item {len(done)} is open"
        place = (prefix, event.get("item_id"), event.get("content_index"), event.get("summary_index"))
        if event["type"] == "response.output_item.added":
            assert event["item"]["id"]
        elif event["type"] == "response.output_item.done":
            done.append(event["item"])
        elif ending == "delta":
            joined[place] = joined.get(place, "") + event["delta"]
        elif ending == "done" and prefix in _WHOLE:
            assert event[_WHOLE[prefix]] == joined.get(place, "")
    if last["type"] != "response.failed":
        assert last["response"]["output"] == done
