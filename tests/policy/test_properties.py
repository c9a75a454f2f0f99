"""Whatever arrives, the answer is entries or a refusal; and what is taken can be said as public JSON."""

from __future__ import annotations

import contextlib
import functools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import jsonschema
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.server.policy.prepare import Preparer
from turnwire.server.policy.schema_shape import is_common
from turnwire.server.policy.schemas import Schemas
from turnwire.server.session.effects import Prepare
from turnwire.server.session.settings import effective, input_items
from turnwire.server.session.toolsets import ToolSets
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import to_json
from turnwire.v1.response_pb2 import Input, ResponseCreate

bounded = settings(max_examples=150, derandomize=True, deadline=None, database=None)

WORDS = [
    *("", "a", "echo", "function", "auto", "client", "low", "é\x00\n", "x" * 70, "{}", "[]", "null", "7", '"s"', "{"),
    *(
        '{"type":"object"}',
        '{"type":"a"}',
        '{"type":7}',
        '{"minimum":1e999}',
        "[" * 300,
        '{"a":' * 150 + "1" + "}" * 150,
    ),
    *('{"type":"function","name":"a"}', '{"type":"grammar","syntax":"lark"}', '{"enum":[1,1],"required":["a","a"]}'),
]
texts = st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@functools.cache
def message_of(descriptor: Descriptor, depth: int) -> st.SearchStrategy[Message]:
    """Any message of a type: known fields with any value that protobuf can carry, sound or not."""
    fields = [field for field in descriptor.fields if depth or field.message_type is None]
    chosen = st.lists(st.sampled_from(fields), unique=True, max_size=4) if fields else st.just([])
    contents = chosen.flatmap(lambda names: st.fixed_dictionaries({f.name: value_of(f, depth) for f in names}))
    return contents.map(lambda content: cast("Any", GetMessageClass(descriptor))(**content))


def value_of(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
    if entry:
        return st.dictionaries(texts, one_of(entry.fields_by_name["value"], depth), max_size=3)
    return st.lists(one_of(field, depth), max_size=3) if field.is_repeated else one_of(field, depth)


def one_of(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type:
        return message_of(field.message_type, depth - 1)
    if field.type == FieldDescriptor.TYPE_STRING:
        return texts
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_ENUM:
        return st.integers(0, 9) | st.just(-1)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return st.floats() | st.sampled_from([0.0, 1.0])
    small = 31 if field.type == FieldDescriptor.TYPE_INT32 else 63
    return st.integers(-(2**small), 2**small - 1) | st.integers(0, 20)


creates = cast("st.SearchStrategy[ResponseCreate]", message_of(ResponseCreate.DESCRIPTOR, 8))
items = cast("st.SearchStrategy[Item]", message_of(Item.DESCRIPTOR, 7))


def attempt(preparer: Preparer, create: ResponseCreate, sets: ToolSets) -> bool:
    """Prepares a create as the core would; returns whether it was taken, after writing all of it as JSON."""
    settings_, tools = effective(create, None, sets)
    new = input_items(create.input)
    try:
        ready = preparer.prepare(Prepare(1, new, settings_, tools, frozenset(), 0))
    except RequestError:
        return False
    assert len(ready.entries) == len(new)
    for message in (settings_, tools.parsed(), *(entry.item() for entry in ready.entries)):
        json.loads(to_json(message, fill=True))
    return True


@bounded
@given(create=creates)
def test_any_create_is_taken_or_refused(preparer: Preparer, create: ResponseCreate) -> None:
    create.ClearField("prompt")
    create.ClearField("conversation")
    create.model = "echo"
    attempt(preparer, create, ToolSets())


@bounded
@given(create=creates, item=items)
def test_any_item_is_taken_or_refused(preparer: Preparer, create: ResponseCreate, item: Item) -> None:
    fresh = ResponseCreate(model="echo", tools=create.tools)
    fresh.input.items.items.append(item)
    attempt(preparer, fresh, ToolSets())
    with contextlib.suppress(RequestError):
        preparer.prepare_append([item])


keywords = st.sampled_from(
    [
        *(
            "type",
            "properties",
            "required",
            "items",
            "enum",
            "anyOf",
            "not",
            "minLength",
            "multipleOf",
            "$ref",
            "const",
        ),
        *("additionalProperties", "$defs", "default", "minimum", "uniqueItems", "description", "examples", "$schema"),
    ]
)
drafts = [
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
leaves = st.sampled_from(["string", "object", "", "a", *drafts, 0, 1, -1, 1.0, 0.5, True, False, None]) | st.integers()


def nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from(["a", "type"]), inner, max_size=2)
    return st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=3) | named


documents = st.dictionaries(keywords, st.recursive(leaves, nest, max_leaves=8), max_size=3)


@settings(bounded, max_examples=400)
@given(schema=documents)
def test_the_shortcut_finds_no_schema_valid_that_the_library_does_not(schema: dict[str, Any]) -> None:
    if is_common(json.dumps(schema)):
        for draft in (jsonschema.Draft7Validator, jsonschema.Draft201909Validator, jsonschema.Draft202012Validator):
            draft.check_schema(schema, format_checker=jsonschema.FormatChecker(formats=()))


@settings(bounded, max_examples=200)
@given(schema=documents)
def test_any_schema_gets_a_verdict_that_is_remembered(schema: dict[str, Any]) -> None:
    schemas = Schemas()
    text = json.dumps(schema)
    assert schemas.check(text) is schemas.check(text)


def test_an_ordinary_tool_takes_the_shortcut() -> None:
    assert is_common(
        json.dumps(
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {"a": {"type": ["string", "null"], "enum": ["x", None]}, "b": {"$ref": "#/$defs/B"}},
                "required": ["a"],
                "additionalProperties": False,
                "$defs": {"B": {"anyOf": [{"type": "integer", "minimum": 0}, {"items": {"type": "number"}}]}},
            }
        )
    )


@pytest.mark.parametrize("schema", [{"type": "object", "x": 1}, {"type": []}, {"required": ["a", "a"]}, {"anyOf": []}])
def test_anything_else_is_left_to_the_library(schema: dict[str, Any]) -> None:
    assert not is_common(json.dumps(schema))


def test_one_set_can_be_prepared_from_many_threads(preparer: Preparer) -> None:
    sets = ToolSets()
    create = ResponseCreate(model="echo", input=Input(text="hi"))
    for n in range(10):
        create.tools.tools.add().function.name = f"f{n}"
        create.tools.tools[n].function.parameters = json.dumps({"type": "object", "x": n})
    with ThreadPoolExecutor(8) as threads:
        runs = [threads.submit(attempt, preparer, create, sets) for _ in range(32)]
        assert all(run.result() for run in runs)
