"""Small constructors for the items and tools an application sends most.

Everything here returns plain `turnwire.v1` messages; whatever is not here can be built from those, or given to `create`
as dicts in the official JSON shape. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from turnwire.v1.item_pb2 import (
    ContentPart,
    ContentParts,
    CustomToolCallOutput,
    FunctionCallOutput,
    InputImage,
    InputText,
    Item,
    ItemReference,
    Message,
    MessageContent,
    Role,
    ToolOutput,
)
from turnwire.v1.tool_pb2 import CustomTool, FunctionTool, Tool

Content: TypeAlias = str | Iterable[ContentPart]
"""Plain text, or parts in order."""


def user(content: Content) -> Item:
    """Returns a message of the end user."""
    return _message(Role.ROLE_USER, content)


def developer(content: Content) -> Item:
    """Returns instructions of the developer."""
    return _message(Role.ROLE_DEVELOPER, content)


def system(content: Content) -> Item:
    """Returns instructions with the highest authority."""
    return _message(Role.ROLE_SYSTEM, content)


def assistant(content: Content) -> Item:
    """Returns a message of the model, for a history that is sent in full."""
    return _message(Role.ROLE_ASSISTANT, content)


def text_part(text: str) -> ContentPart:
    """Returns a text part of a message or tool output."""
    return ContentPart(input_text=InputText(text=text))


def image_part(url: str, *, detail: str | None = None) -> ContentPart:
    """Returns an image part.

    Args:
        url: An http(s) or data: URL.
        detail: `low`, `high`, `auto` or `original`.
    """
    return ContentPart(input_image=InputImage(image_url=url, detail=detail))


def function_call_output(call_id: str, output: Content) -> Item:
    """Returns the output of a function tool.

    Args:
        call_id: The `call_id` (not the `id`) of the call it answers.
        output: What the tool returned.
    """
    return Item(function_call_output=FunctionCallOutput(call_id=call_id, output=_tool_output(output)))


def custom_tool_call_output(call_id: str, output: Content) -> Item:
    """Returns the output of a custom tool; see `function_call_output`."""
    return Item(custom_tool_call_output=CustomToolCallOutput(call_id=call_id, output=_tool_output(output)))


def item_reference(item_id: str) -> Item:
    """Returns a pointer to an item that the server already has."""
    return Item(item_reference=ItemReference(id=item_id))


def function_tool(
    name: str,
    *,
    description: str | None = None,
    parameters: str | Mapping[str, object] | None = None,
    strict: bool | None = None,
) -> Tool:
    """Returns the definition of a function the client runs.

    Args:
        name: 1 to 128 characters of `[A-Za-z0-9_.:-]`.
        description: What it does, for the model.
        parameters: JSON Schema of the arguments. Text is kept byte for byte, which matters because it is part of the
            prompt; a mapping is written compactly in its own order.
        strict: Whether the engine must hold the model to the schema.
    """
    if parameters is not None and not isinstance(parameters, str):
        parameters = json.dumps(parameters, ensure_ascii=False, separators=(",", ":"))
    return Tool(function=FunctionTool(name=name, description=description, parameters=parameters, strict=strict))


def custom_tool(name: str, *, description: str | None = None, format: str | None = None) -> Tool:
    """Returns the definition of a free text tool the client runs.

    Args:
        name: 1 to 128 characters.
        description: What it does, for the model.
        format: What its input looks like, as JSON text.
    """
    return Tool(custom=CustomTool(name=name, description=description, format=format))


def _message(role: Role.ValueType, content: Content) -> Item:
    body = MessageContent(text=content) if isinstance(content, str) else MessageContent(parts=_parts(content))
    return Item(message=Message(role=role, content=body))


def _tool_output(output: Content) -> ToolOutput:
    return ToolOutput(text=output) if isinstance(output, str) else ToolOutput(parts=_parts(output))


def _parts(parts: Iterable[ContentPart]) -> ContentParts:
    return ContentParts(parts=parts)
