"""What stands in front of a harmony conversation: the system message and the developer's, with the functions.

Above: the harmony renderer, which encodes it once per head. Below: the notation of schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.server.prompt.harmony.schema import typescript
from turnwire.server.prompt.parts import Function, Namespace, json_value, namespaces_of
from turnwire.server.prompt.renderer import Head

FUNCTIONS: Final = "functions"
"""The namespace of functions that were declared without one."""

_EFFORTS: Final = {
    "": "medium",
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """What the system message says about the model itself."""

    name: str = "You are ChatGPT, a large language model trained by OpenAI."
    knowledge_cutoff: str = "2024-06"
    channels: tuple[str, ...] = ("analysis", "commentary", "final")


def system_text(head: Head, identity: Identity, *, functions: bool) -> str:
    """Returns the content of the system message."""
    about = [identity.name, f"Knowledge cutoff: {identity.knowledge_cutoff}"]
    if head.date:
        about.append(f"Current date: {head.date}")
    channels = f"# Valid channels: {', '.join(identity.channels)}. Channel must be included for every message."
    if functions:
        channels += f"\nCalls to these tools must go to the commentary channel: '{FUNCTIONS}'."
    effort = _EFFORTS.get(head.effort, "medium")
    return "\n\n".join(("\n".join(about), f"Reasoning: {effort}", channels))


def developer_text(head: Head, groups: Sequence[Namespace]) -> str:
    """Returns the content of the developer message; empty where there is nothing to say."""
    sections = [instructions_text(head.instructions)] if head.instructions else []
    if groups:
        sections.append(tools_text(groups))
    if head.schema:
        lines = ["# Response Formats", f"## {head.schema_name}"]
        about = f"// {head.schema_description}\n" if head.schema_description else ""
        lines.append(about + head.schema)
        sections.append("\n\n".join(lines))
    return "\n\n".join(sections)


def instructions_text(text: str) -> str:
    """Returns instructions as a developer message holds them."""
    return f"# Instructions\n\n{text}"


def groups_of(head: Head) -> tuple[Namespace, ...]:
    """Returns the functions of a head in harmony's namespaces, which stand in the order of their names."""
    groups: dict[str, Namespace] = {}
    for group in namespaces_of(head.tools):
        name = group.name or FUNCTIONS
        before = groups[name].functions if name in groups else ()
        groups[name] = Namespace(name, group.description, before + group.functions)
    return tuple(groups[name] for name in sorted(groups, key=str.encode))


def tools_text(groups: Iterable[Namespace]) -> str:
    """Returns the section that declares functions."""
    return "\n\n".join(["# Tools", *(_group(group) for group in groups)])


def _group(group: Namespace) -> str:
    lines = [f"## {group.name}\n"]
    about = _lines(group.description)
    if not group.functions:
        return "\n".join(lines + about)
    lines += [f"// {line}" for line in about]
    lines.append(f"namespace {group.name} {{\n")
    for function in group.functions:
        lines += _function(function)
    lines.append(f"}} // namespace {group.name}")
    return "\n".join(lines)


def _function(function: Function) -> list[str]:
    lines = [f"// {line}" for line in _lines(function.description)]
    schema = json_value(function.parameters) if function.parameters is not None else None
    arguments = "" if schema is None else f"_: {typescript(schema)}"
    lines.append(f"type {function.name} = ({arguments}) => any;\n")
    return lines


def _lines(text: str) -> list[str]:
    """Returns the lines of a text; unlike `splitlines`, only line feeds end one."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
