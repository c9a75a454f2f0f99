"""Which items are the same to a model, and that nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.session.marks import NOTHING_SAID, UNKNOWN, Marker, follow
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json

MARKER = Marker(bytes(range(32)))
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
SEARCH = {"type": "web_search_call", "action": {"type": "search", "query": "q"}}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}

OTHER = IMAGE | {"image_url": "data:image/png;base64,AAAB"}


def mark(item: dict[str, Any], marker: Marker = MARKER) -> bytes:
    return marker.mark(from_json(Item, json.dumps(item)))


def said(text: str, **more: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], **more}
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}


@pytest.mark.parametrize(
    ("kept", "sent"),
    [
        (said("hello"), {"role": "assistant", "content": "hello"}),
        (said("hello"), said("hello", annotations=[{"type": "url_citation", "url": "http://a"}])),
        (said("hello") | {"phase": "final_answer"}, {"role": "assistant", "content": "hello"}),
        (
            {"role": "user", "content": "hi"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        ),
        (
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            {"type": "function_call_output", "id": "fco_1", "call_id": "c", "status": "completed", "output": "x"},
        ),
        (
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]},
            {
                "type": "reasoning",
                "id": "rs_2",
                "summary": [{"type": "summary_text", "text": "left out of prompts"}],
                "content": [{"type": "reasoning_text", "text": "so"}],
                "encrypted_content": "zzz",
            },
        ),
        (
            {"role": "user", "content": [OTHER | {"detail": "auto"}]},
            {"role": "user", "content": [{key: value for key, value in OTHER.items() if key != "detail"}]},
        ),
        (
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "web_search_call", "id": "ws_2", "action": {"type": "search", "query": "q"}},
        ),
    ],
)
def test_what_clients_drop_or_rewrite_makes_no_difference(kept: dict[str, Any], sent: dict[str, Any]) -> None:
    assert mark(kept) == mark(sent) != UNKNOWN


DIFFERENT: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": "hi "},
    {"role": "user", "content": "Hi"},
    {"role": "user", "content": ""},
    {"role": "assistant", "content": "hi"},
    {"role": "developer", "content": "hi"},
    {"role": "system", "content": "hi"},
    {"role": "user", "content": [{"type": "input_text", "text": "h"}, {"type": "input_text", "text": "i"}]},
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}, IMAGE]},
    {"role": "user", "content": [IMAGE, {"type": "input_text", "text": "hi"}]},
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}, IMAGE | {"detail": "high"}]},
    {
        "role": "user",
        "content": [{"type": "input_text", "text": "hi"}, IMAGE | {"image_url": "data:image/png;base64,AAAB"}],
    },
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_image", "file_id": "file_1"}]},
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_file", "file_id": "file_1"}]},
    {"role": "user", "content": []},
    said("hi") | {"phase": "commentary"},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "hi"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{ }"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "incomplete"},
    {"type": "function_call", "call_id": "cf", "name": "", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
    {"type": "function_call_output", "call_id": "d", "output": "x"},
    {"type": "function_call_output", "call_id": "c", "output": [IMAGE]},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
    {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
    {"type": "reasoning", "summary": [], "encrypted_content": "sealee"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}], "encrypted_content": "sealed"},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "sealed"}]},
    {"type": "reasoning", "summary": []},
    {"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call", "id": "lsh_2", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"},
    {"type": "apply_patch_call_output", "call_id": "c", "status": "failed"},
    {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True},
    {"type": "mcp_approval_response", "approval_request_id": "m", "approve": False},
    {"type": "compaction", "encrypted_content": "sealed"},
    {"type": "image_generation_call", "id": "ig_1", "result": "a"},
    {"type": "image_generation_call", "id": "ig_1", "result": "b"},
]


def test_whatever_a_model_could_tell_apart_has_a_mark_of_its_own() -> None:
    marks = [mark(item) for item in DIFFERENT]
    assert UNKNOWN not in marks
    assert len(set(marks)) == len(DIFFERENT)


def test_what_stands_for_something_else_has_no_mark() -> None:
    assert mark({"type": "item_reference", "id": "msg_1"}) == UNKNOWN
    assert MARKER.mark(Item()) == UNKNOWN


def test_marks_of_another_key_are_others() -> None:
    item = {"role": "user", "content": "hi"}
    assert mark(item) != mark(item, Marker(bytes(32)))


@given(st.text(max_size=20), st.integers(0, 19), st.characters(exclude_categories=["Cs"]))
def test_a_single_changed_character_changes_the_mark(text: str, at: int, new: str) -> None:
    changed = text[:at] + new + text[at + 1 :]
    one, other = ({"role": "user", "content": each} for each in (text, changed))
    assert (mark(one) == mark(other)) == (text == changed)


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=6), st.integers(0, 6))
def test_a_running_hash_is_the_same_however_it_was_cut_into_steps(marks: list[bytes], cut: int) -> None:
    whole = follow(NOTHING_SAID, marks)
    assert follow(follow(NOTHING_SAID, marks[:cut]), marks[cut:]) == whole
    assert follow(whole, [b"x" * 16]) != whole


def test_an_item_without_a_mark_makes_all_that_follows_unknown() -> None:
    assert follow(follow(NOTHING_SAID, [UNKNOWN]), [b"x" * 16]) == UNKNOWN
