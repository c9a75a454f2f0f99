"""Items must be whole, within their limits, and paired; what clients replay is carried as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.policy.prepare import ITEM_OVERHEAD
from turnwire.server.session.calls import CallKey
from turnwire.server.session.transcript import Origin
from turnwire.v1.item_pb2 import Item, ItemStatus, Role

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgBwAACQAIICPDjAAAAABJRU5ErkJggg=="
)
"""One grey pixel."""

USER, ASSISTANT, SYSTEM, DEVELOPER = (
    Role.ROLE_USER,
    Role.ROLE_ASSISTANT,
    Role.ROLE_SYSTEM,
    Role.ROLE_DEVELOPER,
)
TOO_LONG = "x" * 10_485_761
MISSING, VALUE, LONG = "missing_required_parameter", "invalid_value", "string_above_max_length"


def said(role: Any = USER, text: str = "hello there", **fields: Any) -> dict[str, Any]:
    return {"message": {"role": role, "content": {"text": text}, **fields}}


def parts(role: Any, *content: Any) -> dict[str, Any]:
    return {"message": {"role": role, "content": {"parts": {"parts": content}}}}


def call(call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"function_call": {"call_id": call_id, "name": "read", "arguments": "{}", **fields}}


def output(call_id: str = "c1", text: str = "done", **fields: Any) -> dict[str, Any]:
    return {"function_call_output": {"call_id": call_id, "output": {"text": text}, **fields}}


def opaque(kind: str, text: str | None = None) -> dict[str, Any]:
    return {"opaque": {"type": kind, "json": text if text is not None else json.dumps({"type": kind})}}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, MISSING, "input[1].type"),
    ({"message": {"content": {"text": "a"}}}, MISSING, "input[1].role"),
    (said(99), VALUE, "input[1].role"),
    ({"message": {"role": USER}}, MISSING, "input[1].content"),
    ({"message": {"role": USER, "content": {}}}, MISSING, "input[1].content"),
    (said(status=99), VALUE, "input[1].status"),
    (said(id="msg_" + "i" * 61), LONG, "input[1].id"),
    (said(id="at_1"), VALUE, "input[1].id"),
    ({"reasoning": {"id": "msg_1"}}, VALUE, "input[1].id"),
    ({"reasoning": {"encrypted_content": "x" * 20_971_521}}, LONG, "input[1].encrypted_content"),
    (call(id="call_1"), VALUE, "input[1].id"),
    ({"custom_tool_call": {"id": "fc_1", "call_id": "c1", "name": "p"}}, VALUE, "input[1].id"),
    (said(extra_json="{"), "invalid_json", "input[1].extra_json"),
    (said(text=TOO_LONG), LONG, "input[1].content"),
    (parts(USER, {"input_text": {"text": TOO_LONG}}), LONG, "input[1].content[0].text"),
    (parts(USER, {"input_text": {"text": "a"}}, {"output_text": {"text": "b"}}), VALUE, "input[1].content[1]"),
    (parts(SYSTEM, {"refusal": {}}), VALUE, "input[1].content[0]"),
    (parts(ASSISTANT, {"input_text": {"text": "a"}}), VALUE, "input[1].content[0]"),
    (parts(USER, {}), MISSING, "input[1].content[0].type"),
    (parts(USER, {"input_image": {}}), MISSING, "input[1].content[0].image_url"),
    (parts(USER, {"input_image": {"file_id": "f", "detail": "fine"}}), VALUE, "input[1].content[0].detail"),
    (parts(USER, {"input_file": {"filename": "a"}}), MISSING, "input[1].content[0].file_id"),
    (parts(USER, {"opaque": {"type": "input_audio", "json": "[]"}}), "invalid_type", "input[1].content[0]"),
    (parts(ASSISTANT, {"output_text": {"annotations": ["{"]}}), "invalid_json", "input[1].content[0].annotations[0]"),
    (
        parts(ASSISTANT, {"output_text": {"logprobs": [{"token": "a", "logprob": float("-inf")}]}}),
        VALUE,
        "input[1].content[0].logprobs[0].logprob",
    ),
    ({"reasoning": {"summary": [{"reasoning_text": {"text": "a"}}]}}, VALUE, "input[1].summary[0]"),
    ({"reasoning": {"content": [{"summary_text": {"text": "a"}}]}}, VALUE, "input[1].content[0]"),
    ({"reasoning": {"content": [{"reasoning_text": {"text": TOO_LONG}}]}}, LONG, "input[1].content[0].text"),
    (call(""), MISSING, "input[1].call_id"),
    (call("c" * 65), LONG, "input[1].call_id"),
    (call(name=""), MISSING, "input[1].name"),
    (call(name="n" * 129), LONG, "input[1].name"),
    (call(status=77), VALUE, "input[1].status"),
    (output(""), MISSING, "input[1].call_id"),
    ({"function_call_output": {"call_id": "c1"}}, MISSING, "input[1].output"),
    ({"function_call_output": {"call_id": "c1", "output": {}}}, MISSING, "input[1].output"),
    (output(text=TOO_LONG), LONG, "input[1].output"),
    (
        {"function_call_output": {"call_id": "c1", "output": {"parts": {"parts": [{"output_text": {}}]}}}},
        VALUE,
        "input[1].output[0]",
    ),
    ({"custom_tool_call": {"call_id": "c1"}}, MISSING, "input[1].name"),
    ({"custom_tool_call_output": {"call_id": "c1"}}, MISSING, "input[1].output"),
    ({"local_shell_call": {"action": "{}"}}, MISSING, "input[1].call_id"),
    ({"local_shell_call": {"call_id": "c1"}}, MISSING, "input[1].action"),
    ({"local_shell_call": {"call_id": "c1", "action": "ls"}}, "invalid_json", "input[1].action"),
    ({"local_shell_call_output": {"output": "a"}}, MISSING, "input[1].id"),
    ({"shell_call": {"call_id": "c1"}}, MISSING, "input[1].action"),
    ({"shell_call": {"call_id": "c1", "action": "7"}}, "invalid_type", "input[1].action"),
    ({"shell_call_output": {"call_id": "c1", "output": ["{}", "7"]}}, "invalid_type", "input[1].output[1]"),
    ({"apply_patch_call": {"call_id": "c1"}}, MISSING, "input[1].operation"),
    ({"apply_patch_call_output": {"call_id": "c1"}}, MISSING, "input[1].status"),
    (
        {"apply_patch_call_output": {"call_id": "c1", "status": ItemStatus.ITEM_STATUS_CALLING}},
        VALUE,
        "input[1].status",
    ),
    ({"tool_search_call": {"execution": "mine"}}, VALUE, "input[1].execution"),
    ({"tool_search_call": {"execution": "client"}}, MISSING, "input[1].call_id"),
    ({"tool_search_output": {"execution": "server", "tools": ["7"]}}, "invalid_type", "input[1].tools[0]"),
    ({"item_reference": {}}, MISSING, "input[1].id"),
    ({"item_reference": {"id": "rs_1"}}, "item_not_found", "input[1]"),
    # Opaque in protobuf, yet of a type that is read: checked as what it is.
    (opaque("function_call", '{"type":"function_call","call_id":"c1"}'), MISSING, "input[1].name"),
    (opaque("message", '{"type":"message","role":"user","content":7}'), "invalid_type", "input[1].content"),
    (opaque("reasoning", "{"), "invalid_json", "input[1]"),
    ({"compaction": {}}, MISSING, "input[1].encrypted_content"),
    ({"mcp_call": {"name": "a"}}, MISSING, "input[1].server_label"),
    ({"mcp_list_tools": {"server_label": "a", "tools": ["["]}}, "invalid_json", "input[1].tools[0]"),
    ({"mcp_approval_request": {"server_label": "a", "name": "b"}}, MISSING, "input[1].id"),
    ({"mcp_approval_response": {"approve": True}}, MISSING, "input[1].approval_request_id"),
    ({"web_search_call": {"action": "7"}}, "invalid_type", "input[1].action"),
    ({"computer_call": {}}, MISSING, "input[1].call_id"),
    ({"computer_call_output": {}}, MISSING, "input[1].call_id"),
    (opaque("", "{}"), MISSING, "input[1].type"),
    (opaque("program", "7"), "invalid_type", "input[1]"),
    (opaque("program", '{"type":"message"}'), VALUE, "input[1].type"),
    (opaque("program", '{"type":7}'), VALUE, "input[1].type"),
]


@pytest.mark.parametrize(("item", "code", "param"), BAD, ids=lambda value: str(value)[:60])
def test_a_bad_item_is_refused_by_its_path(refuse: Any, item: dict[str, Any], code: str, param: str) -> None:
    error = refuse(items=[said(), item])
    assert (error.code, error.param) == (code, param)
    assert len(error.message) < 500


def test_a_part_of_the_wrong_side_is_named_in_the_public_words(refuse: Any) -> None:
    error = refuse(items=[parts(ASSISTANT, {"input_text": {"text": "a"}})])
    assert error.message == "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'."


def test_an_id_of_another_kind_is_refused_in_the_public_words(refuse: Any) -> None:
    error = refuse(items=[said(id="x")])
    assert error.message == "Invalid 'input[0].id': 'x'. Expected an ID that begins with 'msg'."


def test_too_many_items_are_refused(refuse: Any, prepare: Any) -> None:
    prepare(items=[said()] * 50)
    error = refuse(items=[said()] * 51)
    assert (error.code, error.param) == ("array_above_max_length", "input")


REPLAYED: list[list[Any]] = [
    [],
    [said(ASSISTANT), said(SYSTEM), said(DEVELOPER), said(USER, "")],
    [parts(ASSISTANT), parts(ASSISTANT, {"output_text": {"text": "a"}}, {"refusal": {"refusal": "no"}})],
    [parts(USER, {"input_image": {"image_url": PNG}}, {"input_file": {"file_id": "f"}})],
    [parts(USER, opaque("input_audio")), opaque("program"), {"reasoning": {"encrypted_content": "abc"}}],
    # Ids of the client's own making.
    [said(id="msg_mine"), call(id="fc_mine"), output(id="at_1"), {"reasoning": {"id": "rs_mine"}}, said(id="")],
    [
        {"custom_tool_call": {"id": "ctc_1", "call_id": "c", "name": "p"}},
        {"custom_tool_call_output": {"id": "anything", "call_id": "c", "output": {"text": "ok"}}},
        opaque("additional_tools"),
    ],
    # The order of call and output does not matter, as in the public API.
    [output(), call()],
    [call("a"), call("b"), output("b"), output("a")],
    [call(status=ItemStatus.ITEM_STATUS_INCOMPLETE)],
    [{"local_shell_call": {"id": "lsh_1", "action": "{}"}}, {"local_shell_call_output": {"id": "lsh_1"}}],
    [{"shell_call": {"call_id": "s", "action": "{}"}}, {"shell_call_output": {"call_id": "s"}}],
    [
        {"apply_patch_call": {"call_id": "p", "operation": "{}"}},
        {"apply_patch_call_output": {"call_id": "p", "status": ItemStatus.ITEM_STATUS_FAILED}},
    ],
    [{"tool_search_call": {}}, {"tool_search_output": {}}, {"web_search_call": {}}],
    [{"mcp_call": {"server_label": "a", "name": "b", "arguments": "not json"}}],
    [{"mcp_approval_request": {"id": "mcpr_1", "server_label": "a", "name": "b"}}],
    [{"compaction": {"encrypted_content": "abc"}}],
]


@pytest.mark.parametrize("items", REPLAYED, ids=lambda value: str(value)[:60])
def test_what_a_client_may_replay_is_taken(prepare: Any, items: list[Any]) -> None:
    entries = prepare(items=items).entries
    assert [entry.item() for entry in entries] == [Item(**item) for item in items]


@pytest.mark.parametrize("arguments", ["", "{oops", "not json at all", '{"a":1}', "\x00"])
def test_arguments_are_carried_verbatim_whatever_the_model_wrote(prepare: Any, arguments: str) -> None:
    entry = prepare(items=[call(arguments=arguments), output()]).entries[0]
    assert entry.item().function_call.arguments == arguments


def test_an_output_without_a_call_is_refused_in_the_public_words(refuse: Any) -> None:
    error = refuse(items=[output("c9")])
    assert (error.code, error.param) == ("invalid_request_error", "input")
    assert error.message == "No tool call found for function call output with call_id c9."


def test_a_call_left_open_is_refused_in_the_public_words(refuse: Any) -> None:
    error = refuse(items=[said()], open_calls=frozenset({CallKey("function", "c1")}))
    assert (error.code, error.param) == ("invalid_request_error", "input")
    assert error.message == "No tool output found for function call c1."


def test_outputs_answer_the_calls_of_the_history(prepare: Any) -> None:
    ready = prepare(
        items=[output("c1")], open_calls=frozenset({CallKey("function", "c1"), CallKey("mcp_approval", "m")})
    )
    assert ready.open_calls == {CallKey("mcp_approval", "m")}


def test_entries_carry_origin_and_size(prepare: Any) -> None:
    ready = prepare(items=[said(text="one two three"), said(ASSISTANT, "four"), {"reasoning": {}}])
    assert [entry.tokens - ITEM_OVERHEAD for entry in ready.entries] == [3, 1, 0]
    assert {entry.origin for entry in ready.entries} == {Origin.INPUT}
    assert ready.turns == 1


class TestAppend:
    """An append holds what tools returned and what people said."""

    @pytest.mark.parametrize(
        "item",
        [
            output(),
            {"custom_tool_call_output": {"call_id": "c", "output": {"text": ""}}},
            {"local_shell_call_output": {"id": "lsh_1"}},
            {"shell_call_output": {"call_id": "c"}},
            {"apply_patch_call_output": {"call_id": "c", "status": ItemStatus.ITEM_STATUS_COMPLETED}},
            {"tool_search_output": {"call_id": "c", "execution": "client"}},
            {"computer_call_output": {"call_id": "c"}},
            {"mcp_approval_response": {"approval_request_id": "m"}},
            said(USER),
            said(DEVELOPER),
        ],
        ids=lambda value: str(value)[:60],
    )
    def test_outputs_and_messages_can_be_appended(self, preparer: Any, item: dict[str, Any]) -> None:
        (entry,) = preparer.prepare_append([Item(**item)])
        assert entry.origin is Origin.APPEND
        assert entry.item() == Item(**item)

    @pytest.mark.parametrize(
        "item",
        [
            said(ASSISTANT),
            said(SYSTEM),
            call(),
            {"reasoning": {}},
            {"tool_search_output": {"execution": "server"}},
            opaque("program"),
        ],
        ids=lambda value: str(value)[:60],
    )
    def test_nothing_else_can(self, refuse_append: Any, item: dict[str, Any]) -> None:
        error = refuse_append(output(), item)
        assert (error.code, error.param) == ("invalid_value", "input[1]")

    def test_nothing_at_all_is_no_append(self, refuse_append: Any) -> None:
        error = refuse_append()
        assert (error.code, error.param) == ("missing_required_parameter", "input")

    @pytest.mark.parametrize(
        ("item", "code", "param"),
        [
            ({}, MISSING, "input[1].type"),
            (output(""), MISSING, "input[1].call_id"),
            ({"function_call_output": {"call_id": "c"}}, MISSING, "input[1].output"),
            (said(0), MISSING, "input[1].role"),
        ],
        ids=lambda value: str(value)[:60],
    )
    def test_items_are_checked_as_in_a_create(
        self, refuse_append: Any, item: dict[str, Any], code: str, param: str
    ) -> None:
        error = refuse_append(output(), item)
        assert (error.code, error.param) == (code, param)
