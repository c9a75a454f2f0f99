"""Pairing of tool calls with their outputs: which item opens a call, which one answers it, and what is missing.

Only new items are looked at: a transcript carries the set of calls still open, so no history is walked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from turnwire.v1.errors import RequestError, reject
from turnwire.v1.item_pb2 import Item, ItemStatus


class CallKey(NamedTuple):
    """Names one call within a chain."""

    family: str
    """A key of `FAMILIES`."""
    id: str


@dataclass(frozen=True, slots=True)
class Family:
    """One pair of item types."""

    call: str
    """Words for the call in error messages, as the public API has them."""
    output: str
    """Words for the output in error messages."""
    must_answer: bool = True
    """Whether a chain may not go on while a call is unanswered."""


FAMILIES: Final[dict[str, Family]] = {
    "function": Family("function call", "function call output"),
    "custom": Family("custom tool call", "custom tool call output"),
    "local_shell": Family("local shell call", "local shell call output"),
    "shell": Family("shell call", "shell call output"),
    "apply_patch": Family("apply patch call", "apply patch call output"),
    "tool_search": Family("tool search call", "tool search output"),
    "computer": Family("computer call", "computer call output"),
    # People may leave an approval open and say something else instead.
    "mcp_approval": Family("MCP approval request", "MCP approval response", must_answer=False),
}

NO_CALLS: Final[frozenset[CallKey]] = frozenset()
"""No calls, kept once: an empty set of its own is two hundred bytes in each step of a conversation."""

_PENDING: Final = (ItemStatus.ITEM_STATUS_INCOMPLETE,)


def opened_by(item: Item) -> CallKey | None:
    """Returns the call that an item opens, None where it opens none or was cut short."""
    match item.WhichOneof("kind"):
        case "function_call" if item.function_call.status not in _PENDING:
            return CallKey("function", item.function_call.call_id)
        case "custom_tool_call" if item.custom_tool_call.status not in _PENDING:
            return CallKey("custom", item.custom_tool_call.call_id)
        case "local_shell_call" if item.local_shell_call.status not in _PENDING:
            return CallKey("local_shell", item.local_shell_call.call_id or item.local_shell_call.id)
        case "shell_call" if item.shell_call.status not in _PENDING:
            return CallKey("shell", item.shell_call.call_id)
        case "apply_patch_call" if item.apply_patch_call.status not in _PENDING:
            return CallKey("apply_patch", item.apply_patch_call.call_id)
        case "tool_search_call" if item.tool_search_call.execution == "client":
            return CallKey("tool_search", item.tool_search_call.call_id)
        case "computer_call":
            return CallKey("computer", item.computer_call.call_id)
        case "mcp_approval_request":
            return CallKey("mcp_approval", item.mcp_approval_request.id)
        case _:
            return None


def answered_by(item: Item) -> CallKey | None:
    """Returns the call that an item answers, None where it answers none."""
    match item.WhichOneof("kind"):
        case "function_call_output":
            return CallKey("function", item.function_call_output.call_id)
        case "custom_tool_call_output":
            return CallKey("custom", item.custom_tool_call_output.call_id)
        case "local_shell_call_output":
            return CallKey("local_shell", item.local_shell_call_output.call_id or item.local_shell_call_output.id)
        case "shell_call_output":
            return CallKey("shell", item.shell_call_output.call_id)
        case "apply_patch_call_output":
            return CallKey("apply_patch", item.apply_patch_call_output.call_id)
        case "tool_search_output" if item.tool_search_output.execution == "client":
            return CallKey("tool_search", item.tool_search_output.call_id)
        case "computer_call_output":
            return CallKey("computer", item.computer_call_output.call_id)
        case "mcp_approval_response":
            return CallKey("mcp_approval", item.mcp_approval_response.approval_request_id)
        case _:
            return None


def no_call_found(key: CallKey) -> RequestError:
    """The public API's error for an output that no call awaits."""
    words = FAMILIES[key.family].output
    message = f"No tool call found for {words} with call_id {key.id}."
    return reject("invalid_request_error", message, param="input", call_id=key.id)


def no_output_found(key: CallKey) -> RequestError:
    """The public API's error for a call that was left unanswered."""
    words = FAMILIES[key.family].call
    message = f"No tool output found for {words} {key.id}."
    return reject("invalid_request_error", message, param="input", call_id=key.id)


def pair(open_calls: frozenset[CallKey], items: Iterable[Item]) -> frozenset[CallKey]:
    """Returns the calls open after some new items.

    The order of a call and its output within the new items does not matter, as in the public API. An id may be used
    again: some models number the calls of every turn from 0, and whoever replays their turns sends all of them at once.

    Args:
        open_calls: Calls open before.
        items: The new items, and only those.

    Raises:
        RequestError: An item answers a call that is not open, or one that another item answers too.
    """
    answered: list[CallKey] = []
    opened = Counter(open_calls)
    for item in items:
        if (call := opened_by(item)) is not None:
            opened[call] += 1
        elif (answer := answered_by(item)) is not None:
            answered.append(answer)
    for key in answered:
        if not opened[key]:
            raise no_call_found(key)
        opened[key] -= 1
    return frozenset(+opened) or NO_CALLS


def to_answer(open_calls: Iterable[CallKey]) -> list[CallKey]:
    """Returns the calls that must be answered before the model may go on."""
    return [key for key in open_calls if FAMILIES[key.family].must_answer]


def require_answered(open_calls: frozenset[CallKey]) -> None:
    """Checks that the model may go on.

    Raises:
        RequestError: A call that must be answered was left open.
    """
    for key in sorted(to_answer(open_calls)):
        raise no_output_found(key)
