"""Strategies that derive messages, and JSON objects with what they should become, from the shapes of the schema."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from turnwire.v1.json.plan import Field, Form, Kind, Member, Shape, reachable, shape_of

ABSENT = object()
Pair = tuple[Any, Any]
"""A JSON value as a client gives it, and as it is written again; ABSENT where it is not."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
leaves = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
json_texts = values.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(" , ", ": ")))
unknown_keys = texts.map(lambda text: f"x-{text}")


@pytest.fixture(scope="session")
def messages() -> Callable[[type[Message]], st.SearchStrategy[Message]]:
    """Returns the strategy for valid messages of a type."""

    def strategy(message_type: type[Message]) -> st.SearchStrategy[Message]:
        return contents(message_type.DESCRIPTOR).map(lambda content: message_type(**content))

    return strategy


@pytest.fixture(scope="session")
def documents() -> Callable[[type[Message]], st.SearchStrategy[Pair]]:
    """Returns the strategy for JSON documents of a type, each with what it is written as again."""
    return lambda message_type: pairs(message_type.DESCRIPTOR)


@pytest.fixture(scope="session")
def nonsense() -> Callable[[type[Message]], st.SearchStrategy[Any]]:
    """Returns the strategy for JSON made of the right words in the wrong places."""

    def strategy(message_type: type[Message]) -> st.SearchStrategy[Any]:
        shapes = [shape_of(descriptor) for descriptor in reachable(cast("Descriptor", message_type.DESCRIPTOR))]
        keys = {"type", *(field.key for shape in shapes for field in shape.fields)}
        types = {member.type for shape in shapes for member in shape.members}
        names = {name for shape in shapes for field in shape.fields for name, _ in field.values}
        words = st.sampled_from(sorted(keys | types | names))
        tagged = st.fixed_dictionaries({"type": st.sampled_from(sorted(types or {"a"}))})

        def nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
            objects = st.dictionaries(st.sampled_from(sorted(keys)) | texts, inner, max_size=5)
            return (
                st.lists(inner, max_size=3) | objects | st.tuples(tagged, objects).map(lambda two: {**two[0], **two[1]})
            )

        return st.recursive(leaves | words, nest, max_leaves=12)

    return strategy


@functools.cache
def contents(descriptor: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Returns the strategy for constructor arguments of a message."""
    return st.deferred(lambda: _content(shape_of(descriptor)))


def _content(shape: Shape) -> st.SearchStrategy[dict[str, Any]]:
    if shape.form is Form.LIST:
        (field,) = shape.fields
        return st.fixed_dictionaries({field.name: st.lists(_one(field), max_size=2)})
    if shape.form is Form.UNION:
        return st.one_of([st.fixed_dictionaries({field.name: _one(field)}) for field in shape.fields])
    own = {field.name: _field(field) for field in shape.fields}
    if shape.form is Form.OBJECT:
        extra = {shape.extra: _extras()} if shape.extra else {}
        return st.fixed_dictionaries({}, optional={**own, **extra})
    branches = [_branch(member, {} if member.opaque else own) for member in shape.members]
    return st.one_of(branches)


def _branch(member: Member, own: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    if member.opaque:
        inner: st.SearchStrategy[dict[str, Any]] = st.builds(_opaque, texts, json_texts)
    elif member.untyped_key:
        (key,) = (field for field in shape_of(member.message).fields if field.key == member.untyped_key)
        valid = _one(key) if key.kind is Kind.ENUM else texts.filter(bool)
        untyped = st.fixed_dictionaries({key.name: valid, "untyped": st.just(True)})
        inner = contents(member.message) | st.builds(_merge, contents(member.message), untyped)
    else:
        inner = contents(member.message)
    return st.fixed_dictionaries({member.name: inner}, optional=own)


def _merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **other}


def _opaque(tail: str, text: str) -> dict[str, str]:
    tag = f"acme:{tail}"
    return {"type": tag, "json": f'{{ "type":{json.dumps(tag)}, "payload" : {text}}}'}


def _extras() -> st.SearchStrategy[str]:
    def join(unknown: dict[str, str]) -> str:
        return "{" + ",".join(f"{msgspec.json.encode(key).decode()}:{text}" for key, text in unknown.items()) + "}"

    return st.dictionaries(unknown_keys, json_texts, min_size=1, max_size=2).map(join)


def _field(field: Field) -> st.SearchStrategy[Any]:
    if field.mapped:
        return st.dictionaries(texts, _one(field), max_size=2)
    return st.lists(_one(field), max_size=2) if field.repeated else _one(field)


def _one(field: Field) -> st.SearchStrategy[Any]:
    low, high = field.bounds
    if field.message:
        return contents(field.message)
    if field.kind is Kind.ENUM:
        return st.sampled_from([number for _, number in field.values])
    return {
        Kind.STRING: texts,
        Kind.BOOLEAN: st.booleans(),
        Kind.INTEGER: st.integers(int(low), int(high)),
        Kind.NUMBER: st.floats(low, high, width=32 if high < 1e39 else 64).map(lambda number: number + 0.0),
        Kind.TEXT: json_texts if field.repeated else json_texts.filter(lambda text: text != "null"),
    }[field.kind]


@functools.cache
def pairs(descriptor: Descriptor) -> st.SearchStrategy[Pair]:
    """Returns the strategy for JSON values of a message."""
    return st.deferred(lambda: _pair(shape_of(descriptor)))


def _pair(shape: Shape) -> st.SearchStrategy[Pair]:
    if shape.form is Form.LIST:
        (field,) = shape.fields
        return st.lists(_json_one(field), max_size=2).map(_unzip)
    if shape.form is Form.UNION:
        return st.one_of([_json_one(field) for field in shape.fields])
    own = {field.key: _json_field(field) for field in shape.fields}
    if shape.form is Form.OBJECT:
        return _json_object(own, shape, {})
    branches: list[st.SearchStrategy[Pair]] = []
    for member in shape.members:
        inner = shape_of(member.message)
        if member.opaque:
            whole = st.fixed_dictionaries({"type": texts.map(lambda text: f"acme:{text}"), "payload": values})
            branches.append(whole.map(lambda value: (value, value)))
        else:
            fields = {**own, **{field.key: _json_field(field) for field in inner.fields}}
            branches.append(_json_object(fields, inner, {"type": member.type}))
    return st.one_of(branches)


def _json_object(fields: dict[str, Any], shape: Shape, tag: dict[str, str]) -> st.SearchStrategy[Pair]:
    unknown: st.SearchStrategy[dict[str, Any]] = st.dictionaries(unknown_keys, values, max_size=2 if shape.extra else 0)
    constant = {shape.constant[0]: json.loads(shape.constant[1])} if shape.constant else {}

    def join(known: dict[str, Pair], unknown: dict[str, Any]) -> Pair:
        given = {key: pair[0] for key, pair in known.items()}
        written = {key: pair[1] for key, pair in known.items() if pair[1] is not ABSENT}
        return {**tag, **given, **unknown}, {**tag, **constant, **written, **unknown}

    return st.builds(join, st.fixed_dictionaries({}, optional=fields), unknown)


def _json_field(field: Field) -> st.SearchStrategy[Pair]:
    null = st.just((None, ABSENT))
    if field.mapped:
        inner = st.dictionaries(texts, _json_one(field), max_size=2)
        return null | inner.map(lambda entries: _plain(*_unzip_entries(entries)))
    if field.repeated:
        return null | st.lists(_json_one(field), max_size=2).map(lambda each: _plain(*_unzip(each)))
    if field.presence or field.message or field.kind is Kind.TEXT:
        return null | _json_one(field)
    return null | _json_one(field).map(lambda pair: _plain(*pair))


def _json_one(field: Field) -> st.SearchStrategy[Pair]:
    if field.message:
        return pairs(field.message)
    if field.kind is Kind.TEXT:
        return (values if field.repeated else values.filter(lambda value: value is not None)).map(
            lambda value: (value, value)
        )
    if field.kind is Kind.ENUM:
        return st.sampled_from([(name, name) for name, _ in field.values])
    return _one(field).map(lambda value: (value, value))


def _plain(given: Any, written: Any) -> Pair:
    """Applies the rule that the default of a plain field means absent."""
    return given, written if written else ABSENT


def _unzip(each: list[Pair]) -> Pair:
    return [given for given, _ in each], [written for _, written in each]


def _unzip_entries(entries: dict[str, Pair]) -> Pair:
    return {key: pair[0] for key, pair in entries.items()}, {key: pair[1] for key, pair in entries.items()}
