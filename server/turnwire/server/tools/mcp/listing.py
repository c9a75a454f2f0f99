"""From what a server lists to the definitions that clients and models see; what cannot be used is left out.

A definition goes into the model's prompt and, at engines that hold models to schemas, into their grammar: one that is
no schema would break every request. Above: the room of hosted tools. Below: the SDK's types.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from mcp.types import Tool

from turnwire.server.tools.config import McpLimits
from turnwire.server.tools.declared import ServerSpec

_log: Final = logging.getLogger(__name__)

_MAX_NAME: Final = 128
_MAX_DEPTH: Final = 64


def definitions(spec: ServerSpec, tools: Sequence[Tool], limits: McpLimits) -> tuple[str, ...]:
    """Returns the definitions of a server's tools, each the text of a JSON object in the public form.

    Costs time in the schemas' size, so it belongs in a thread.
    """
    texts: list[str] = []
    names: set[str] = set()
    left = limits.max_listing_bytes
    dropped = 0
    for tool in tools[: limits.max_tools]:
        if spec.allowed_tools and tool.name not in spec.allowed_tools:
            continue
        text = "" if tool.name in names else _definition(tool, limits.max_tool_bytes)
        if not text or len(text) > left:
            dropped += 1
            continue
        names.add(tool.name)
        texts.append(text)
        left -= len(text)
    dropped += max(0, len(tools) - limits.max_tools)
    if dropped:
        _log.warning("%d tools of MCP server %s are not offered: too large, or not valid", dropped, spec.label)
    return tuple(texts)


def _definition(tool: Tool, limit: int) -> str:
    if not 0 < len(tool.name) <= _MAX_NAME or not _well_formed(tool.name + (tool.description or "")):
        return ""
    schema: dict[str, Any] = {"type": "object", **tool.input_schema}
    if schema["type"] != "object" or _too_deep(schema):
        return ""
    annotations = (
        tool.annotations.model_dump(by_alias=True, exclude_none=True, mode="json") if tool.annotations else None
    )
    public = {
        "annotations": annotations or None,
        "description": tool.description or tool.title,
        "input_schema": schema,
        "name": tool.name,
    }
    try:
        encoded = msgspec.json.encode(public)
        # Only what is small enough to check is checked.
        if len(encoded) > limit:
            return ""
        validator: Any = validator_for(schema)
        validator.check_schema(schema)
    except (SchemaError, ValueError, TypeError, OverflowError, RecursionError, AttributeError):
        return ""
    return encoded.decode()


def _well_formed(text: str) -> bool:
    return text.isprintable() or all(not "\ud800" <= char <= "\udfff" and char != "\0" for char in text)


def _too_deep(value: object, depth: int = 0) -> bool:
    if depth > _MAX_DEPTH:
        return True
    if isinstance(value, dict):
        return any(_too_deep(each, depth + 1) for each in cast("dict[str, object]", value).values())
    if isinstance(value, list):
        return any(_too_deep(each, depth + 1) for each in cast("list[object]", value))
    return False
