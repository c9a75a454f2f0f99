"""Compiles public JSON to messages: one reader per message type, composed of closures.

Above: the package's `from_json` and `decoder`. Below: `plan` and `refusal`. An object is taken apart into raw slices
(`dict[str, msgspec.Raw]`), each known key is read by the reader of its field, and the result is a tree of dicts that
the protobuf constructor turns into a message in one call. Slices are rescanned once per level of nesting, which msgspec
does at memory speed; in return JSON text is kept byte for byte and unknown keys are never lost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from msgspec import Raw

from turnwire.v1.json.plan import Field, Form, Kind, Shape, shape_of
from turnwire.v1.json.refusal import (
    NOT_UTF8,
    TOO_NESTED,
    TYPE,
    Refusal,
    is_null,
    kind_of,
    malformed,
    no_type,
    not_expected,
    too_deep,
    unknown_value,
    wrong_type,
)
from turnwire.v1.json.scalars import (
    Read,
    enum,
    integer,
    number,
    read_boolean,
    read_string,
    read_text,
    read_text_or_null,
)

M = TypeVar("M", bound=Message)
MAX_DEPTH: Final = 32
"""Levels of objects in one document. Each is at most two messages, and protobuf parsers stop at a hundred."""

_unpack: Final = msgspec.json.Decoder(Raw).decode
_unpack_object: Final = msgspec.json.Decoder(dict[str, Raw] | None).decode
_unpack_list: Final = msgspec.json.Decoder(list[Raw] | None).decode
_quote: Final = msgspec.json.Encoder().encode


class _Reader(NamedTuple):
    """How to read a value, and how to name what was expected."""

    read: Read
    expected: str
    plural: str


class _Target(NamedTuple):
    """Where the value of a key goes. An empty name drops it."""

    name: str
    read: Read


def decoder_of(message_type: type[M]) -> Callable[[bytes | str | memoryview], M]:
    """Returns the decoder of a message type; see `from_json`."""
    reader = _message(message_type.DESCRIPTOR)

    def decode(data: bytes | str | memoryview) -> M:
        try:
            # msgspec skips over text without looking at its encoding, so that is looked at first.
            text = data.encode() if isinstance(data, str) else bytes(data)
            text.decode()
            raw = _unpack(text)
            values = reader.read(raw, 0)
        except Refusal as refusal:
            if not refusal.path and refusal.code == "invalid_type":
                raise not_expected(reader.expected, refusal.facts["got"]) from None
            raise refusal.error() from None
        except UnicodeError:
            raise malformed(NOT_UTF8) from None
        except RecursionError:
            raise malformed(TOO_NESTED) from None
        except msgspec.DecodeError as error:
            raise malformed(str(error)) from None
        if values is None:
            raise not_expected(reader.expected, kind_of(raw))
        return message_type(**values)

    return decode


@functools.cache
def _message(descriptor: Descriptor) -> _Reader:
    """Returns the reader of a message type."""
    shape = shape_of(descriptor)
    if shape.form is Form.OBJECT:
        return _Reader(_object(shape), "an object", "objects")
    if shape.form is Form.TAGGED:
        return _Reader(_tagged(shape), "an object", "objects")
    if shape.form is Form.LIST:
        (field,) = shape.fields
        element = _value(field)
        return _Reader(_listed(field.name, element), f"an array of {element.plural}", "arrays")
    return _union(shape)


def _object(shape: Shape) -> Read:
    targets = _targets(shape)

    def read(raw: Raw, depth: int) -> dict[str, Any] | None:
        members = _open(raw, depth)
        if members is None:
            return None
        values, unknown = _read_members(members, targets, depth + 1)
        if unknown and shape.extra:
            values[shape.extra] = unknown
        return values

    return read


def _tagged(shape: Shape) -> Read:
    own = _targets(shape)
    members = {member.type: member for member in shape.members if not member.opaque}
    targets = {member.name: _targets(shape_of(member.message)) for member in members.values()}
    extras = {member.name: shape_of(member.message).extra for member in members.values()}
    untyped = [member for member in shape.members if member.untyped_key]
    opaque = next((member.name for member in shape.members if member.opaque), "")

    def read(raw: Raw, depth: int) -> dict[str, Any] | None:
        rest = _open(raw, depth)
        if rest is None:
            return None
        tag = rest.pop("type", None)
        kind = None if tag is None else _within("type", read_string, tag, depth)
        values: dict[str, Any] = {}
        for key, target in own.items():
            if key in rest:
                value = _within(key, target.read, rest.pop(key), depth)
                if value is not None:
                    values[target.name] = value
        if kind is None:
            # Null means absent, for the key that stands in for a type too.
            chosen = next((m for m in untyped if not is_null(rest.get(m.untyped_key))), None)
            if chosen is None:
                raise no_type()
        else:
            chosen = members.get(kind)
            if chosen is None and opaque:
                return {**values, opaque: {"type": kind, "json": bytes(raw).decode()}}
            if chosen is None:
                raise unknown_value(kind, members).within(TYPE)
        inner, unknown = _read_members(rest, targets[chosen.name], depth + 1)
        if kind is None:
            inner["untyped"] = True
        if unknown and extras[chosen.name]:
            inner[extras[chosen.name]] = unknown
        elif unknown and shape.extra:
            values[shape.extra] = unknown
        values[chosen.name] = inner
        return values

    return read


def _union(shape: Shape) -> _Reader:
    by_kind: dict[str, tuple[str, _Reader]] = {}
    for field in shape.fields:
        reader = _value(field)
        kind = "a string"
        if field.message:
            kind = "an array" if shape_of(field.message).form is Form.LIST else "an object"
        by_kind[kind] = (field.name, reader)
    expected = "one of " + " or ".join(reader.expected for _, reader in by_kind.values())

    def read(raw: Raw, depth: int) -> dict[str, Any] | None:
        kind = kind_of(raw)
        if kind == "null":
            return None
        alternative = by_kind.get(kind)
        if alternative is None:
            raise wrong_type(raw, expected)
        name, reader = alternative
        return {name: reader.read(raw, depth)}

    return _Reader(read, expected, "values")


def _listed(name: str, element: _Reader) -> Read:
    read_all = _array(element)

    def read(raw: Raw, depth: int) -> dict[str, Any] | None:
        values = read_all(raw, depth)
        return None if values is None else {name: values}

    return read


def _targets(shape: Shape) -> dict[str, _Target]:
    targets = {field.key: _Target(field.name, _field(field)) for field in shape.fields}
    if shape.constant:
        targets[shape.constant[0]] = _Target("", _ignore)
    return targets


def _field(field: Field) -> Read:
    element = _value(field)
    if field.mapped:
        return _map(element)
    return _array(element) if field.repeated else element.read


def _value(field: Field) -> _Reader:
    if field.message:
        return _later(field.message)
    if field.kind is Kind.INTEGER:
        return _Reader(integer(field.bounds), "an integer", "integers")
    if field.kind is Kind.NUMBER:
        return _Reader(number(field.bounds), "a decimal", "decimals")
    if field.kind is Kind.ENUM:
        return _Reader(enum(dict(field.values)), "a string", "strings")
    if field.kind is Kind.BOOLEAN:
        return _Reader(read_boolean, "a boolean", "booleans")
    if field.kind is Kind.TEXT:
        # As an element, null is text like any other; as a member, it means absent.
        return _Reader(read_text if field.repeated or field.mapped else read_text_or_null, "a value", "values")
    return _Reader(read_string, "a string", "strings")


def _later(descriptor: Descriptor) -> _Reader:
    """Returns a reader that compiles its message type when it is first used, since types contain each other."""
    form = shape_of(descriptor).form
    if form in (Form.LIST, Form.UNION):
        return _message(descriptor)
    compiled: Read | None = None

    def read(raw: Raw, depth: int) -> Any:
        nonlocal compiled
        if compiled is None:
            compiled = _message(descriptor).read
        return compiled(raw, depth)

    return _Reader(read, "an object", "objects")


def _open(raw: Raw, depth: int) -> dict[str, Raw] | None:
    if depth > MAX_DEPTH:
        raise too_deep(MAX_DEPTH)
    try:
        return _unpack_object(raw)
    except msgspec.ValidationError:
        raise wrong_type(raw, "an object") from None


def _read_members(members: dict[str, Raw], targets: Mapping[str, _Target], depth: int) -> tuple[dict[str, Any], str]:
    """Reads the known keys and returns them with the text of an object that holds the unknown ones."""
    values: dict[str, Any] = {}
    unknown: list[str] = []
    for key, raw in members.items():
        target = targets.get(key)
        if target is None:
            unknown.append(f"{_quote(key).decode()}:{bytes(raw).decode()}")
            continue
        try:
            value = target[1](raw, depth)
        except Refusal as refusal:
            raise refusal.within(key) from None
        if value is not None:
            values[target[0]] = value
    return values, f"{{{','.join(unknown)}}}" if unknown else ""


def _array(element: _Reader) -> Read:
    read_one, expected, plural = element

    def read(raw: Raw, depth: int) -> list[Any] | None:
        try:
            slices = _unpack_list(raw)
        except msgspec.ValidationError:
            raise wrong_type(raw, f"an array of {plural}") from None
        if slices is None:
            return None
        values: list[Any] = []
        for index, each in enumerate(slices):
            try:
                value = read_one(each, depth)
            except Refusal as refusal:
                raise refusal.within(index) from None
            if value is None:
                raise wrong_type(each, expected).within(index)
            values.append(value)
        return values

    return read


def _map(element: _Reader) -> Read:
    def read(raw: Raw, depth: int) -> dict[str, Any] | None:
        members = _open(raw, depth)
        if members is None:
            return None
        values: dict[str, Any] = {}
        for key, each in members.items():
            value = _within(key, element.read, each, depth)
            if value is None:
                raise wrong_type(each, element.expected).within(key)
            values[key] = value
        return values

    return read


def _within(key: str, read: Read, raw: Raw, depth: int) -> Any:
    try:
        return read(raw, depth)
    except Refusal as refusal:
        raise refusal.within(key) from None


def _ignore(raw: Raw, depth: int) -> None:
    del raw, depth
