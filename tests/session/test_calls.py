from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.session.calls import FAMILIES, CallKey, answered_by, opened_by, pair, require_answered, to_answer
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import Item

_CALLS: dict[str, dict[str, Any]] = {
    "function": {"function_call": {"call_id": "ID"}},
    "custom": {"custom_tool_call": {"call_id": "ID"}},
    "local_shell": {"local_shell_call": {"call_id": "ID"}},
    "shell": {"shell_call": {"call_id": "ID"}},
    "apply_patch": {"apply_patch_call": {"call_id": "ID"}},
    "tool_search": {"tool_search_call": {"call_id": "ID", "execution": "client"}},
    "computer": {"computer_call": {"call_id": "ID"}},
    "mcp_approval": {"mcp_approval_request": {"id": "ID"}},
}
_OUTPUTS: dict[str, dict[str, Any]] = {
    "function": {"function_call_output": {"call_id": "ID"}},
    "custom": {"custom_tool_call_output": {"call_id": "ID"}},
    "local_shell": {"local_shell_call_output": {"id": "ID"}},
    "shell": {"shell_call_output": {"call_id": "ID"}},
    "apply_patch": {"apply_patch_call_output": {"call_id": "ID"}},
    "tool_search": {"tool_search_output": {"call_id": "ID", "execution": "client"}},
    "computer": {"computer_call_output": {"call_id": "ID"}},
    "mcp_approval": {"mcp_approval_response": {"approval_request_id": "ID"}},
}

keys = st.builds(CallKey, st.sampled_from(sorted(FAMILIES)), st.sampled_from(["a", "b", "c"]))


def item(shapes: dict[str, dict[str, Any]], key: CallKey) -> Item:
    ((kind, fields),) = shapes[key.family].items()
    return ParseDict({kind: {k: key.id if v == "ID" else v for k, v in fields.items()}}, Item())


def test_every_family_is_covered_here() -> None:
    assert set(_CALLS) == set(_OUTPUTS) == set(FAMILIES)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_call_and_its_output_name_the_same_key(family: str) -> None:
    key = CallKey(family, "x")
    assert opened_by(item(_CALLS, key)) == key
    assert answered_by(item(_OUTPUTS, key)) == key
    assert opened_by(item(_OUTPUTS, key)) is None
    assert answered_by(item(_CALLS, key)) is None


@given(st.frozensets(keys), st.lists(st.tuples(st.booleans(), keys)))
def test_pairing_is_arithmetic_whatever_the_order(before: frozenset[CallKey], new: list[tuple[bool, CallKey]]) -> None:
    calls = Counter(key for is_call, key in new if is_call)
    outputs = Counter(key for is_call, key in new if not is_call)
    items = [item(_CALLS if is_call else _OUTPUTS, key) for is_call, key in new]
    available = Counter(before) + calls
    if any(count > available[key] for key, count in outputs.items()):
        with pytest.raises(RequestError):
            pair(before, items)
    else:
        assert pair(before, items) == frozenset(available - outputs)


@given(st.lists(st.frozensets(keys, min_size=1)))
def test_what_can_be_said_turn_by_turn_can_be_replayed_at_once(turns: list[frozenset[CallKey]]) -> None:
    left: frozenset[CallKey] = frozenset()
    replayed: list[Item] = []
    for called in turns:
        new = [item(_CALLS, key) for key in called], [item(_OUTPUTS, key) for key in called]
        for items in new:
            left = pair(left, items)
            replayed += items
    assert left == pair(frozenset(), replayed) == frozenset()


@given(st.frozensets(keys), st.lists(keys, unique=True))
def test_outputs_may_come_in_any_number_of_steps(before: frozenset[CallKey], order: list[CallKey]) -> None:
    whole = before | frozenset(order)
    left = whole
    for key in order:
        left = pair(left, [item(_OUTPUTS, key)])
    assert left == pair(whole, [item(_OUTPUTS, key) for key in order])


@given(st.frozensets(keys))
def test_only_approvals_may_stay_open(open_calls: frozenset[CallKey]) -> None:
    owed = [key for key in open_calls if key.family != "mcp_approval"]
    assert sorted(to_answer(open_calls)) == sorted(owed)
    if owed:
        with pytest.raises(RequestError, match="No tool output found for"):
            require_answered(open_calls)
    else:
        require_answered(open_calls)


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "shell_call", "apply_patch_call"])
def test_a_call_that_was_cut_short_opens_nothing(kind: str) -> None:
    cut = ParseDict({kind: {"call_id": "x", "status": "ITEM_STATUS_INCOMPLETE"}}, Item())
    assert opened_by(cut) is None


def test_a_search_that_the_server_executed_needs_no_output() -> None:
    assert opened_by(ParseDict({"tool_search_call": {"call_id": "x"}}, Item())) is None
    assert answered_by(ParseDict({"tool_search_output": {"call_id": "x"}}, Item())) is None


def test_an_older_shell_call_is_named_by_its_id_where_it_has_no_call_id() -> None:
    call = ParseDict({"local_shell_call": {"id": "lsh_1"}}, Item())
    output = ParseDict({"local_shell_call_output": {"id": "lsh_1"}}, Item())
    assert opened_by(call) == answered_by(output)
