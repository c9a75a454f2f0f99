"""What items say, in the few terms that every prompt format has: texts, calls, outputs and functions.

Above: renderers, which put these terms into their own form. Below: the items of `turnwire.v1`. What no format here can
say (images, files, sealed reasoning, items that are carried as opaque JSON) is left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from turnwire.server.prompt.hosted_calls import hosted_exchange
from turnwire.v1.item_pb2 import ContentPart, Item, McpCall, Message, Reasoning, ToolOutput
from turnwire.v1.tool_pb2 import ToolSet


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    call_id: str
    name: str
    text: str
    """Arguments as JSON text, or free text."""
    namespace: str = ""
    free_text: bool = False
    """Whether `text` is free text rather than JSON."""
    follows: str = ""
    """The approval request that showed this call already, where it is part of the conversation."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a call."""

    call_ids: tuple[str, ...]
    """The call it answers; older shapes may name it in either of two places."""
    texts: tuple[str, ...]
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Function:
    """A tool that the model is offered."""

    name: str
    description: str
    parameters: str | None
    """JSON Schema as JSON text; None for no arguments."""
    namespace: str = ""
    free_text: bool = False
    """Whether the tool takes free text rather than JSON."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """Functions under a common name."""

    name: str
    description: str
    functions: tuple[Function, ...]


FREE_TEXT_NOTE: Final = "Send the input as plain text, not as JSON."
"""Stands in the description of tools that take free text, since no format has a type for them."""


def part_texts(parts: Iterable[ContentPart]) -> tuple[tuple[str, ...], int]:
    """Returns the texts of parts, and how many parts have none."""
    texts: list[str] = []
    skipped = 0
    for part in parts:
        match part.WhichOneof("kind"):
            case "input_text":
                texts.append(part.input_text.text)
            case "output_text":
                texts.append(part.output_text.text)
            case "refusal":
                texts.append(part.refusal.refusal)
            case "reasoning_text":
                texts.append(part.reasoning_text.text)
            case "summary_text":
                texts.append(part.summary_text.text)
            case _:
                skipped += 1
    return tuple(texts), skipped


def message_texts(message: Message) -> tuple[tuple[str, ...], int]:
    """Returns the texts of a message, and how many of its parts were left out."""
    if message.content.WhichOneof("form") == "text":
        return (message.content.text,), 0
    return part_texts(message.content.parts.parts)


def reasoning_texts(reasoning: Reasoning) -> tuple[str, ...]:
    """Returns the raw reasoning, or its summary where a client replays nothing else."""
    return part_texts(reasoning.content or reasoning.summary)[0]


def call_of(item: Item) -> Call | None:
    """Returns the call that an item stands for; a hosted call is one too, named like the function it was offered as."""
    match item.WhichOneof("kind"):
        case "function_call":
            call = item.function_call
            return Call(call.call_id, call.name, call.arguments, call.namespace)
        case "custom_tool_call":
            custom = item.custom_tool_call
            return Call(custom.call_id, custom.name, custom.input, custom.namespace, free_text=True)
        case "local_shell_call":
            return Call(item.local_shell_call.call_id, "local_shell", item.local_shell_call.action)
        case "shell_call":
            return Call(item.shell_call.call_id, "shell", item.shell_call.action)
        case "apply_patch_call":
            return Call(item.apply_patch_call.call_id, "apply_patch", item.apply_patch_call.operation)
        case "mcp_approval_request":
            asked = item.mcp_approval_request
            pending = McpCall(server_label=asked.server_label, name=asked.name, arguments=asked.arguments)
            shown = hosted_exchange(Item(mcp_call=pending))
            return Call(asked.id, shown.name, shown.arguments) if shown is not None else None
        case _:
            exchange = hosted_exchange(item)
            if exchange is None:
                return None
            return Call(_hosted_id(item), exchange.name, exchange.arguments, follows=item.mcp_call.approval_request_id)


def output_of(item: Item) -> Output | None:
    """Returns the output that an item stands for; a hosted call holds its own."""
    match item.WhichOneof("kind"):
        case "function_call_output":
            return _output((item.function_call_output.call_id,), item.function_call_output.output)
        case "custom_tool_call_output":
            return _output((item.custom_tool_call_output.call_id,), item.custom_tool_call_output.output)
        case "local_shell_call_output":
            local = item.local_shell_call_output
            return Output((local.call_id, local.id), (local.output,))
        case "shell_call_output":
            return Output((item.shell_call_output.call_id,), ("\n".join(item.shell_call_output.output),))
        case "apply_patch_call_output":
            patch = item.apply_patch_call_output
            return Output((patch.call_id,), (patch.output,))
        case _:
            exchange = hosted_exchange(item)
            if exchange is None:
                return None
            return Output((_hosted_id(item), item.mcp_call.approval_request_id), (exchange.output,))


def _hosted_id(item: Item) -> str:
    return item.mcp_call.id if item.HasField("mcp_call") else item.web_search_call.id


def _output(call_ids: tuple[str, ...], output: ToolOutput) -> Output:
    if output.WhichOneof("form") == "text":
        return Output(call_ids, (output.text,))
    texts, skipped = part_texts(output.parts.parts)
    return Output(call_ids, texts, skipped)


def namespaces_of(tools: ToolSet) -> tuple[Namespace, ...]:
    """Returns the functions that a set offers, in order: those without a namespace first, under the name "".

    Tools that are no function (a shell, opaque ones) are left out: the model could not call them in any format here.
    """
    loose: list[Function] = []
    named: list[Namespace] = []
    for tool in tools.tools:
        match tool.WhichOneof("kind"):
            case "function":
                function = tool.function
                parameters = function.parameters if function.HasField("parameters") else None
                loose.append(Function(function.name, function.description, parameters))
            case "custom":
                loose.append(_custom(tool.custom.name, tool.custom.description, tool.custom.format))
            case "namespace":
                group = tool.namespace
                inner = namespaces_of(ToolSet(tools=group.tools))
                functions = inner[0].functions if inner else ()
                named.append(Namespace(group.name, group.description, functions))
            case _:
                pass
    return ((Namespace("", "", tuple(loose)),) if loose else ()) + tuple(named)


def _custom(name: str, description: str, format_json: str) -> Function:
    lines = [description] if description else []
    lines.append(FREE_TEXT_NOTE)
    shape = json_object(format_json)
    if shape.get("type") == "grammar":
        lines.append(f"It must follow this {shape.get('syntax', '')} grammar:\n{shape.get('definition', '')}")
    return Function(name, "\n".join(lines), '{"type":"string"}', free_text=True)


def json_value(text: str) -> Any:
    """Returns the value of JSON text; None where it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def json_object(text: str) -> dict[str, Any]:
    """Returns the object of JSON text; an empty one where it is none."""
    value = json_value(text) if text else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
