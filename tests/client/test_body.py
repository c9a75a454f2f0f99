"""What an application may write for a create."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest

from turnwire.client import assistant, custom_tool, developer, function_tool, image_part, item_reference, system, user
from turnwire.client._body import CreateFields, build_create, build_input, build_items
from turnwire.client.items import custom_tool_call_output, function_call_output, text_part
from turnwire.v1.item_pb2 import Item, Role
from turnwire.v1.response_pb2 import Input, ReasoningConfig, Timeouts, Verbosity
from turnwire.v1.tool_pb2 import ToolChoice, ToolChoiceMode, ToolSet


def test_text_stays_text() -> None:
    assert build_create({"input": "hi"}).input.text == "hi"


def test_items_may_be_messages_or_dicts() -> None:
    body = build_create({"input": [user("a"), {"role": "user", "content": "b"}]})
    assert [item.message.content.text for item in body.input.items.items] == ["a", "b"]


def test_an_empty_list_is_not_the_same_as_nothing() -> None:
    assert build_create({"input": []}).input.HasField("items")
    assert not build_create({"input": None}).HasField("input")


def test_tools_may_be_messages_or_dicts_and_keep_their_schemas_bytes() -> None:
    schema = '{"b": 1,  "a": 2}'
    body = build_create(
        {"tools": [function_tool("f", parameters=schema), {"type": "function", "name": "g"}, custom_tool("h")]}
    )
    assert [tool.WhichOneof("kind") for tool in body.tools.tools] == ["function", "function", "custom"]
    assert body.tools.tools[0].function.parameters == schema
    assert function_tool("f", parameters={"b": 1, "a": 2}).function.parameters == '{"b":1,"a":2}'
    assert build_create({"tools": ToolSet()}).HasField("tools")


def test_objects_may_be_dicts_in_the_official_shape() -> None:
    body = build_create(
        {
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"a": 1}}},
            "tool_choice": {"type": "function", "name": "f"},
            "client_metadata": {"a": 1},
            "context_management": [{"type": "compaction"}, '{"raw": true}'],
        }
    )
    assert body.reasoning == ReasoningConfig(effort="low")
    assert body.text.format.json_schema.schema == '{"a":1}'
    assert body.tool_choice.named.name == "f"
    assert body.client_metadata == '{"a":1}'
    assert list(body.context_management) == ['{"type":"compaction"}', '{"raw": true}']


def test_choices_may_be_words_or_messages() -> None:
    assert build_create({"tool_choice": "required"}).tool_choice.mode == ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED
    choice = ToolChoice(mode=ToolChoiceMode.TOOL_CHOICE_MODE_NONE)
    assert build_create({"tool_choice": choice}).tool_choice == choice
    assert build_create({"verbosity": "items"}).verbosity == Verbosity.VERBOSITY_ITEMS
    assert build_create({"verbosity": Verbosity.VERBOSITY_FULL}).verbosity == Verbosity.VERBOSITY_FULL


def test_timeouts_are_seconds() -> None:
    body = build_create({"timeouts": {"total": 1.5, "hold": timedelta(minutes=1)}})
    assert body.timeouts.total.ToTimedelta() == timedelta(seconds=1.5)
    assert body.timeouts.hold.seconds == 60
    assert build_create({"timeouts": Timeouts()}).HasField("timeouts")


def test_scalars_lists_and_maps_go_through() -> None:
    body = build_create(
        {"temperature": 0.0, "store": False, "stop": ["x"], "metadata": {"k": "v"}, "logit_bias": {"7": 1.0}}
    )
    assert body.HasField("temperature")
    assert body.HasField("store")
    assert not body.store
    assert list(body.stop) == ["x"]
    assert body.metadata["k"] == "v"
    assert body.logit_bias["7"] == 1.0


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(TypeError, match="no field 'temprature'"):
        build_create(cast("CreateFields", {"temprature": 1}))


def test_an_unknown_verbosity_is_named() -> None:
    with pytest.raises(ValueError, match="no verbosity 'loud'; choose one of full, deltas, items, done"):
        build_create(cast("CreateFields", {"verbosity": "loud"}))


def test_a_dict_that_is_no_item_is_refused_with_its_path() -> None:
    with pytest.raises(ValueError, match=r"^role: Invalid value: 'nobody'"):
        build_items([{"type": "message", "role": "nobody", "content": "x"}])


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("input", 5, TypeError),
        ("input", [5], TypeError),
        ("input", [{"role": "nobody", "content": "x"}], ValueError),
        ("input", "\ud800", ValueError),
        ("tools", 5, TypeError),
        ("tools", "x", TypeError),
        ("metadata", 5, TypeError),
        ("metadata", {"a": 1}, TypeError),
        ("temperature", "hot", TypeError),
        ("timeouts", 5, TypeError),
        ("timeouts", {"total": "x"}, TypeError),
        ("timeouts", {"totl": 1.0}, ValueError),
        ("timeouts", {"total": 1e30}, ValueError),
        ("max_output_tokens", 2**40, ValueError),
        ("stop", "x", TypeError),
        ("include", "x", TypeError),
        ("reset", "tools", TypeError),
        ("context_management", '{"type": "compaction"}', TypeError),
        ("text", "x", TypeError),
        ("text", {"verbosity": 5}, ValueError),
        ("reasoning", ToolChoice(), TypeError),
        ("tool_choice", "sometimes", ValueError),
        ("token_output", Input(), TypeError),
        ("client_metadata", 5, TypeError),
        ("hold", "yes", TypeError),
    ],
)
def test_a_value_that_a_field_does_not_take_is_refused_under_its_name(
    field: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"^{field}: "):
        build_create(cast("CreateFields", {field: value}))


def test_one_item_stands_for_a_list_of_one() -> None:
    assert build_items(user("x")) == [user("x")]
    assert build_items({"role": "user", "content": "x"})[0].message.role == Role.ROLE_USER


def test_an_input_message_is_taken_as_it_is() -> None:
    given = Input(text="x")
    assert build_input(given) is given


def test_the_constructors_build_what_they_say() -> None:
    roles = [build(" ").message.role for build in (user, developer, system, assistant)]
    assert roles == [Role.ROLE_USER, Role.ROLE_DEVELOPER, Role.ROLE_SYSTEM, Role.ROLE_ASSISTANT]
    parts = user([text_part("look"), image_part("data:,", detail="low")]).message.content.parts.parts
    assert [part.WhichOneof("kind") for part in parts] == ["input_text", "input_image"]
    output = function_call_output("c", [text_part("x")]).function_call_output
    assert output.output.parts.parts[0].input_text.text == "x"
    assert custom_tool_call_output("c", "x").custom_tool_call_output.output.text == "x"
    assert item_reference("msg_1") == Item(item_reference=item_reference("msg_1").item_reference)
