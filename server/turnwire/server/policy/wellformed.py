"""Checks that hold for every message alike, derived from the schema: what came as protobuf can be said as public JSON.

JSON text is JSON, unknown keys and opaque objects are objects, enum numbers are known, decimals are finite. A client
that speaks JSON gets these from the codec; one that speaks protobuf can send anything. One plan per message type says
which of its fields need a look, so that the rest costs nothing. Above: the checks of settings, items and tools. Below:
the shapes of the schema, which give error paths their public form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from turnwire.server.policy import json_text
from turnwire.v1.json.plan import Field, Form, Kind, field_of, shape_of
from turnwire.v1.json.refusal import Refusal, unknown_value
from turnwire.v1.opaque_pb2 import OpaqueObject

Check = Callable[[Any], None]
"""Looks at the value of one field; raises `Refusal` with the path below it."""


def check_wellformed(message: Message, *path: str | int) -> None:
    """Checks a message and everything in it.

    Args:
        message: What the client sent.
        *path: Keys and indexes that lead to the message, such as `"input", 3`.

    Raises:
        turnwire.v1.errors.RequestError: `invalid_json`, `invalid_type` or `invalid_value`, with the path as `param`.
    """
    try:
        _walk(message)
    except Refusal as refusal:
        for segment in reversed(path):
            refusal.within(segment)
        raise refusal.error() from None


def _walk(message: Message) -> None:
    plan = _plan(message.DESCRIPTOR)
    for field, value in message.ListFields():
        check = plan.get(field.number)
        if check is not None:
            check(value)


@functools.cache
def _plan(descriptor: Descriptor) -> dict[int, Check]:
    """Returns the checks of a message type by field number."""
    shape = shape_of(descriptor)
    checks = {field.number: _field(field, shape.extra) for field in descriptor.fields}
    flat = {field.number for field in descriptor.fields if _is_flat(field, shape.form, shape.oneof)}
    names = {field.number: field.name for field in descriptor.fields}
    return {
        number: check if number in flat else _under(names[number], check)
        for number, check in checks.items()
        if check is not None
    }


def _is_flat(field: FieldDescriptor, form: Form, oneof: str) -> bool:
    """Tells whether the public form has no key for the field: its content stands in the place of the message."""
    if form is Form.LIST:
        return True
    return bool(oneof) and field.containing_oneof is not None and field.containing_oneof.name == oneof


def _field(field: FieldDescriptor, extra: str) -> Check | None:
    if field.name == extra:
        return _object
    if field.message_type is OpaqueObject.DESCRIPTOR:
        return _opaque
    known = field_of(field)
    one: Check | None = _one(known)
    if one is None:
        return None
    if known.mapped:
        return lambda values: _all(one, values.items())
    if known.repeated:
        return lambda values: _all(one, _numbered(values))
    # Where only one value fits, empty text means that there is none, as it does to the codec.
    return _unless_empty(one) if known.kind is Kind.TEXT else one


def _one(known: Field) -> Check | None:
    if known.kind is Kind.MESSAGE:
        return _walk
    if known.kind is Kind.TEXT:
        return _text
    if known.kind is Kind.ENUM:
        names = {number: name for name, number in known.values}
        return lambda value: _known(value, names)
    if known.kind is Kind.NUMBER:
        return _finite
    return None


def _under(segment: str, check: Check) -> Check:
    def checked(value: Any) -> None:
        try:
            check(value)
        except Refusal as refusal:
            raise refusal.within(segment) from None

    return checked


def _all(check: Check, values: Iterable[tuple[str | int, Any]]) -> None:
    for segment, value in values:
        try:
            check(value)
        except Refusal as refusal:
            raise refusal.within(segment) from None


def _numbered(values: Iterable[Any]) -> Iterable[tuple[int, Any]]:
    return enumerate(values)


def _unless_empty(check: Check) -> Check:
    def checked(value: Any) -> None:
        if value:
            check(value)

    return checked


def _text(text: str) -> None:
    if reason := json_text.fault(text):
        raise Refusal("invalid_json", "Invalid '{param}': the text is not valid JSON: {reason}.", reason=reason)


def _object(text: str) -> None:
    _members(text)


def _members(text: str) -> dict[str, msgspec.Raw]:
    _text(text)
    members = json_text.members(text)
    if members is None:
        raise Refusal("invalid_type", "Invalid type for '{param}': expected an object.")
    return members


def _opaque(value: OpaqueObject) -> None:
    """Checks an object that is carried as it came: it must be the object it is said to be."""
    if not value.type:
        raise Refusal("missing_required_parameter", "Missing required parameter: '{param}'.").within("type")
    members = _members(value.json)
    if "type" not in members or _string(members["type"]) != value.type:
        template = "Invalid value for '{param}': the JSON text must have the same type as the object."
        raise Refusal("invalid_value", template).within("type")


def _string(raw: msgspec.Raw) -> str | None:
    """Returns the text of a JSON string, None for anything else."""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return None


def _known(number: int, names: dict[int, str]) -> None:
    # Zero is unset; whether a field may be unset is another check's business.
    if number and number not in names:
        raise unknown_value(str(number), names.values())


def _finite(value: float) -> None:
    if not math.isfinite(value):
        raise Refusal(
            "invalid_value", "Invalid '{param}': expected a finite number, but got {value}.", value=str(value)
        )
