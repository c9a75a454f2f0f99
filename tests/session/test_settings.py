from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from turnwire.server.session.settings import INHERITABLE, check_reset, effective, input_items, prewarms
from turnwire.server.session.state import State
from turnwire.server.session.toolsets import NO_TOOLS, ToolSets
from turnwire.server.session.transcript import EMPTY
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import RequestError
from turnwire.v1.response_pb2 import Input, ResponseCreate, ResponseStatus
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolSet

VALUES: dict[str, tuple[Any, Any]] = {
    "model": ("m1", "m2"),
    "instructions": ("one", ""),
    "tool_choice": ({"mode": "TOOL_CHOICE_MODE_REQUIRED"}, {"mode": "TOOL_CHOICE_MODE_NONE"}),
    "parallel_tool_calls": (True, False),
    "reasoning": ({"effort": "low"}, {"summary": "auto"}),
    "text": ({"verbosity": "low"}, {"verbosity": "high"}),
    "temperature": (0.5, 0.0),
    "top_p": (0.5, 0.0),
    "truncation": ("auto", "disabled"),
    "include": (["a"], ["b", "c"]),
    "top_k": (5, 6),
    "min_p": (0.5, 0.0),
    "repetition_penalty": (1.5, 1.0),
    "presence_penalty": (1.5, 0.0),
    "frequency_penalty": (1.5, 0.0),
    "stop": (["x"], ["y"]),
    "seed": ("1", "0"),
    "logit_bias": ({"1": 2.0}, {"3": 4.0}),
}
"""A value of the previous request, and another of the request at hand, by setting."""

NEVER = {
    "input": {"text": "x"},
    "metadata": {"k": "v"},
    "store": False,
    "background": False,
    "hold": True,
    "generate": True,
    "max_output_tokens": 100,
    "max_tool_calls": 3,
    "timeouts": {"hold": "5s"},
    "verbosity": "VERBOSITY_DONE",
    "echo": True,
    "previous_response_id": "resp_0",
    "prompt_cache_key": "k",
    "user": "u",
}


def create(**body: Any) -> ResponseCreate:
    return ParseDict(body, ResponseCreate())


def parent_of(settings: ResponseCreate, tools: ToolSet | None = None) -> State:
    sets = ToolSets()
    kept = ResponseCreate()
    kept.CopyFrom(settings)
    return State(
        id="resp_1",
        principal="",
        lane="",
        parent_id="",
        model=settings.model,
        created_at=0.0,
        completed_at=None,
        status=ResponseStatus.RESPONSE_STATUS_COMPLETED,
        settings=kept.SerializeToString(),
        tools=sets.intern(tools) if tools else NO_TOOLS,
        transcript=EMPTY,
        input=(),
        before=EMPTY,
        usage=b"",
        context_tokens=0,
    )


def shown(settings: ResponseCreate) -> dict[str, Any]:
    return MessageToDict(settings, preserving_proto_field_name=True)


def test_the_table_covers_every_setting_that_is_inherited() -> None:
    assert set(VALUES) == set(INHERITABLE)


@pytest.mark.parametrize("name", INHERITABLE)
def test_a_setting_is_inherited_replaced_or_reset(name: str) -> None:
    before, now = VALUES[name]
    parent = parent_of(create(**{name: before}))
    inherited, _ = effective(create(inherit=True), parent, ToolSets())
    assert shown(inherited)[name] == before
    replaced, _ = effective(create(inherit=True, **{name: now}), parent, ToolSets())
    assert shown(replaced)[name] == now
    reset, _ = effective(create(inherit=True, reset=[name]), parent, ToolSets())
    assert name not in shown(reset)
    anew, _ = effective(create(inherit=True, reset=[name], **{name: now}), parent, ToolSets())
    assert shown(anew)[name] == now
    without, _ = effective(create(), parent, ToolSets())
    assert name not in shown(without)
    nothing, _ = effective(create(inherit=True), None, ToolSets())
    assert name not in shown(nothing)


@pytest.mark.parametrize("name", sorted(NEVER))
def test_other_settings_are_never_inherited(name: str) -> None:
    inherited, _ = effective(create(inherit=True), parent_of(create(**{name: NEVER[name]})), ToolSets())
    assert set(shown(inherited)) == {"inherit"}


def test_tools_are_inherited_replaced_or_reset() -> None:
    some = ToolSet(tools=[Tool(function=FunctionTool(name="f"))])
    parent = parent_of(create(), some)
    sets = ToolSets()
    assert effective(create(inherit=True), parent, sets)[1] is parent.tools
    assert effective(create(inherit=True, reset=["tools"]), parent, sets)[1] is NO_TOOLS
    assert effective(create(inherit=True, tools={"tools": []}), parent, sets)[1] is NO_TOOLS
    assert effective(create(), parent, sets)[1] is NO_TOOLS
    other = effective(create(inherit=True, tools={"tools": [{"function": {"name": "g"}}]}), parent, sets)[1]
    assert [tool.function.name for tool in other.parsed().tools] == ["g"]


def test_equal_tool_sets_are_one_object() -> None:
    sets = ToolSets()
    one = sets.intern(ToolSet(tools=[Tool(function=FunctionTool(name="f"))]))
    assert sets.intern(ToolSet(tools=[Tool(function=FunctionTool(name="f"))])) is one
    assert sets.intern(ToolSet(tools=[Tool(function=FunctionTool(name="g"))])) is not one
    assert sets.intern(ToolSet()) is NO_TOOLS


def test_input_and_tools_are_not_kept_with_the_settings() -> None:
    body = create(input={"text": "x" * 100}, tools={"tools": [{"function": {"name": "f"}}]}, temperature=1.0)
    settings, _ = effective(body, None, ToolSets())
    assert shown(settings) == {"temperature": 1.0}


@pytest.mark.parametrize("reset", [["metadata"], ["top_p", "hold"], ["no such thing"]])
def test_only_what_is_inherited_can_be_reset(reset: list[str]) -> None:
    with pytest.raises(RequestError) as refusal:
        check_reset(create(inherit=True, reset=reset))
    assert refusal.value.error.param == f"reset[{len(reset) - 1}]"


def test_text_is_one_user_message_and_no_input_no_item() -> None:
    (item,) = input_items(Input(text="hi"))
    assert item.message.content.text == "hi"
    assert input_items(Input()) == []


@pytest.mark.parametrize(
    ("body", "warm"),
    [
        ({}, False),
        ({"generate": True}, False),
        ({"generate": False}, True),
        ({"prompt_cache_options": '{ "prewarm" : true }'}, True),
        ({"prompt_cache_options": '{"prewarm": false}'}, False),
    ],
)
def test_a_warm_up_is_asked_for_in_two_ways(body: dict[str, Any], warm: bool) -> None:
    assert prewarms(ConnectRequest(create=create(**body))) is warm
