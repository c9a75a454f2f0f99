"""The words of hosted tools: what the model's functions stand for, what servers listed, and what users approved.

Above: tool sets, effects and the passes that run hosted tools. Below: calls and entries of the transcript.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from turnwire.server.prompt.hosted_calls import OWN_LABEL
from turnwire.v1.item_pb2 import Item, McpApprovalRequest, McpApprovalResponse

if TYPE_CHECKING:
    from turnwire.server.session.transcript import Entry, Transcript


class Kind(enum.Enum):
    """What a hosted call is reported as."""

    FUNCTION = "function"
    """A function that the server runs by itself, reported as a call of the server named `OWN_LABEL`."""
    MCP = "mcp"
    """A tool of an MCP server."""
    SEARCH = "web_search"
    """A web search."""


@dataclass(frozen=True, slots=True)
class Target:
    """What runs when the model calls a hosted function."""

    kind: Kind
    label: str
    """The MCP server."""
    name: str
    """The tool's own name."""
    asks: bool = False
    """Whether the user is asked before every call."""


def own_target(name: str) -> Target:
    """Returns the target of a function that the server runs by itself."""
    return Target(Kind.FUNCTION, OWN_LABEL, name)


@dataclass(frozen=True, slots=True)
class Listed:
    """The answer to `ListTools`."""

    tools: tuple[str, ...]
    """Tool definitions, each a JSON object of the public form."""
    error: str = ""
    """Why they could not be listed; the response goes on without them."""


class Listing:
    """The tools of an MCP server as they stand in a chain; a value."""

    __slots__ = ("data", "digest", "label")

    def __init__(self, label: str, data: bytes) -> None:
        """Takes the server and the serialized `mcp_list_tools` item."""
        self.label = label
        self.data = data
        self.digest = hashlib.blake2b(data, digest_size=16).digest()


def listings(items: Iterable[Item], entries: Iterable[Entry]) -> tuple[Listing, ...]:
    """Returns the listings among new items and their entries; a listing that failed lists nothing."""
    return tuple(
        Listing(item.mcp_list_tools.server_label, entry.data if entry.opened is None else entry.opened)
        for item, entry in zip(items, entries, strict=True)
        if item.WhichOneof("kind") == "mcp_list_tools" and not item.mcp_list_tools.HasField("error")
    )


@dataclass(frozen=True, slots=True)
class Approval:
    """The user's answer to an approval request, before it was acted upon."""

    request_id: str
    approve: bool
    reason: str = ""


def approvals(items: Sequence[Item]) -> tuple[Approval, ...]:
    """Returns the answers among new items that were not acted upon: no call names their request."""
    answers = [item.mcp_approval_response for item in items if item.WhichOneof("kind") == "mcp_approval_response"]
    if not answers:
        return ()
    acted = {item.mcp_call.approval_request_id for item in items if item.WhichOneof("kind") == "mcp_call"}
    return tuple(approval(answer) for answer in answers if answer.approval_request_id not in acted)


def approval(answer: McpApprovalResponse) -> Approval:
    """Returns the value of an answer."""
    return Approval(answer.approval_request_id, answer.approve, answer.reason)


def find_request(transcript: Transcript, request_id: str) -> McpApprovalRequest | None:
    """Finds an approval request, looking from the end: people answer what they were asked last."""
    needle = request_id.encode()
    for segment in transcript.segments():
        for entry in reversed(segment.new):
            if needle in entry.data:
                item = entry.item()
                if item.WhichOneof("kind") == "mcp_approval_request" and item.mcp_approval_request.id == request_id:
                    return item.mcp_approval_request
    return None


LIMIT_REACHED: Final = "The limit of {} tool calls was reached; answer without it."
"""What the model is told instead of a call's outcome; takes the limit."""
