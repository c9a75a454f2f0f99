"""Checks of tool choice: what is named there must be declared.

Above: `prepare`. Below: refusals. Made with every request, so it looks at the tools only where the choice names some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from turnwire.server.policy import json_text
from turnwire.server.policy.refusals import missing, not_among, not_found_in_tools, not_object, too_few
from turnwire.server.session.toolsets import Tools
from turnwire.v1.errors import reject
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import NamedToolChoice, Tool, ToolChoiceMode

_MODES: Final = ("auto", "required")
_NAMING: Final = {"function": "name", "custom": "name", "namespace": "name", "mcp": "server_label"}
"""By which key the types of tools that have names are told apart."""


def check_choice(settings: ResponseCreate, tools: Tools) -> None:
    """Checks the tool choice against the tools in force, which were checked before.

    Raises:
        turnwire.v1.errors.RequestError: It asks for a tool that is not declared, or is not a choice at all.
    """
    choice = settings.tool_choice
    match choice.WhichOneof("form"):
        case "mode" if choice.mode == ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED:
            if not tools.parsed().tools:
                message = "Tool choice 'required' must be specified with 'tools' parameter."
                raise reject("invalid_value", message, param="tool_choice")
        case "named":
            _check_named(choice.named, tools.parsed().tools)
        case _:
            pass


def _check_named(choice: NamedToolChoice, tools: Sequence[Tool]) -> None:
    kind = choice.type
    if not kind:
        raise missing("tool_choice.type")
    declared = set(_declared(tools))
    if kind == "allowed_tools":
        if choice.mode not in _MODES:
            raise not_among("tool_choice.mode", choice.mode, _MODES)
        if not choice.tools:
            raise too_few("tool_choice.tools")
        for index, text in enumerate(choice.tools):
            _check_allowed(text, f"tool_choice.tools[{index}]", declared)
        return
    key = _key(kind, choice.name, choice.server_label)
    if kind in _NAMING and not key[1]:
        raise missing(f"tool_choice.{_NAMING[kind]}")
    if key not in declared:
        raise not_found_in_tools(kind)


def _check_allowed(text: str, param: str, declared: set[tuple[str, str]]) -> None:
    allowed = json_text.decoded(text)
    if allowed is None:
        raise not_object(param)
    kind, name, label = (_word(allowed.get(key)) for key in ("type", "name", "server_label"))
    if not kind:
        raise missing(f"{param}.type")
    if _key(kind, name, label) not in declared:
        raise not_found_in_tools(name or label or kind)


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _key(kind: str, name: str, label: str) -> tuple[str, str]:
    """Returns what stands for a tool: its type, and the name it goes by if its type has names."""
    naming = _NAMING.get(kind)
    return kind, label if naming == "server_label" else name if naming else ""


def _declared(tools: Sequence[Tool], namespace: str = "") -> Iterator[tuple[str, str]]:
    """Yields the keys of all tools; those in a namespace go by their own name, and by both joined by a dot."""
    for tool in tools:
        kind = tool.WhichOneof("kind")
        if kind == "unknown":
            yield tool.unknown.type, ""
        elif kind is not None:
            member = getattr(tool, kind)
            name = getattr(member, _NAMING[kind]) if kind in _NAMING else ""
            yield kind, name
            if namespace:
                yield kind, f"{namespace}.{name}"
            if kind == "namespace":
                yield from _declared(tool.namespace.tools, name)
