"""What a message looks like without its texts, and short conversations that stand for long ones.

Above: the dialect of a head, which proves on such stand-ins that a template only appends. Below: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from turnwire.server.prompt.template.messages import ChatMessage


class Shape(NamedTuple):
    """A message without its texts."""

    role: str
    content: bool = True
    reasoning: bool = False
    calls: int = 0


USER: Final = Shape("user")
ASSISTANT: Final = Shape("assistant")
TOOL: Final = Shape("tool")


def shape_of(message: ChatMessage) -> Shape:
    """Returns the shape of a message."""
    content, reasoning = message.get("content"), message.get("reasoning_content")
    return Shape(message["role"], bool(content), bool(reasoning), len(message.get("tool_calls") or ()))


def stand_in(shape: Shape, text: str = "x", *, arguments_as_text: bool = False) -> ChatMessage:
    """Returns a message of a shape, with one text wherever there is one."""
    message: ChatMessage = {"role": shape.role, "content": text if shape.content else ""}
    if shape.reasoning:
        message["reasoning_content"] = text
    if shape.calls:
        arguments: object = f'{{"a": "{text}"}}' if arguments_as_text else {"a": text}
        function: dict[str, Any] = {"name": text, "arguments": arguments}
        message["tool_calls"] = [{"id": f"call0000{text}", "type": "function", "function": function}] * shape.calls
    if shape.role == "tool":
        message["name"], message["tool_call_id"] = text, f"call0000{text}"
    return message


def context(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """Returns the end of a conversation by which a template decides how it goes on.

    That is the last message of the model with what followed it, after some user message; or the last message of
    somebody else where the model did not speak since.
    """
    last = len(shapes) - 1
    while last >= 0 and shapes[last].role == "tool":
        last -= 1
    if last >= 0 and shapes[last].role == "assistant":
        return (USER, *shapes[last:])
    return tuple(shapes[-1:])


def histories(seen: Iterable[Shape]) -> list[tuple[tuple[Shape, ...], tuple[Shape, ...]]]:
    """Returns what may stand before a context, and behind its user message, for a proof to try.

    They are made of the shapes that occurred in the conversation, since templates treat each its own way, and not every
    template knows all.
    """
    shapes = sorted(set(seen))
    loops = tuple(each for shape in shapes if shape.calls for each in (shape, *(TOOL,) * shape.calls))
    answers = [shape for shape in shapes if shape.role == "assistant" and not shape.calls] or [ASSISTANT]
    others = tuple(shape for shape in shapes if shape.role not in ("user", "assistant", "tool"))
    turns = tuple(each for answer in answers for each in (*others, USER, *loops, answer))
    tried: list[tuple[tuple[Shape, ...], tuple[Shape, ...]]] = [((), ()), (turns, ()), (turns + turns, ())]
    if loops:
        tried += [((), loops), (turns, loops + loops)]
    return tried
