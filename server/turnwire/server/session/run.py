"""A response at work: its request, its phase, and what it has said so far."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from turnwire.server.session.calls import FAMILIES, NO_CALLS, CallKey
from turnwire.server.session.chunks import TokenRecord
from turnwire.server.session.deadlines import Deadline
from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Approval, Listed, Listing, Target
from turnwire.server.session.outbox import Queue
from turnwire.server.session.states import Fact, Phase, advance
from turnwire.server.session.toolsets import NO_TOOLS, Tools
from turnwire.server.session.transcript import EMPTY, Entry, Transcript
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import ResponseCreate, Verbosity
from turnwire.v1.usage_pb2 import InputTokensDetails, OutputTokensDetails, StageTimes, Usage

if TYPE_CHECKING:
    from turnwire.server.session.accounts import About
    from turnwire.server.session.assembler import Assembler
    from turnwire.server.session.state import State
    from turnwire.server.session.watch import Watch


class Job(enum.Enum):
    """What is done about a hosted call."""

    RUN = "run"
    """Its tool is run."""
    ASK = "ask"
    """The user is asked whether it may run."""
    LIST = "list"
    """The tools of its server are listed; the model did not call anything."""


@dataclass(slots=True)
class HostedCall:
    """A call of a hosted tool within a pass, or a listing before one."""

    call_id: str
    item_id: str
    job: Job
    target: Target
    arguments: str = ""
    tokens: int = 0
    approval_request_id: str = ""
    """The request that let it run."""
    announced: bool = False
    result: ToolResult | Listed | None = None


@dataclass(slots=True)
class Tally:
    """Token counts, of a pass or of a response."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0

    def add(self, other: Tally) -> None:
        """Adds another tally."""
        self.input += other.input
        self.cached += other.cached
        self.output += other.output
        self.reasoning += other.reasoning

    def to_proto(self) -> Usage:
        """Returns the public form."""
        return Usage(
            input_tokens=self.input,
            input_tokens_details=InputTokensDetails(cached_tokens=self.cached),
            output_tokens=self.output,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=self.reasoning),
            total_tokens=self.input + self.output,
        )


@dataclass(slots=True)
class Clocks:
    """Moments of a response, on the session's clock; None where they have not come."""

    accepted: float
    begun: float
    """When work on the current pass began: admission, or the last missing append's arrival."""
    queued: float = 0.0
    started: float | None = None
    """When the prompt was handed to the engine."""
    first_token: float | None = None
    stopped: float | None = None
    """When sampling ended."""
    paused: float | None = None
    client_wait: float = 0.0
    hosted: float = 0.0
    stall_began: float | None = None
    stalled: float = 0.0


@dataclass(slots=True)
class Appending:
    """An append, or a steer, that is being checked."""

    ticket: int
    request: ConnectRequest
    size: int
    digest: bytes
    received: float
    """When it came, on the session's clock."""


@dataclass(slots=True)
class Run:
    """One response at work. Mutable; owned by the session that made it."""

    handle: int
    id: str
    lane: str
    request: ConnectRequest | None
    """The request until it was prepared; dropped then, since it may hold megabytes."""
    request_bytes: int
    """Its size, until it is dropped."""
    request_id: str
    previous_response_id: str
    verbosity: Verbosity.ValueType
    hold: bool
    generate: bool
    echo: bool
    queue: Queue
    clocks: Clocks
    about: About
    """Whom it is accounted to."""
    phase: Phase = Phase.QUEUED
    parent: State | None = None
    settings: ResponseCreate = field(default_factory=ResponseCreate)
    settings_data: bytes = b""
    """The settings serialized, once for all checkpoints."""
    tools: Tools = NO_TOOLS
    """As declared."""
    offered: Tools = NO_TOOLS
    """What the model is offered of them."""
    offered_settings: ResponseCreate = field(default_factory=ResponseCreate)
    """The settings, with a tool choice that names what is offered."""
    listings: Mapping[str, Listing] = field(default_factory=dict[str, Listing])
    """Tools of MCP servers as they stand in the chain, by label; replaced, never changed, since states share it."""
    unlisted: tuple[str, ...] = ()
    """MCP servers whose tools have to be listed before the next pass."""
    approvals: tuple[Approval, ...] = ()
    """The user's answers that have to be acted upon before the next pass."""
    early_approvals: tuple[Approval, ...] = ()
    """Those among `early`."""
    model: str = ""
    transcript: Transcript = EMPTY
    """Everything that the next pass, or a continuation, starts from."""
    before: Transcript = EMPTY
    """The transcript after the input, where the output begins."""
    input: tuple[Entry, ...] = ()
    resent: Transcript = EMPTY
    """What the request brought before `input`: what it sent once more of a known conversation, and all of it where the
    conversation goes on without some of that."""
    output: list[Entry] = field(default_factory=list[Entry])
    earlier: Transcript = EMPTY
    """What of it came before `before`, since the conversation was compacted meanwhile."""
    since_pause: int = 0
    """How many entries of `output` were reported by earlier pauses."""
    pass_entries: list[Entry] = field(default_factory=list[Entry])
    """What the current pass has finished."""
    pass_calls: list[CallKey] = field(default_factory=list[CallKey])
    """Client calls that the current pass has finished, in order."""
    lost: tuple[Entry, ...] = ()
    """What a pass had finished that then failed or was cancelled."""
    early: list[Entry] = field(default_factory=list[Entry])
    """Accepted while the current pass ran; they follow its items."""
    answered: set[CallKey] = field(default_factory=set[CallKey])
    """Calls that `early` answers."""
    steers: list[Entry] = field(default_factory=list[Entry])
    """Said by the client at the pause, to be read after the outputs that are still missing."""
    appends: list[bytes] = field(default_factory=list[bytes])
    """Hashes of the accepted appends, by index."""
    hosted: dict[str, HostedCall] = field(default_factory=dict[str, HostedCall])
    """Hosted calls that are not reported yet, in the order they were made."""
    prelude: bool = False
    """Whether hosted work is done before a pass, rather than after one."""
    hosted_count: int = 0
    watch: Watch | None = None
    """Its guard; None where nothing is looked at."""
    assembler: Assembler | None = None
    pass_id: int = 0
    """The current pass; results of any other are dropped."""
    pass_live: bool = False
    """Whether the engine works for it."""
    engine_paused: bool = False
    passes: int = 0
    context_tokens: int = 0
    """Tokens that the engine has seen of this chain."""
    tally: Tally = field(default_factory=Tally)
    created_sent: bool = False
    beside: int = 0
    """Tokens of its prompts beside the items, as its last pass was counted: instructions, tools and format."""
    compact_threshold: int | None = None
    """Size in tokens from which the conversation is compacted before a pass; None for never."""
    compact_now: bool = False
    """Whether it is compacted before the next pass whatever its size."""
    compact_only: bool = False
    """Whether that is all that was asked for."""
    compacting: bool = False
    compacted: Transcript | None = None
    """What the last compaction left."""
    deadlines: dict[str, Deadline] = field(default_factory=dict[str, Deadline])
    created_at: float = 0.0
    """Seconds since 1970-01-01 UTC."""
    pass_tally: Tally = field(default_factory=Tally)
    """Of the pass that ended last."""
    carried_tally: Tally = field(default_factory=Tally)
    """Of the passes before it that ended without a `done`."""
    lost_tally: Tally = field(default_factory=Tally)
    """Of a pass that was given up, as far as it is known; no part of the public usage."""
    deleted: bool = False
    """Whether it was deleted while it was at work: it goes on, and nothing more of it is stored."""
    cut: bool = False
    """Whether a classifier ended it because of what it said."""
    estimated: bool = False
    """Whether the server counted itself what the pass has cost that ended last."""
    carried_times: StageTimes = field(default_factory=StageTimes)
    """Where their time went."""
    record: TokenRecord | None = None
    """The tokens of that pass, where its engine gave them."""
    unreported: list[TokenRecord] = field(default_factory=list[TokenRecord])
    """The tokens of the passes since the last `done`."""
    inbox: deque[Appending] = field(default_factory=deque[Appending])
    """Appends and steers that are being checked, in order of arrival."""

    def move(self, fact: Fact, to: Phase) -> None:
        """Changes the phase by the table."""
        self.phase = advance(self.phase, fact, to)

    def awaiting(self) -> list[CallKey]:
        """Returns the client calls without an output, in the order they were made."""
        if self.phase is Phase.PAUSED:
            return self.in_order(self.transcript.open_calls)
        return [key for key in self.pass_calls if key not in self.answered]

    def in_order(self, open_calls: Iterable[CallKey]) -> list[CallKey]:
        """Returns the calls that wait for the client, in the order they were made as far as it is known.

        An approval that was asked for in the last pass is waited for like any call; older ones may stay open.
        """
        order = {key: n for n, key in enumerate(self.pass_calls)}
        waits = [key for key in open_calls if FAMILIES[key.family].must_answer or key in order]
        return sorted(waits, key=lambda key: (order.get(key, len(order)), key))

    def put_beside(self) -> None:
        """Keeps the input beside a transcript that goes on without some of it, where its bytes count on their own."""
        if self.input:
            self.resent = self.resent.extend(self.input, NO_CALLS)
            self.input = ()

    def read_steers(self) -> None:
        """Moves what the client said at the pause behind the outputs it brought."""
        if self.steers:
            self.transcript = self.transcript.extend(self.steers, self.transcript.open_calls)
            self.output.extend(self.steers)
            self.steers.clear()

    def set_deadline(self, name: str, deadline: Deadline | None) -> None:
        """Replaces one of the response's deadlines; None cancels it."""
        earlier = self.deadlines.pop(name, None)
        if earlier is not None:
            earlier.cancel()
        if deadline is not None:
            self.deadlines[name] = deadline

    def clear_deadlines(self) -> None:
        """Cancels all deadlines of the response."""
        for deadline in self.deadlines.values():
            deadline.cancel()
        self.deadlines.clear()
