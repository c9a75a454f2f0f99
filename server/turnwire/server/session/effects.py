"""What the session core asks of the runtime: values, carried out in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnwire.server.session.calls import CallKey
from turnwire.server.session.conversations import Conversation, Conversations
from turnwire.server.session.hosted import Approval, Listing, Target
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.screens import Classify, Flagged, Hit, Screened
from turnwire.server.session.state import State
from turnwire.server.session.toolsets import Tools
from turnwire.server.session.transcript import EMPTY, Entry, Transcript
from turnwire.server.session.visits import Visits
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import ResponseCreate


@dataclass(frozen=True, slots=True)
class Hydrate:
    """Look a response up in the store; answer with `Session.hydrated`."""

    handle: int
    response_id: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Check a request and make its items ready; answer with `Session.prepared` or `Session.refused`."""

    handle: int
    items: Sequence[Item]
    """What is new, as items."""
    settings: ResponseCreate
    """The effective settings without input and tools."""
    tools: Tools
    open_calls: frozenset[CallKey]
    """Calls that the history leaves open."""
    size: int
    """Bytes of what is new; large ones are worth a thread."""
    principal: str = ""
    """Whose request it is; sealed items open for them alone."""
    history: Transcript = EMPTY
    """The chain that it continues, for references to its items."""
    visits: Visits = field(default_factory=Visits, compare=False, repr=False)
    """Where checks note what they look at."""
    conversations: Conversations | None = field(default=None, compare=False, repr=False)
    """What its items may be known by; None marks and finds nothing."""
    context_tokens: int = 0
    """Tokens that the chain's last pass ended with, as its engine counted; 0 where there was none."""


@dataclass(frozen=True, slots=True)
class PrepareAppend:
    """Check appended items and make them ready; answer with `Session.append_prepared` or `Session.append_refused`."""

    handle: int
    ticket: int
    items: Sequence[Item]
    size: int
    """Bytes of the items; large ones are worth a thread."""
    visits: Visits = field(default_factory=Visits, compare=False, repr=False)
    """Where checks note what they look at."""
    conversations: Conversations | None = field(default=None, compare=False, repr=False)
    """What its items may be known by later."""
    model: str = ""
    """The resolved model that will read them."""


@dataclass(frozen=True, slots=True)
class StartPass:
    """Start sampling; deliver by `Session.engine_output` and `Session.engine_ended` with `prompt.pass_id`."""

    handle: int
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class AbortPass:
    """Free the engine."""

    pass_id: int


@dataclass(frozen=True, slots=True)
class PausePass:
    """Stop output: the client does not take it."""

    pass_id: int


@dataclass(frozen=True, slots=True)
class ResumePass:
    """Let output flow again."""

    pass_id: int


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run a hosted tool; answer with `Session.tool_finished`."""

    pass_id: int
    call_id: str
    name: str
    """As the model called it."""
    arguments: str
    tools: Tools
    """The declared tools, for their settings."""
    target: Target
    """What the name stands for."""


@dataclass(frozen=True, slots=True)
class ListTools:
    """List the tools of an MCP server; answer with `Session.tool_finished`."""

    pass_id: int
    call_id: str
    label: str
    tools: Tools
    """The declared tools, the server among them."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Find a shorter form of a conversation; answer with `Session.compacted`."""

    pass_id: int
    transcript: Transcript
    principal: str
    budget: int
    """Tokens that the digest may have."""
    visits: Visits


@dataclass(frozen=True, slots=True)
class CancelTools:
    """Stop the hosted tools and listings of a pass."""

    pass_id: int


@dataclass(frozen=True, slots=True)
class Persist:
    """Let a response be found from other sessions."""

    state: State
    recorded: bool = False
    """Whether it was handed to `SessionConfig.keep` already, with what it cost."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Report a refused request to metrics."""

    code: str


@dataclass(frozen=True, slots=True)
class ResponseEnded:
    """Report an ended response to metrics and logs."""

    outcome: str
    """`completed`, `incomplete`, `failed` or `cancelled`."""
    code: str
    """Error code where it failed, else empty."""
    model: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    passes: int


@dataclass(frozen=True, slots=True)
class PassEnded:
    """Report the stage times of a pass to metrics."""

    queued: float
    pre_inference: float
    first_token: float | None
    inference: float
    hosted_tools: float
    client_wait: float
    stalled: float


@dataclass(frozen=True, slots=True)
class Close:
    """End the stream after what waits was sent."""

    code: str
    """Error code of the table; empty ends it with OK."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The answer to `Prepare`: the request is valid."""

    model: str
    """The resolved model."""
    entries: tuple[Entry, ...]
    """The new items, with their tokens counted."""
    open_calls: frozenset[CallKey]
    """Calls open after the new items; none that must be answered."""
    turns: int
    """Model turns that the new items replay."""
    listings: tuple[Listing, ...] = ()
    """Tools of MCP servers that the new items replay."""
    approvals: tuple[Approval, ...] = ()
    """Answers to approval requests that have to be acted upon."""
    known: Conversation | None = None
    """What the request sent once more, and goes on from; the entries are what follows it."""
    compact_threshold: int | None = None
    """Size in tokens from which the conversation is compacted before a pass; None for never."""
    compact_now: bool = False
    """Whether an item asks for a compaction."""
    compact_only: bool = False
    """Whether that item is the last, so that nothing is left for the model to answer."""
    window: Transcript | None = None
    """What the model is shown instead of all of the conversation, the entries included, where that is too long."""
    hits: tuple[Hit, ...] = ()
    """What was flagged in its instructions and tools."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The answer to `Compact`."""

    kept: tuple[Entry, ...]
    """What stands before the digest."""
    newest: tuple[Entry, ...]
    """What stands behind it."""
    open_calls: frozenset[CallKey]
    sealed: str
    """The `encrypted_content` of the item that the client is told."""
    digest: bytes
    """The serialized message that prompts read in the item's place."""
    mark: bytes
    """Of what prompts would read in the place of the item, were it sent back."""
    tokens: int
    """Of the digest."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to `RunTool`."""

    output: str
    """What the model is told."""
    failed: bool = False
    tokens: int = 0
    """Size of the output as the model will read it."""
    results: str = ""
    """Of a web search: what was found, a JSON list of objects with title, url and snippet."""
    screened: tuple[Screened, ...] = ()
    """What a classifier found in it, where it looked already."""


Effect = (
    Hydrate
    | Prepare
    | PrepareAppend
    | StartPass
    | AbortPass
    | PausePass
    | ResumePass
    | RunTool
    | ListTools
    | Compact
    | CancelTools
    | Persist
    | Refused
    | ResponseEnded
    | PassEnded
    | Classify
    | Flagged
    | Close
)
"""One thing to do."""
