"""Folds official events into a response, the plain way a client would, and checks their order on the way.

Above it: the tests. Below it: nothing of the server's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

Event = dict[str, Any]

_CHANGING: Final = ("status", "output", "usage", "completed_at", "error", "incomplete_details", "service_tier")
"""What the terminal event says anew."""
_SEALED: Final = ("status", "encrypted_content")
"""What a finished item says anew."""
_TERMINAL: Final = ("response.completed", "response.incomplete", "response.failed")


class Fold:
    """One response."""

    def __init__(self) -> None:
        self.response: dict[str, Any] = {}
        self.items: list[dict[str, Any]] = []
        self._open = False
        """Whether the last item is not finished."""

    def take(self, event: Event) -> None:
        """Takes the next event."""
        kind: str = event["type"]
        assert kind.startswith("response.")
        name = kind.removeprefix("response.").replace(".", "_")
        if "output_index" in event and name != "output_item_added":
            # Strictly one item after the other.
            assert self._open
            assert event["output_index"] == len(self.items) - 1
        if "item_id" in event:
            assert event["item_id"] == self.items[-1]["id"]
        handler: Callable[[Event], None] = getattr(self, f"_{name}")
        handler(event)

    def _created(self, event: Event) -> None:
        assert not self.response
        self.response = copy.deepcopy(event["response"])
        assert self.response["output"] == []
        assert self.response["usage"] is None

    def _in_progress(self, event: Event) -> None:
        assert event["response"] == self.response

    def _output_item_added(self, event: Event) -> None:
        assert not self._open
        assert event["output_index"] == len(self.items)
        self.items.append(copy.deepcopy(event["item"]))
        self._open = True

    def _output_item_done(self, event: Event) -> None:
        folded, said = copy.deepcopy(self.items[-1]), copy.deepcopy(event["item"])
        for item in (folded, said):
            for key in _SEALED:
                item.pop(key, None)
            if item["type"] == "reasoning":
                # A reasoning item has content from its first part on, and an empty list when it is announced.
                item.setdefault("content", [])
        assert folded == said
        self.items[-1] = copy.deepcopy(event["item"])
        self._open = False

    def _part(self, event: Event) -> dict[str, Any]:
        part: dict[str, Any] = self.items[-1]["content"][event["content_index"]]
        return part

    def _content_part_added(self, event: Event) -> None:
        assert event["content_index"] == len(self.items[-1]["content"])
        self.items[-1]["content"].append(copy.deepcopy(event["part"]))

    def _content_part_done(self, event: Event) -> None:
        assert event["part"] == self._part(event)

    def _output_text_delta(self, event: Event) -> None:
        self._part(event)["text"] += event["delta"]

    def _output_text_done(self, event: Event) -> None:
        assert event["text"] == self._part(event)["text"]

    _reasoning_text_delta = _output_text_delta
    _reasoning_text_done = _output_text_done

    def _refusal_delta(self, event: Event) -> None:
        self._part(event)["refusal"] += event["delta"]

    def _refusal_done(self, event: Event) -> None:
        assert event["refusal"] == self._part(event)["refusal"]

    def _reasoning_summary_part_added(self, event: Event) -> None:
        assert event["summary_index"] == len(self.items[-1]["summary"])
        self.items[-1]["summary"].append(copy.deepcopy(event["part"]))

    def _reasoning_summary_text_delta(self, event: Event) -> None:
        self.items[-1]["summary"][event["summary_index"]]["text"] += event["delta"]

    def _reasoning_summary_text_done(self, event: Event) -> None:
        assert event["text"] == self.items[-1]["summary"][event["summary_index"]]["text"]

    def _reasoning_summary_part_done(self, event: Event) -> None:
        assert event["part"] == self.items[-1]["summary"][event["summary_index"]]

    def _function_call_arguments_delta(self, event: Event) -> None:
        self.items[-1]["arguments"] += event["delta"]

    def _function_call_arguments_done(self, event: Event) -> None:
        assert event["arguments"] == self.items[-1]["arguments"]

    def _custom_tool_call_input_delta(self, event: Event) -> None:
        self.items[-1]["input"] += event["delta"]

    def _custom_tool_call_input_done(self, event: Event) -> None:
        assert event["input"] == self.items[-1]["input"]

    def _completed(self, event: Event) -> None:
        assert not self._open
        self.response["output"] = self.items
        for key in _CHANGING:
            if key != "output":
                self.response[key] = event["response"][key]

    _incomplete = _completed

    def _failed(self, event: Event) -> None:
        if self._open:
            # What was being said when it failed has no end.
            self.items.pop()
            self._open = False
        self._completed(event)


def folded(events: list[Event]) -> dict[str, Any]:
    """Folds a whole stream, and checks its numbers and its end."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events if event["type"] in _TERMINAL] == [events[-1]["type"]]
    assert all("stream_id" not in event for event in events)
    fold = Fold()
    for event in events:
        fold.take(event)
    return fold.response
