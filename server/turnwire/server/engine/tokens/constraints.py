"""Grammars for engines that can hold a model to them: a JSON answer, or a call of a tool that must be called.

Above it: `rendered`. Below it: nothing. What a model writes around an answer (channels, tags) is part of the grammar,
so each output format has a frame of its own here; a format without one is held to a schema alone, and only where the
answer is the whole output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from turnwire.server.engine.tokens.port import Constraint
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import Tool, ToolChoiceMode, ToolSet

Format = dict[str, Any]
"""An element of a structural tag."""

_ANY_OBJECT: Final = '{"type":"object"}'


@dataclass(frozen=True, slots=True)
class _Call:
    """A function or a free text tool, as the model names it."""

    name: str
    schema: str
    """JSON Schema of the arguments; empty for free text."""
    namespace: str


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands around answers and calls in one output format."""

    reasoning: tuple[str, str, str] | None
    """What opens and closes reasoning, and what stands before the next part; None for models that cannot reason."""
    answer: tuple[str, str]
    """What opens and closes an answer."""
    call: tuple[str, str]
    """What opens and closes a call, with NAME for its name, JSON for its name as JSON text, SPACE for its namespace."""
    custom: tuple[str, str] | None = None
    """The same for a call of free text; None where the format has no such calls."""
    arguments: str = "json_schema"
    """The element of a structural tag that writes arguments by a schema."""


_PLACES: Final = re.compile("SPACE|NAME|JSON")

_FRAMES: Final[dict[str, _Frame]] = {
    "harmony": _Frame(
        reasoning=("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant"),
        answer=("<|channel|>final<|message|>", ""),
        # Nothing closes them here: the id that does so ends sampling too, and a grammar must be at its end by then.
        call=("<|channel|>commentary to=SPACE.NAME <|constrain|>json<|message|>", ""),
        custom=("<|channel|>commentary to=SPACE.NAME<|message|>", ""),
    ),
    "hermes": _Frame(
        reasoning=None,
        answer=("", ""),
        call=('<tool_call>\n{"name": JSON, "arguments": ', "}\n</tool_call>"),
    ),
    "qwen-coder": _Frame(
        reasoning=None,
        answer=("", ""),
        call=("<tool_call>\n<function=NAME>\n", "\n</function>\n</tool_call>"),
        # Older than the style of schemas that does the same, and read by grammars of every age.
        arguments="qwen_xml_parameter",
    ),
}


def constraint_of(settings: ResponseCreate, tools: ToolSet, output_format: str) -> Constraint | None:
    """Returns what the output has to follow; None for nothing, or for what this format cannot be held to.

    Args:
        settings: The effective settings of the pass.
        tools: The tools that the prompt declares.
        output_format: The format that the output parser reads.
    """
    schema = _schema(settings)
    forced, names = _choice(settings)
    if not forced and schema is None:
        return None
    silent = settings.tool_choice.mode == ToolChoiceMode.TOOL_CHOICE_MODE_NONE
    calls = [] if silent else [call for call in _calls(tools.tools) if not names or call.name in names]
    frame = _FRAMES.get(output_format)
    if frame is None:
        return None if forced or schema is None or calls else _alone(settings, schema)
    if not forced and not calls and frame.answer == ("", "") and frame.reasoning is None and schema is not None:
        return _alone(settings, schema)
    parts = [part for call in calls if (part := _call_part(frame, call)) is not None]
    if forced and not parts:
        return None
    if not forced and schema is not None:
        answer = _tag(frame.answer, {"type": "json_schema", "json_schema": msgspec.Raw(schema.encode())})
        parts = [answer, *parts]
    elements = [_either(parts)]
    if frame.reasoning is not None:
        opening, closing, between = frame.reasoning
        thought = _tag((opening, closing), {"type": "any_text"})
        then = {"type": "sequence", "elements": [thought, {"type": "const_string", "value": between}, *elements]}
        elements = [then, *elements]
    tag = {"type": "structural_tag", "format": _either(elements)}
    return Constraint("structural_tag", msgspec.json.encode(tag).decode())


def _alone(settings: ResponseCreate, schema: str) -> Constraint:
    if settings.text.format.WhichOneof("kind") == "json_object":
        return Constraint("json_object")
    return Constraint("json_schema", schema)


def _schema(settings: ResponseCreate) -> str | None:
    chosen = settings.text.format
    match chosen.WhichOneof("kind"):
        case "json_object":
            return _ANY_OBJECT
        case "json_schema":
            return chosen.json_schema.schema or _ANY_OBJECT
        case _:
            return None


def _choice(settings: ResponseCreate) -> tuple[bool, frozenset[str]]:
    """Returns whether a tool must be called, and which may be; an empty set stands for all."""
    choice = settings.tool_choice
    if choice.WhichOneof("form") == "mode":
        return choice.mode == ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED, frozenset()
    if choice.WhichOneof("form") == "named":
        named = choice.named
        if named.type in ("function", "custom"):
            return True, frozenset((named.name,))
        if named.type == "allowed_tools":
            allowed = (msgspec.json.decode(tool) for tool in named.tools)
            return named.mode == "required", frozenset(str(tool.get("name", "")) for tool in allowed)
    return False, frozenset()


def _calls(tools: Iterable[Tool], namespace: str = "functions") -> Iterator[_Call]:
    for tool in tools:
        match tool.WhichOneof("kind"):
            case "function":
                yield _Call(tool.function.name, tool.function.parameters or _ANY_OBJECT, namespace)
            case "custom":
                yield _Call(tool.custom.name, "", namespace)
            case "namespace":
                yield from _calls(tool.namespace.tools, tool.namespace.name)
            case _:
                pass


def _call_part(frame: _Frame, call: _Call) -> Format | None:
    marks = frame.call if call.schema else frame.custom
    if marks is None:
        return None
    names = {"SPACE": call.namespace, "NAME": call.name, "JSON": json.dumps(call.name)}
    opening, closing = (_PLACES.sub(lambda place: names[place[0]], mark) for mark in marks)
    if call.schema:
        return _tag((opening, closing), {"type": frame.arguments, "json_schema": msgspec.Raw(call.schema.encode())})
    return _tag((opening, closing), {"type": "any_text"})


def _tag(marks: tuple[str, str], content: Format) -> Format:
    return {"type": "tag", "begin": marks[0], "content": content, "end": marks[1]}


def _either(parts: list[Format]) -> Format:
    return parts[0] if len(parts) == 1 else {"type": "or", "elements": parts}
