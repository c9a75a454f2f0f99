"""Tools as the chat API's functions, encoded once per tool set, and the way back from a function's name.

Above it: `body` and `engine`. Below it: `names`. The chat API has functions only: a custom tool becomes a function with
one text argument, a namespace a prefix of its functions' names. Hosted tools come as functions already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from turnwire.server.engine.chat.names import full_name, wire_name
from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.prompt.parts import json_object
from turnwire.server.session.chunks import CallKind
from turnwire.server.session.toolsets import Tools
from turnwire.v1.tool_pb2 import CustomTool, FunctionTool, Tool

MAX_SETS: Final = 256
"""Tool sets kept encoded."""

_encode: Final = msgspec.json.Encoder().encode

_INPUT_SCHEMA: Final = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The input, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a function's name stands for."""

    name: str
    """The tool's name, with its namespace."""
    kind: CallKind


@dataclass(frozen=True, slots=True)
class EncodedTools:
    """One tool set."""

    functions: Mapping[str, bytes]
    """The JSON of each function by its name on the wire, in the order of declaration."""
    targets: Mapping[str, Target]
    """What each function stands for."""
    json: bytes
    """All of them as a JSON list."""
    skipped: int = 0
    """Tools left out, since the chat API has no word for them."""

    def only(self, names: Collection[str]) -> bytes:
        """Returns some of the functions as a JSON list, in the order of declaration."""
        return _joined(piece for name, piece in self.functions.items() if name in names)

    def find(self, name: str) -> str | None:
        """Returns the wire name of a tool that is given by its full name, or by its own where a namespace has it."""
        wire = wire_name(name)
        if wire in self.functions:
            return wire
        return next((wire for wire, target in self.targets.items() if target.name.endswith(f".{name}")), None)


NOTHING: Final = EncodedTools({}, {}, b"")
"""No tools."""


class ToolCache:
    """Keeps tool sets encoded, by the hash of the set; the one used longest ago goes first."""

    def __init__(self, max_sets: int = MAX_SETS) -> None:
        """Starts empty."""
        self._sets: dict[bytes, EncodedTools] = {}
        self._max = max_sets
        self.encoded = 0
        """Sets encoded so far."""

    def get(self, tools: Tools, *, cached: bool = True) -> EncodedTools:
        """Returns a set, encoded; anew where that is wanted.

        Raises:
            Refusal: Two tools would have the same name.
        """
        if not tools.data:
            return NOTHING
        known = self._sets.pop(tools.digest, None)
        if known is None or not cached:
            known = _encoded(tools)
            self.encoded += 1
            if len(self._sets) >= self._max:
                del self._sets[next(iter(self._sets))]
        self._sets[tools.digest] = known
        return known


def _encoded(tools: Tools) -> EncodedTools:
    functions: dict[str, bytes] = {}
    targets: dict[str, Target] = {}
    skipped = _collect(tools.parsed().tools, "", "", functions, targets)
    return EncodedTools(functions, targets, _joined(functions.values()) if functions else b"", skipped)


def _collect(
    tools: Sequence[Tool], namespace: str, about: str, functions: dict[str, bytes], targets: dict[str, Target]
) -> int:
    skipped = 0
    for tool in tools:
        match tool.WhichOneof("kind"):
            case "function":
                name, kind = full_name(namespace, tool.function.name), CallKind.FUNCTION
                definition = _function(tool.function, about)
            case "custom":
                name, kind = full_name(namespace, tool.custom.name), CallKind.CUSTOM
                definition = _custom(tool.custom, about)
            case "namespace":
                group = tool.namespace
                skipped += _collect(group.tools, group.name, group.description, functions, targets)
                continue
            case _:
                skipped += 1
                continue
        # What the whole namespace is for is said once, with its first tool.
        about = ""
        wire = wire_name(name)
        if wire in functions:
            message = f"The tools '{targets[wire].name}' and '{name}' cannot be told apart upstream: rename one."
            raise Refusal("invalid_value", message)
        functions[wire] = _encode({"type": "function", "function": {"name": wire, **definition}})
        targets[wire] = Target(name, kind)
    return skipped


def _function(tool: FunctionTool, about: str) -> dict[str, Any]:
    definition: dict[str, Any] = {}
    description = "\n\n".join(text for text in (about, tool.description) if text)
    if description:
        definition["description"] = description
    if tool.parameters:
        definition["parameters"] = msgspec.Raw(tool.parameters.encode())
    if tool.strict:
        definition["strict"] = True
    return definition


def _custom(tool: CustomTool, about: str) -> dict[str, Any]:
    texts = [about, tool.description]
    shape = json_object(tool.format)
    if shape.get("type") == "grammar":
        texts.append(f"The input must follow this {shape.get('syntax', '')} grammar:\n{shape.get('definition', '')}")
    description = "\n\n".join(text for text in texts if text)
    return {"description": description, "parameters": _INPUT_SCHEMA} if description else {"parameters": _INPUT_SCHEMA}


def _joined(pieces: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(pieces) + b"]"
