"""From items to the chat messages that templates read.

Above: the template renderer. Below: the terms of `prompt/parts`. One assistant message holds a run of reasoning, text
and calls; instructions and leading messages of the developer are one system message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from turnwire.server.prompt.parts import (
    Call,
    Function,
    call_of,
    json_object,
    json_value,
    message_texts,
    namespaces_of,
    output_of,
    reasoning_texts,
)
from turnwire.v1.item_pb2 import Item, Role
from turnwire.v1.tool_pb2 import ToolSet

ChatMessage = dict[str, Any]

Mark = Callable[[str], str]
"""Marks a text that comes from a client."""

_NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_FREE_TEXT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}


class Messages:
    """Puts items together to messages."""

    def __init__(
        self, mark: Mark, open_calls: Mapping[str, str] | None = None, *, arguments_as_text: bool = False
    ) -> None:
        """Takes how to mark texts, the names of calls made before, by call id, and how arguments are given."""
        self._mark = mark
        self._arguments_as_text = arguments_as_text
        self.open_calls = dict(open_calls or {})
        """Names of the calls that have no output yet, by call id."""
        self.messages: list[ChatMessage] = []
        self.items = 0
        """Items that became part of a message."""
        self.skipped = 0
        """Items and parts that could not."""

    def add(self, item: Item) -> None:
        """Takes the next item."""
        match item.WhichOneof("kind"):
            case "message":
                texts, skipped = message_texts(item.message)
                self.skipped += skipped
                self._message(item.message.role, "\n".join(texts))
            case "reasoning":
                texts = reasoning_texts(item.reasoning)
                if not texts:
                    self.skipped += 1
                    return
                reasoning = self._mark("\n".join(texts))
                open_ = self._assistant(fresh_after=("reasoning_content", "content", "tool_calls"))
                open_["reasoning_content"] = reasoning
            case _:
                call, output = call_of(item), output_of(item)
                if call is None and output is None:
                    self.skipped += 1
                    return
                # An approved call was shown when its approval was asked for.
                if call is not None and call.follows not in self.open_calls:
                    self._call(call)
                if output is not None:
                    self.skipped += output.skipped
                    self._output(output.call_ids, "\n".join(output.texts))
        self.items += 1

    def _message(self, role: Role.ValueType, text: str) -> None:
        if role == Role.ROLE_ASSISTANT:
            message = self._assistant(fresh_after=("tool_calls",))
            before = message["content"]
            message["content"] = before + ("\n" if before else "") + self._mark(text)
        else:
            name = "user" if role == Role.ROLE_USER else "system"
            self.messages.append({"role": name, "content": self._mark(text)})

    def _assistant(self, fresh_after: tuple[str, ...]) -> ChatMessage:
        """Returns the message of the model that goes on; a new one where the last holds what must come later."""
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != "assistant" or any(last.get(key) for key in fresh_after):
            last = {"role": "assistant", "content": ""}
            self.messages.append(last)
        return last

    def _call(self, call: Call) -> None:
        name = full_name(call.namespace, call.name)
        self.open_calls[call.call_id] = name
        text = msgspec.json.encode({"input": call.text}).decode() if call.free_text else call.text
        arguments: object = None if self._arguments_as_text else json_value(text)
        # Templates iterate over arguments; what is no object can only be shown as it is.
        shown = mark_deep(cast("object", arguments) if isinstance(arguments, dict) else text, self._mark)
        message = self._assistant(fresh_after=())
        message.setdefault("tool_calls", []).append(
            {
                "id": self._mark(call.call_id),
                "type": "function",
                "function": {"name": self._mark(name), "arguments": shown},
            }
        )

    def _output(self, call_ids: Iterable[str], text: str) -> None:
        name, answered = "unknown", ""
        for call_id in call_ids:
            answered = answered or call_id
            name = self.open_calls.pop(call_id, name)
        self.messages.append(
            {
                "role": "tool",
                "name": self._mark(name),
                "tool_call_id": self._mark(answered),
                "content": self._mark(text),
            }
        )


def system_message(instructions: str, mark: Mark) -> list[ChatMessage]:
    """Returns instructions as the message that stands first; none where there are none."""
    return [{"role": "system", "content": mark(instructions)}] if instructions else []


def lead(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Joins the system messages at the beginning: templates take one."""
    first = 0
    while first < len(messages) and messages[first]["role"] == "system":
        first += 1
    if first < 2:
        return messages
    content = "\n\n".join(message["content"] for message in messages[:first])
    return [{"role": "system", "content": content}, *messages[first:]]


def tool_definitions(tools: ToolSet, mark: Mark) -> list[dict[str, Any]]:
    """Returns the functions as templates expect them."""
    found: list[dict[str, Any]] = []
    for group in namespaces_of(tools):
        found += [_definition(function, group.name, mark) for function in group.functions]
    return found


def full_name(namespace: str, name: str) -> str:
    """Returns the name of a function; a namespace stands before it with a dot."""
    return f"{namespace}.{name}" if namespace else name


def _definition(function: Function, namespace: str, mark: Mark) -> dict[str, Any]:
    parameters = _FREE_TEXT if function.free_text else json_object(function.parameters or "") or _NO_ARGUMENTS
    definition: dict[str, Any] = {
        "name": mark(full_name(namespace, function.name)),
        "description": mark(function.description),
        "parameters": mark_deep(parameters, mark),
    }
    return {"type": "function", "function": definition}


def mark_deep(value: object, mark: Mark) -> object:
    """Marks every text in a JSON value, keys included."""
    if isinstance(value, str):
        return mark(value)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {mark(key): mark_deep(each, mark) for key, each in members.items()}
    if isinstance(value, list):
        return [mark_deep(each, mark) for each in cast("list[object]", value)]
    return value
