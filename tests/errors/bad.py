"""What a client can do wrong with the body of a create, and what each door has to answer.

Above it: the tests. Below it: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Bad:
    """A body that is refused."""

    name: str
    body: dict[str, Any]
    code: str
    param: str | None
    status: int = 400
    message: str = ""
    """In so many words, where the public API's are known."""
    readable: bool = True
    """Whether it can be said in our own messages at all, which have types."""
    on_session: tuple[str, str] | None = None
    """Code and parameter where a session refuses it for what it is, whatever else is wrong with it."""


def _input(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "stepped", "input": list(items), **more}


def _asking(**more: Any) -> dict[str, Any]:
    return {"model": "stepped", "input": "hello", **more}


def _tool(**more: Any) -> dict[str, Any]:
    return _asking(tools=[{"type": "function", "name": "f", "parameters": {}, "strict": None, **more}])


_INVALID: Final = "invalid_request_error"
_USER: Final = {"type": "message", "role": "user", "content": "hello"}

BAD: Final = (
    # The table of the public API.
    Bad(
        "an unknown previous response",
        _asking(previous_response_id="resp_abc"),
        "previous_response_not_found",
        "previous_response_id",
        message="Previous response with id 'resp_abc' not found.",
    ),
    Bad(
        "an output without its call",
        _input({"type": "function_call_output", "call_id": "call_x", "output": "?"}),
        _INVALID,
        "input",
        message="No tool call found for function call output with call_id call_x.",
    ),
    Bad(
        "an output without its custom call",
        _input({"type": "custom_tool_call_output", "call_id": "call_x", "output": "?"}),
        _INVALID,
        "input",
        message="No tool call found for custom tool call output with call_id call_x.",
    ),
    Bad(
        "a call without its output",
        _input({"type": "function_call", "call_id": "call_x", "name": "f", "arguments": "{}"}, _USER),
        _INVALID,
        "input",
        message="No tool output found for function call call_x.",
    ),
    Bad("an id with the prefix of another kind", _input({**_USER, "id": "fc_1"}), "invalid_value", "input[0].id"),
    # Required, types and ranges.
    Bad("no model", {"input": "hello"}, "missing_required_parameter", "model"),
    Bad("an unknown model", _asking(model="nobody"), "model_not_found", "model", 404),
    Bad("a model of another type", _asking(model=5), "invalid_type", "model", readable=False),
    Bad("a temperature in words", _asking(temperature="warm"), "invalid_type", "temperature", readable=False),
    Bad("a temperature that is too high", _asking(temperature=3), "invalid_value", "temperature"),
    Bad("a top_p that is too high", _asking(top_p=1.5), "invalid_value", "top_p"),
    Bad("too few output tokens", _asking(max_output_tokens=1), "invalid_value", "max_output_tokens"),
    Bad("too many log-probabilities", _asking(top_logprobs=21), "invalid_value", "top_logprobs"),
    Bad("input of another type", _asking(input=5), "invalid_type", "input", readable=False),
    Bad("content of another type", _input({**_USER, "content": 3}), "invalid_type", "input[0].content", readable=False),
    Bad("a role that nobody has", _input({**_USER, "role": "king"}), "invalid_value", "input[0].role", readable=False),
    Bad(
        "an item without a call id",
        _input({"type": "function_call_output", "output": "?"}),
        "missing_required_parameter",
        "input[0].call_id",
    ),
    # Sizes.
    Bad("too much metadata", _asking(metadata={f"k{i}": "v" for i in range(17)}), "invalid_value", "metadata"),
    Bad("a long key of metadata", _asking(metadata={"k" * 65: "v"}), "string_above_max_length", "metadata"),
    Bad("a long value of metadata", _asking(metadata={"k": "v" * 513}), "string_above_max_length", "metadata.k"),
    # Tools.
    Bad("a tool without a name", _tool(name=""), "missing_required_parameter", "tools[0].name"),
    Bad("a tool with a bad name", _tool(name="a b"), "invalid_value", "tools[0].name"),
    Bad(
        "a tool with a bad schema",
        _tool(parameters={"type": "nonsense"}),
        "invalid_function_parameters",
        "tools[0].parameters",
    ),
    Bad(
        "a choice that is not offered",
        _asking(tool_choice={"type": "function", "name": "g"}),
        "invalid_value",
        "tool_choice",
    ),
    Bad("a choice without tools", _asking(tool_choice="required"), "invalid_value", "tool_choice"),
    # What is not done here.
    Bad("a conversation", _asking(conversation="conv_1"), "unsupported_parameter", "conversation"),
    Bad("a prompt of the hoster's", _asking(prompt={"id": "pmpt_1"}), "unsupported_parameter", "prompt"),
    Bad(
        "a threshold of compaction that is none",
        _asking(context_management=[{"type": "compaction", "compact_threshold": 10}]),
        "invalid_value",
        "context_management[0].compact_threshold",
    ),
    Bad(
        "a reference to nothing",
        _input({"type": "item_reference", "id": "msg_nothing"}),
        "item_not_found",
        "input[0]",
        404,
    ),
    # Background needs the store.
    Bad(
        "a background response that is not stored",
        _asking(background=True, store=False),
        "invalid_value",
        "store",
        on_session=("unsupported_parameter", "background"),
    ),
)
