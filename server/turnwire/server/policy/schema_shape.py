"""The common part of JSON Schema as types, so that ordinary schemas are found valid at memory speed.

A library that interprets the meta-schema takes about 60 µs per value of a schema; decoding into these types takes less
than one. They are strict on purpose: what they accept is valid in drafts 7, 2019-09 and 2020-12 alike; what they refuse
may still be valid, and is left to the library, which also finds the words for errors. Above: `schemas`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

_Type = Literal["array", "boolean", "integer", "null", "number", "object", "string"]
_Size = Annotated[int, Meta(ge=0)] | UnsetType
_Number = int | float | UnsetType
_Text = str | UnsetType
_Flag = bool | UnsetType
_Draft = Literal[
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


class CommonSchema(Struct, rename="camel", forbid_unknown_fields=True):
    """A schema made of common keywords, each in its common form."""

    type: _Type | list[_Type] | UnsetType = UNSET
    description: _Text = UNSET
    title: _Text = UNSET
    format: _Text = UNSET
    pattern: _Text = UNSET
    enum: list[Any] | UnsetType = UNSET
    const: Any = UNSET
    default: Any = UNSET
    examples: list[Any] | UnsetType = UNSET
    properties: dict[str, CommonSchema | bool] | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET
    additional_properties: CommonSchema | bool | UnsetType = UNSET
    pattern_properties: dict[str, CommonSchema | bool] | UnsetType = UNSET
    property_names: CommonSchema | bool | UnsetType = UNSET
    items: CommonSchema | bool | UnsetType = UNSET
    any_of: Annotated[list[CommonSchema | bool], Meta(min_length=1)] | UnsetType = UNSET
    one_of: Annotated[list[CommonSchema | bool], Meta(min_length=1)] | UnsetType = UNSET
    all_of: Annotated[list[CommonSchema | bool], Meta(min_length=1)] | UnsetType = UNSET
    not_: CommonSchema | bool | UnsetType = field(name="not", default=UNSET)
    minimum: _Number = UNSET
    maximum: _Number = UNSET
    exclusive_minimum: _Number = UNSET
    exclusive_maximum: _Number = UNSET
    multiple_of: _Number = UNSET
    min_length: _Size = UNSET
    max_length: _Size = UNSET
    min_items: _Size = UNSET
    max_items: _Size = UNSET
    min_properties: _Size = UNSET
    max_properties: _Size = UNSET
    unique_items: _Flag = UNSET
    read_only: _Flag = UNSET
    write_only: _Flag = UNSET
    ref: _Text = field(name="$ref", default=UNSET)
    defs: dict[str, CommonSchema | bool] | UnsetType = field(name="$defs", default=UNSET)
    definitions: dict[str, CommonSchema | bool] | UnsetType = UNSET
    comment: _Text = field(name="$comment", default=UNSET)
    draft: _Draft | UnsetType = field(name="$schema", default=UNSET)

    def __post_init__(self) -> None:
        """Checks what types cannot say."""
        if isinstance(self.type, list) and not 0 < len(self.type) == len(set(self.type)):
            raise ValueError
        if isinstance(self.required, list) and len(self.required) != len(set(self.required)):
            raise ValueError
        if not isinstance(self.multiple_of, UnsetType) and self.multiple_of <= 0:
            raise ValueError


_decode: Final[Callable[[str], CommonSchema]] = msgspec.json.Decoder(CommonSchema).decode


def is_common(text: str) -> bool:
    """Tells whether a schema is valid and made of common keywords; False says nothing."""
    try:
        _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
