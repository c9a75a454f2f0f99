"""Reads the JSON options of the schema into shapes, one per message: what `encode` and `decode` are compiled from.

Above: `encode` and `decode`, which know nothing of descriptors. Below: the options of annotations.proto. A schema that
contradicts itself is refused here, when a message is first used, and never while data flows.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from turnwire.v1 import annotations_pb2 as options


class Kind(enum.Enum):
    """What a field's values are in JSON."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    ENUM = "enum"
    TEXT = "JSON text"
    MESSAGE = "message"


class Form(enum.Enum):
    """What a message is in JSON."""

    OBJECT = "an object with the message's fields"
    TAGGED = "an object with a `type` that selects the member of a oneof, flattened into it"
    UNION = "one of several JSON kinds"
    LIST = "an array"


@dataclass(frozen=True, slots=True)
class Field:
    """One field as the public form has it."""

    name: str
    """Name in the proto."""
    key: str
    """Key in JSON."""
    kind: Kind
    """Kind of the value, of each value for repeated fields and maps."""
    repeated: bool
    """Whether it is an array."""
    mapped: bool
    """Whether it is an object of any keys."""
    presence: bool
    """Whether unset and default differ."""
    fill: str | None
    """JSON text written for it in filled output when it is unset. None writes nothing."""
    bounds: tuple[float, float] = (0, 0)
    """Least and greatest value of a number."""
    values: tuple[tuple[str, int], ...] = ()
    """Public strings and numbers of an enum, without the zero value."""
    message: Descriptor | None = None
    """Type of a message field."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a tagged oneof."""

    name: str
    """Name of the member in the proto."""
    type: str
    """Value of `type`. Empty for the opaque member."""
    opaque: bool
    """Whether it holds the objects whose type no other member claims."""
    untyped_key: str
    """The key that selects this member in an object without a type. Empty means never."""
    message: Descriptor
    """Type of the member."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The public form of one message."""

    descriptor: Descriptor
    """The message."""
    form: Form
    """What it is in JSON."""
    fields: tuple[Field, ...]
    """The visible fields in order; for UNION the alternatives, for LIST the one field, for TAGGED the parent's own."""
    constant: tuple[str, str] | None
    """Key and JSON text of the constant member."""
    extra: str
    """Name of the field that holds unknown keys. Empty means that they are dropped."""
    oneof: str
    """Name of the oneof of TAGGED and UNION."""
    members: tuple[Member, ...]
    """The typed members of TAGGED."""
    unsayable: tuple[str, ...]
    """Members of the tagged oneof that have no public form."""


_INTEGERS: Final = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SINT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_FIXED64: (0, 2**64 - 1),
}
_NUMBERS: Final = {
    FieldDescriptor.TYPE_DOUBLE: (-1.7976931348623157e308, 1.7976931348623157e308),
    FieldDescriptor.TYPE_FLOAT: (-3.4028234663852886e38, 3.4028234663852886e38),
}


class SchemaError(TypeError):
    """The options of a message contradict each other; a mistake in a .proto file."""

    def __init__(self, element: str, reason: str) -> None:
        """Names the element of the schema and what is wrong with it."""
        super().__init__(f"{element}: {reason}")


@functools.cache
def shape_of(descriptor: Descriptor) -> Shape:
    """Returns the public form of a message.

    Raises:
        SchemaError: The options contradict each other.
    """
    own = descriptor.GetOptions()
    union, listed = _option(own, options.json_union), _option(own, options.json_list)
    tagged = next((oneof for oneof in descriptor.oneofs if any(_is_tagged(field) for field in oneof.fields)), None)
    if union and len(descriptor.oneofs) != 1:
        raise SchemaError(descriptor.full_name, "json_union wants exactly one oneof")
    oneof = tagged or (descriptor.oneofs[0] if union else None)
    grouped = {field.name for field in oneof.fields} if oneof and tagged else set[str]()
    fields = tuple(
        field_of(field)
        for field in descriptor.fields
        if field.name not in grouped and not _option(field.GetOptions(), options.json_hidden) and not _is_extra(field)
    )
    if listed and (len(fields) != 1 or not fields[0].repeated):
        raise SchemaError(descriptor.full_name, "json_list wants exactly one repeated field")
    form = Form.UNION if union else Form.LIST if listed else Form.TAGGED if tagged else Form.OBJECT
    in_group = [field for field in oneof.fields if tagged] if oneof else []
    shape = Shape(
        descriptor=descriptor,
        form=form,
        fields=fields,
        constant=_constant(descriptor, str(_option(own, options.json_const))),
        extra=next((field.name for field in descriptor.fields if _is_extra(field)), ""),
        oneof=oneof.name if oneof else "",
        members=tuple(_member(field) for field in in_group if _is_tagged(field)),
        unsayable=tuple(field.name for field in in_group if not _is_tagged(field)),
    )
    _check(shape)
    return shape


def reachable(descriptor: Descriptor) -> Iterator[Descriptor]:
    """Yields the message and every message its public form can contain, each once."""
    seen = {descriptor.full_name}
    todo = [descriptor]
    while todo:
        current = todo.pop()
        yield current
        shape = shape_of(current)
        inner = [field.message for field in shape.fields if field.message]
        for found in (*inner, *(member.message for member in shape.members)):
            if found.full_name not in seen:
                seen.add(found.full_name)
                todo.append(found)


def field_of(field: FieldDescriptor) -> Field:
    """Reads one field.

    Raises:
        SchemaError: The field cannot be expressed in JSON.
    """
    own = field.GetOptions()
    key = str(_option(own, options.json_key)) or field.name
    entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
    value = entry.fields_by_name["value"] if entry else field
    enumeration = value.enum_type
    if entry and entry.fields_by_name["key"].type != FieldDescriptor.TYPE_STRING:
        raise SchemaError(field.full_name, "the keys of a map must be strings")
    kind, bounds = _kind(value, text=bool(_option(own, options.json_text)))
    return Field(
        name=field.name,
        key=key,
        kind=kind,
        repeated=field.is_repeated and not entry,
        mapped=entry is not None,
        presence=field.has_presence,
        fill=_fill(field, mapped=entry is not None),
        bounds=bounds,
        values=_values(enumeration) if enumeration else (),
        message=value.message_type if kind is Kind.MESSAGE else None,
    )


def _kind(field: FieldDescriptor, *, text: bool) -> tuple[Kind, tuple[float, float]]:
    bounds = (0.0, 0.0)
    if text and field.type == FieldDescriptor.TYPE_STRING:
        kind = Kind.TEXT
    elif field.type == FieldDescriptor.TYPE_STRING:
        kind = Kind.STRING
    elif field.type == FieldDescriptor.TYPE_BOOL:
        kind = Kind.BOOLEAN
    elif field.type == FieldDescriptor.TYPE_ENUM:
        kind = Kind.ENUM
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        kind = Kind.MESSAGE
    elif field.type in _INTEGERS:
        kind, bounds = Kind.INTEGER, _INTEGERS[field.type]
    elif field.type in _NUMBERS:
        kind, bounds = Kind.NUMBER, _NUMBERS[field.type]
    else:
        raise SchemaError(field.full_name, "a field of this type has no JSON form; hide it")
    return kind, bounds


def _fill(field: FieldDescriptor, *, mapped: bool) -> str | None:
    own = field.GetOptions()
    if default := str(_option(own, options.json_default)):
        msgspec.json.decode(default)
        return default
    if _option(own, options.json_null):
        return "null"
    if _option(own, options.json_empty):
        return "{}" if mapped else "[]"
    return None


def _values(enumeration: EnumDescriptor) -> tuple[tuple[str, int], ...]:
    # A value without json_value is named by its own name without the prefix that style demands: DONE_REASON_FAILED of
    # DoneReason is "failed".
    prefix = "".join(f"_{char}" if char.isupper() else char.upper() for char in enumeration.name).lstrip("_") + "_"
    return tuple(
        (str(_option(value.GetOptions(), options.json_value)) or value.name.removeprefix(prefix).lower(), value.number)
        for value in enumeration.values
        if value.number
    )


def _member(field: FieldDescriptor) -> Member:
    own = field.GetOptions()
    untyped_key = str(_option(own, options.json_when_untyped))
    message = field.message_type
    if not message:
        raise SchemaError(field.full_name, "only messages can be flattened")
    if untyped_key and "untyped" not in message.fields_by_name:
        raise SchemaError(field.full_name, "json_when_untyped wants a bool `untyped` in the member")
    return Member(
        name=field.name,
        type=str(_option(own, options.json_type)),
        opaque=bool(_option(own, options.json_opaque)),
        untyped_key=untyped_key,
        message=message,
    )


def _constant(descriptor: Descriptor, text: str) -> tuple[str, str] | None:
    if not text:
        return None
    pairs = msgspec.json.decode(f"{{{text}}}", type=dict[str, msgspec.Raw])
    if len(pairs) != 1:
        raise SchemaError(descriptor.full_name, "json_const wants exactly one member")
    ((key, value),) = pairs.items()
    return key, bytes(value).decode()


def _check(shape: Shape) -> None:
    for member in shape.members:
        if member.opaque:
            continue
        inner = shape_of(member.message)
        clash = {field.key for field in shape.fields} & {field.key for field in inner.fields}
        if inner.form is not Form.OBJECT or clash or any(field.key == "type" for field in inner.fields):
            raise SchemaError(shape.descriptor.full_name, f"{member.name} cannot be flattened, clash: {sorted(clash)}")


def _is_tagged(field: FieldDescriptor) -> bool:
    own = field.GetOptions()
    return bool(_option(own, options.json_type) or _option(own, options.json_opaque))


def _is_extra(field: FieldDescriptor) -> bool:
    return bool(_option(field.GetOptions(), options.json_extra))


def _option(holder: Any, extension: Any) -> object:
    return cast("object", holder.Extensions[extension])
