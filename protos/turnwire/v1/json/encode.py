"""Compiles messages to public JSON: one generated Python function per message type and mode.

Above: the package's `to_json` and `encoder`. Below: `plan`. A generated function turns a message into dicts and lists
for one msgspec call at the top; JSON text goes through as `msgspec.Raw`, untouched. For FunctionCall it reads:

    def value_of_turnwire_v1_FunctionCall(m):
        d = {}
        v = m.id
        if v or m.HasField("id"): d["id"] = v
        v = m.call_id
        if v: d["call_id"] = v
        ...
        if m.extra_json: add_unknown(d, m.extra_json, KNOWN_turnwire_v1_FunctionCall)
        return d

and in filled mode, where plain fields always appear:

        d["call_id"] = m.call_id

Source is generated, rather than closures composed, because a delta event has ten fields and a call for each would cost
more than the rest together. `source_of` shows what was generated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from msgspec import Raw

from turnwire.v1.json.plan import Field, Form, Kind, Member, Shape, reachable, shape_of

ValueOf = Callable[[Any], Any]
"""Turns a message into what msgspec encodes."""

_EXACT_BELOW: Final = 2.0**53
_pack: Final = msgspec.json.Encoder().encode
_unpack: Final = msgspec.json.Decoder().decode
_unpack_object: Final = msgspec.json.Decoder(dict[str, Raw]).decode


@functools.cache
def encoder_of(descriptor: Descriptor, fill: bool) -> Callable[[Message], bytes]:
    """Returns the compiled encoder of a message type; the first call for a type compiles it and all it contains."""
    value_of = _compile(descriptor, fill)

    def encode(message: Message) -> bytes:
        return _pack(value_of(message))

    return encode


def source_of(descriptor: Descriptor, *, fill: bool) -> str:
    """Returns the generated source for one message type, for people who debug the codec."""
    return "\n".join(_Source(shape_of(descriptor), fill).lines)


def _compile(descriptor: Descriptor, fill: bool) -> ValueOf:
    names: dict[str, Any] = {
        "Raw": Raw,
        "number": _number,
        "add_unknown": _add_unknown,
        "opaque": _opaque,
        "unsayable": _unsayable,
    }
    for found in reachable(descriptor):
        source = _Source(shape_of(found), fill)
        names.update(source.constants)
        exec(compile("\n".join(source.lines), f"<json {found.full_name}>", "exec"), names)
    compiled: ValueOf = names[_function(descriptor)]
    return compiled


class _Source:
    """Writes the function of one message type."""

    def __init__(self, shape: Shape, fill: bool) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        """Values that the source names."""
        self._shape = shape
        self._fill = fill
        self._name = _function(shape.descriptor)
        write = {
            Form.OBJECT: self._object,
            Form.TAGGED: self._tagged,
            Form.UNION: self._union,
            Form.LIST: self._list,
        }[shape.form]
        write()

    def _object(self) -> None:
        self.lines.append(f"def {self._name}(m):")
        self.lines.append("    d = {}")
        self._fields(self._shape, "m", fill=self._fill)
        self._unknown(self._shape, "m", _keys(self._shape))
        self.lines.append("    return d")

    def _list(self) -> None:
        (field,) = self._shape.fields
        self.lines += [f"def {self._name}(m):", f"    return {self._all(field, f'm.{field.name}')}"]

    def _union(self) -> None:
        self.lines += [f"def {self._name}(m):", f"    form = m.WhichOneof({self._shape.oneof!r})"]
        for field in self._shape.fields:
            self.lines.append(f"    if form == {field.name!r}: return {self._one(field, f'm.{field.name}')}")
        self.lines.append("    return None")

    def _tagged(self) -> None:
        for member in self._shape.members:
            self._branch(member)
        self.lines.append(f"def {self._name}_unset(p):")
        self.lines.append("    d = {}")
        self._fields(self._shape, "p", fill=self._fill)
        self._unknown(self._shape, "p", {"type", *_keys(self._shape)})
        self.lines.append("    return d")
        branches = [f"{member.name!r}: {self._name}_{member.name}" for member in self._shape.members]
        branches += [f"{name!r}: unsayable" for name in self._shape.unsayable]
        self.lines.append(f"{self._name}_branches = {{None: {self._name}_unset, {', '.join(branches)}}}")
        self.lines.append(f"def {self._name}(p):")
        self.lines.append(f"    return {self._name}_branches[p.WhichOneof({self._shape.oneof!r})](p)")

    def _branch(self, member: Member) -> None:
        """Writes the function of one member of a tagged oneof: the parent's fields, then the member's, flat."""
        self.lines.append(f"def {self._name}_{member.name}(p):")
        self.lines.append(f"    m = p.{member.name}")
        if member.opaque:
            self.lines.append("    d = {}")
            # An object that came whole is not filled up.
            self._fields(self._shape, "p", fill=False)
            self.lines.append("    return opaque(d, m)")
            return
        inner = shape_of(member.message)
        tag = f"{{'type': {member.type!r}}}"
        self.lines.append(f"    d = {{}} if m.untyped else {tag}" if member.untyped_key else f"    d = {tag}")
        self._fields(self._shape, "p", fill=self._fill)
        self._fields(inner, "m", fill=self._fill)
        known = {"type", *_keys(self._shape), *_keys(inner)}
        self._unknown(self._shape, "p", known)
        self._unknown(inner, "m", known)
        self.lines.append("    return d")

    def _fields(self, shape: Shape, owner: str, *, fill: bool) -> None:
        if shape.constant:
            key, text = shape.constant
            self._line(f"d[{key!r}] = {self._constant(Raw(text))}")
        for field in shape.fields:
            self._member(field, owner, fill=fill)

    def _unknown(self, shape: Shape, owner: str, known: set[str]) -> None:
        if shape.extra:
            keys = self._constant(frozenset(known))
            self._line(f"if {owner}.{shape.extra}: add_unknown(d, {owner}.{shape.extra}, {keys})")

    def _member(self, field: Field, owner: str, *, fill: bool) -> None:
        """Writes one field; what stands for an unset one follows from the mode and the options."""
        access, key = f"{owner}.{field.name}", f"d[{field.key!r}]"
        unset = "" if field.fill is None or not fill else f"{key} = {self._constant(_default(field.fill))}"
        scalar = field.kind in (Kind.STRING, Kind.BOOLEAN, Kind.INTEGER, Kind.NUMBER)
        if field.repeated or field.mapped:
            value = self._map(field, "v") if field.mapped else self._all(field, "v")
            self._line(f"v = {access}")
            self._line(f"if v: {key} = {value}")
        elif field.kind is Kind.MESSAGE:
            self._line(f"v = {self._one(field, access)} if {owner}.HasField({field.name!r}) else None")
            self._line(f"if v is not None: {key} = v")
        elif field.kind is Kind.ENUM:
            self._line(f"v = {self._one(field, access)}")
            self._line(f"if v is not None: {key} = v")
        elif scalar and not field.presence and fill:
            self._line(f"{key} = {self._one(field, access)}")
            return
        else:
            present = f" or {owner}.HasField({field.name!r})" if scalar and field.presence else ""
            self._line(f"v = {access}")
            self._line(f"if v{present}: {key} = {self._one(field, 'v')}")
        if unset:
            self._line(f"else: {unset}")

    def _one(self, field: Field, value: str) -> str:
        """Returns an expression for one value of the field."""
        if field.kind is Kind.MESSAGE and field.message:
            return f"{_function(field.message)}({value})"
        if field.kind is Kind.NUMBER:
            return f"number({value})"
        if field.kind is Kind.TEXT:
            return f"Raw({value} or 'null')"
        if field.kind is Kind.ENUM:
            names = self._constant({number: name for name, number in reversed(field.values)})
            return f"{names}.get({value})"
        return value

    def _all(self, field: Field, values: str) -> str:
        """Returns an expression for all values of a repeated field."""
        one = self._one(field, "x")
        return f"list({values})" if one == "x" else f"[{one} for x in {values}]"

    def _map(self, field: Field, values: str) -> str:
        # Sorted, because the order of a proto map is different in every process.
        return f"{{k: {self._one(field, f'{values}[k]')} for k in sorted({values})}}"

    def _constant(self, value: Any) -> str:
        if value is None:
            return "None"
        name = f"C{len(self.constants)}_{self._name}"
        self.constants[name] = value
        return name

    def _line(self, text: str) -> None:
        self.lines.append(f"    {text}")


def _function(descriptor: Descriptor) -> str:
    return f"value_of_{descriptor.full_name.replace('.', '_')}"


def _keys(shape: Shape) -> set[str]:
    return {field.key for field in shape.fields} | ({shape.constant[0]} if shape.constant else set())


def _default(text: str) -> Raw | None:
    return None if text == "null" else Raw(text)


def _number(value: float) -> int | float:
    """Returns whole numbers as integers, because created_at must look like one; zero keeps its sign."""
    if value and -_EXACT_BELOW < value < _EXACT_BELOW and value.is_integer():
        return int(value)
    if math.isfinite(value):
        return value
    msg = f"{value} has no JSON form; leave the field unset"
    raise ValueError(msg)


def _add_unknown(known: dict[str, Any], text: str, keys: frozenset[str]) -> None:
    """Adds the keys that the message does not know, in order; one that it does know cannot come in this way."""
    try:
        unknown = _unpack_object(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        msg = "extra_json must be the text of one JSON object"
        raise ValueError(msg) from error
    known.update((key, value) for key, value in unknown.items() if key not in keys)


def _opaque(own: dict[str, Any], message: Any) -> Any:
    """Returns the whole object as it came, unless the parent's own fields say otherwise; then they win."""
    text = message.json or _pack({"type": message.type}).decode()
    if not own:
        return Raw(text)
    try:
        carried = _unpack_object(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        msg = "json of an opaque object must be the text of one JSON object"
        raise ValueError(msg) from error
    if all(key in carried and _unpack(carried[key]) == value for key, value in own.items()):
        return Raw(text)
    tag = {"type": carried["type"]} if "type" in carried else {}
    return {**tag, **own, **{key: value for key, value in carried.items() if key not in own}}


def _unsayable(message: Any) -> Any:
    msg = f"this member of {message.DESCRIPTOR.full_name} has no public JSON form"
    raise ValueError(msg)
