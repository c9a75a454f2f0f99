"""From JSON Schema to the TypeScript-like types in which harmony shows the arguments of functions.

Above: the head of a harmony prompt. Below: nothing. The notation is the one that the models were trained on, with all
its quirks (a description stands above a property, a default behind it, a variant's default in another spelling), so
that the text equals that of the format's own library for every schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

_Schema = Mapping[str, Any]
_NONE: Final[_Schema] = {}
_STEP: Final = "    "
_VARIANT_STEP: Final = "   "
_EXPONENT: Final = re.compile(r"(\d)e([+-])0*(\d+)$")


def typescript(schema: object, indent: str = "") -> str:
    """Returns the type that a schema, or a part of one, describes."""
    if not isinstance(schema, dict):
        return "any"
    node = cast("_Schema", schema)
    variants: object = node.get("oneOf")
    if isinstance(variants, list):
        return "".join(_bare_variant(variant, indent) for variant in cast("list[object]", variants))
    kind: object = node.get("type")
    if isinstance(kind, list):
        names = [name for name in cast("list[object]", kind) if isinstance(name, str)]
        if names:
            return " | ".join("number" if name == "integer" else name for name in names)
    match kind if isinstance(kind, str) else "":
        case "object":
            return _object(node, indent)
        case "string":
            return " | ".join(f'"{value}"' for value in _strings(node.get("enum"))) or "string"
        case "number" | "integer":
            return "number"
        case "boolean":
            return "boolean"
        case "array":
            return f"{typescript(node['items'], indent)}[]" if "items" in node else "Array<any>"
        case _:
            return "any"


def _object(node: _Schema, indent: str) -> str:
    description = node.get("description")
    lines = [f"{indent}// {description}\n"] if isinstance(description, str) else []
    lines.append("{\n")
    properties: object = node.get("properties")
    if isinstance(properties, dict):
        required = set(_strings(node.get("required")))
        for key, value in cast("dict[str, Any]", properties).items():
            lines.append(_property(key, value, indent, optional=key not in required))
    lines.append(f"{indent}}}")
    return "".join(lines)


def _property(key: str, value: object, indent: str, *, optional: bool) -> str:
    node = _node(value)
    lines: list[str] = []
    title, description = node.get("title"), node.get("description")
    if isinstance(title, str):
        lines.append(f"{indent}// {title}\n{indent}//\n")
    if isinstance(description, str) and "oneOf" not in node:
        lines.append(f"{indent}// {description}\n")
    examples: object = node.get("examples")
    if isinstance(examples, list) and examples:
        lines.append(f"{indent}// Examples:\n")
        lines += [f'{indent}// - "{example}"\n' for example in _strings(cast("object", examples))]
    name = f"{key}?" if optional else key
    variants: object = node.get("oneOf")
    if isinstance(variants, list):
        lines += _choice(name, node, cast("list[object]", variants), indent)
    else:
        lines.append(f"{indent}{name}: {_nullable(value, indent + _STEP)},")
        if "oneOf" not in node and "default" in node:
            lines.append(f" // {_default(node)}")
        lines.append("\n")
    return "".join(lines)


def _choice(name: str, node: _Schema, variants: list[object], indent: str) -> list[str]:
    """Returns the lines of a property that is one of several types."""
    lines: list[str] = []
    description = node.get("description")
    first = _node(variants[0]) if variants else _NONE
    above = isinstance(description, str) and first.get("description") != description
    if above:
        lines.append(f"{indent}// {description}\n")
    if "default" in node:
        lines.append(f"{indent}// {_default(node)}\n")
    lines.append(f"{indent}{name}:\n")
    for index, variant in enumerate(variants):
        remarks: list[str] = []
        fields = _node(variant)
        own = fields.get("description")
        # A description above the property stands for the first variant's too, and none is said twice.
        if isinstance(own, str) and own != description and not (index == 0 and above):
            remarks.append(own)
        if "default" in fields:
            remarks.append(_default(fields))
        behind = f" // {' '.join(remarks)}" if remarks else ""
        lines.append(f"{indent} | {_nullable(variant, indent + _VARIANT_STEP)}{behind}\n")
    lines.append(f"{indent},\n")
    return lines


def _bare_variant(variant: object, indent: str) -> str:
    """Returns a variant of a type that is no property."""
    fields = _node(variant)
    description = fields.get("description")
    remarks = [description] if isinstance(description, str) else []
    if "default" in fields:
        default: object = fields["default"]
        plain = isinstance(default, str) and not _has_enum(fields)
        remarks.append(f'default: "{default}"' if plain else f"default: {_json(default)}")
    behind = f" // {' '.join(remarks)}" if remarks else ""
    return f"\n{indent} | {_nullable(variant, indent + _VARIANT_STEP)}{behind}"


def _nullable(schema: object, indent: str) -> str:
    text = typescript(schema, indent)
    nullable = _node(schema).get("nullable") is True
    return f"{text} | null" if nullable and "null" not in text else text


def _default(node: _Schema) -> str:
    default: object = node["default"]
    if not isinstance(default, str):
        return f"default: {_json(default)}"
    return f"default: {default}" if _has_enum(node) else f'default: "{default}"'


def _has_enum(node: _Schema) -> bool:
    values: object = node.get("enum")
    return isinstance(values, list) and bool(cast("list[object]", values))


def _node(value: object) -> _Schema:
    return cast("_Schema", value) if isinstance(value, dict) else _NONE


def _strings(values: object) -> list[str]:
    listed = cast("list[object]", values) if isinstance(values, list) else []
    return [value for value in listed if isinstance(value, str)]


def _json(value: object) -> str:
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list):
        return f"[{','.join(_json(each) for each in cast('list[object]', value))}]"
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return "{" + ",".join(f"{_json(key)}:{_json(each)}" for key, each in members) + "}"
    return msgspec.json.encode(value).decode()


def _number(value: float) -> str:
    """Returns a number as the format's library writes it: exponents without padding, and only where they are large."""
    text = repr(value)
    found = _EXPONENT.search(text)
    if found is None:
        return text
    if text.endswith("e-05"):
        return f"{value:.{len(text.partition('e')[0].replace('-', '').replace('.', '')) + 4}f}"
    sign = "-" if found[2] == "-" else ""
    return f"{text[: found.start(1) + 1]}e{sign}{found[3]}"
