"""The committed state of a response: everything a later turn can reuse.

A state is a value that refers to its parent's transcript, so that a chain of a thousand turns costs each item once and
a fork costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from turnwire.server.session.hosted import Approval, Listing
from turnwire.server.session.toolsets import Tools
from turnwire.server.session.transcript import EMPTY, Entry, Transcript
from turnwire.v1.item_pb2 import Item
from turnwire.v1.official.echo import echo
from turnwire.v1.response_pb2 import (
    IncompleteDetails,
    Response,
    ResponseCreate,
    ResponseError,
    ResponseStatus,
)
from turnwire.v1.usage_pb2 import Usage


@dataclass(frozen=True, slots=True)
class State:
    """One response as it can be continued from and retrieved."""

    id: str
    principal: str
    """Who may see it; empty is anonymous."""
    lane: str
    parent_id: str
    """The `previous_response_id` of its request; empty where it started a chain."""
    model: str
    """The resolved model."""
    created_at: float
    """Seconds since 1970-01-01 UTC."""
    completed_at: float | None
    status: ResponseStatus.ValueType
    settings: bytes
    """The effective ResponseCreate without input and tools, serialized."""
    tools: Tools
    transcript: Transcript
    """Everything up to the end of the response, or to its last pause."""
    input: tuple[Entry, ...]
    """What the request brought, without `resent`."""
    before: Transcript
    """The transcript after the request's input: what follows it is the output."""
    usage: bytes | None
    """Over all passes, serialized; None while nothing was counted."""
    context_tokens: int
    """Tokens that the next prompt starts with."""
    error: ResponseError | None = None
    incomplete: IncompleteDetails | None = None
    listings: Mapping[str, Listing] = field(default_factory=dict[str, Listing])
    """Tools of MCP servers as they stand in the chain, by label."""
    approvals: tuple[Approval, ...] = ()
    """The user's answers that were not acted upon yet."""
    unfinished: tuple[Entry, ...] = ()
    """Finished items of a pass that runs, or that failed or was cancelled: shown to whoever retrieves the response, no
    part of what can be continued from."""
    continuable: bool = True
    """Whether it can be continued from. A response that failed or was cancelled before its first pause cannot."""
    resent: Transcript = EMPTY
    """What the request brought before that: of a known conversation the same items, as they are kept there; and all of
    it where `transcript` goes on without some of that."""

    earlier: Transcript = EMPTY
    """What of the output came before `before`, where the conversation was compacted meanwhile."""

    @property
    def output(self) -> list[Entry]:
        """What the response brought: items of the model and appended outputs, in order. Costs the output, so it is
        built when somebody asks and not with every checkpoint."""
        own = list(takewhile(lambda segment: segment is not self.before, self.transcript.segments()))
        return [*self.earlier.walk(), *(entry for segment in reversed(own) for entry in segment.new)]

    def parsed_settings(self) -> ResponseCreate:
        """Returns the settings as a fresh message."""
        return ResponseCreate.FromString(self.settings)

    def response(self) -> Response:
        """Builds the full public object."""
        return full_response(
            self.id,
            self.created_at,
            self.status,
            self.model,
            self.parsed_settings(),
            self.tools,
            [*self.output, *self.unfinished],
            None if self.usage is None else Usage.FromString(self.usage),
            parent_id=self.parent_id,
            completed_at=self.completed_at,
            error=self.error,
            incomplete=self.incomplete,
        )

    def input_items(self) -> list[Item]:
        """Returns the items that the request brought, oldest first."""
        return [entry.sent() for entry in self.brought()]

    def brought(self) -> list[Entry]:
        """Returns the entries of all that the request brought, oldest first; costs them, so it is no part of a turn."""
        return [*self.resent.walk(), *self.input]


def full_response(
    response_id: str,
    created_at: float,
    status: ResponseStatus.ValueType,
    model: str,
    settings: ResponseCreate,
    tools: Tools,
    output: list[Entry],
    usage: Usage | None,
    *,
    parent_id: str = "",
    completed_at: float | None = None,
    error: ResponseError | None = None,
    incomplete: IncompleteDetails | None = None,
) -> Response:
    """Builds the full public object from its pieces; costs the whole output, so it is never part of a token."""
    response = echo(settings, tools.parsed() if tools.data else None)
    response.id = response_id
    if parent_id:
        response.previous_response_id = parent_id
    response.created_at = int(created_at)
    response.status = status
    response.model = model
    if completed_at is not None:
        response.completed_at = int(completed_at)
    if error is not None:
        response.error.CopyFrom(error)
    if incomplete is not None:
        response.incomplete_details.CopyFrom(incomplete)
    if usage is not None:
        response.usage.CopyFrom(usage)
    for entry in output:
        response.output.add().MergeFromString(entry.data)
    return response
