"""What the parts of the session core share: settings in force, ids, time, queues, and the responses at work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from turnwire.server.session.accounts import Keep
from turnwire.server.session.budget import Budget
from turnwire.server.session.conversations import Conversations
from turnwire.server.session.deadlines import Deadlines
from turnwire.server.session.effects import Effect, Refused
from turnwire.server.session.lanes import valid_name
from turnwire.server.session.limits import MAX_EVENT_BYTES, MAX_NAME, SessionLimits
from turnwire.server.session.outbox import Outbox
from turnwire.server.session.requests import RequestMemory
from turnwire.server.session.retention import Retention
from turnwire.server.session.rules import TREE, Rules
from turnwire.server.session.run import Run
from turnwire.server.session.screens import Safety
from turnwire.server.session.switches import ALL_ON, Switches
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.session.visits import Visits
from turnwire.v1.error_pb2 import Error
from turnwire.v1.ids import IdSource
from turnwire.v1.response_pb2 import Verbosity
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent
from turnwire.v1.session_pb2 import RequestRejected


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What a session is made with."""

    session_id: str
    principal: str
    ids: IdSource
    epoch: float
    """Seconds to add to the session's clock to get seconds since 1970-01-01 UTC."""
    limits: SessionLimits = field(default_factory=SessionLimits)
    tool_sets: ToolSets = field(default_factory=ToolSets)
    server: str = "turnwire"
    """Name and version told to clients."""
    features: tuple[str, ...] = ()
    """Features that can be negotiated."""
    batch_window: float = 0.0
    """Default batch window in seconds."""
    seal: Callable[[str, bytes], str] | None = None
    """Seals reasoning for a principal, who gets it as `encrypted_content`; None seals nothing."""
    keep: Keep | None = None
    """Keeps what a response cost and stands for, before anybody hears of it; where it cannot, the response fails. Asked
    for and not told by an effect, since what is announced depends on the answer. None keeps nothing."""
    moment: Callable[[], float] | None = None
    """Reads the session's clock, for how long its own work takes; None where time moves with facts alone."""
    background: bool = False
    """Whether no connection owns the session, so that its responses may run in the background."""
    visits: Visits = field(default_factory=Visits)
    """Counts what the stages of the session's turns look at."""
    conversations: Conversations | None = None
    """What a request is matched against that sends its history once more; None matches nothing."""
    budget: Budget | None = None
    """What all sessions may keep together; None for no limit but each session's own."""
    safety: Safety | None = None
    """How its responses are guarded; None looks at nothing."""
    switches: Switches = ALL_ON
    """What is kept from turn to turn."""


class Context:
    """The shared state of one session."""

    # An idle session is little more than this object, and a dictionary takes five times as much.
    __slots__ = (
        "_retention",
        "batch_window",
        "by_id",
        "by_pass",
        "closing",
        "config",
        "deadlines",
        "effects",
        "ended",
        "ended_requests",
        "features",
        "half_closed",
        "handles",
        "held",
        "last_ended",
        "leaving",
        "limits",
        "max_event_bytes",
        "now",
        "outbox",
        "pass_ids",
        "request_bytes",
        "requests",
        "response_credit",
        "rules",
        "runs",
        "session_credit",
        "uses",
        "verbosity",
    )

    def __init__(self, config: SessionConfig, now: float) -> None:
        """Starts a session at a moment of its own clock."""
        self.config = config
        self.rules: Rules = TREE
        """The rules in force."""
        self.limits = config.limits
        """The limits in force."""
        self.now = now
        self.verbosity: Verbosity.ValueType = Verbosity.VERBOSITY_DELTAS
        self.batch_window = config.batch_window
        self.session_credit = 0
        self.response_credit = 0
        self.features: tuple[str, ...] = ()
        """Features in force."""
        self.max_event_bytes = MAX_EVENT_BYTES
        self.outbox = Outbox(merge=False)
        self.deadlines = Deadlines()
        self.requests = RequestMemory(config.limits.request_memory)
        self.effects: list[Effect] = []
        self.runs: dict[int, Run] = {}
        """Responses at work and waiting, by handle."""
        self.by_id: dict[str, Run] = {}
        self.by_pass: dict[int, Run] = {}
        self.held = 0
        """How many of them stay open for appends."""
        self.uses: Counter[str] = Counter()
        """Ids that must stay addressable: parents of what runs or waits, and what is held."""
        self._retention: Retention | None = None
        self.ended: dict[str, bytes] = {}
        """Outcomes of responses that ended lately, for late cancels and appends: serialized, since a message takes
        twenty times the memory."""
        self.ended_requests: dict[str, str] = {}
        """Their ids by the ids of their requests."""
        self.handles = count(1)
        self.pass_ids = count(1)
        self.closing = False
        """Whether new requests are refused."""
        self.leaving = ""
        """Why the server wants the client to go; empty where it does not."""
        self.request_bytes = 0
        """Bytes of creates whose requests are still kept, because they wait or are being checked."""
        self.last_ended = now
        """When a response ended last."""
        self.half_closed = False
        """Whether the client can say nothing more: what stops at tool calls then completes instead of waiting."""

    def follow(self, rules: Rules) -> None:
        """Puts rules in force; before anything was asked."""
        self.rules = rules
        self.limits = rules.limits(self.config.limits)

    @property
    def retention(self) -> Retention:
        """What can be continued from; made when it is needed, since most idle sessions have asked for nothing yet."""
        if self._retention is None:
            self._retention = self.rules.retention(self.limits, self.in_use, self.config.budget)
        return self._retention

    @property
    def retained(self) -> tuple[int, int]:
        """How many responses can be continued from, and the bytes they take."""
        return (0, 0) if self._retention is None else (len(self._retention), self._retention.bytes)

    def close(self) -> None:
        """Lets go of what was kept. Idempotent."""
        self.deadlines.clear()
        if self._retention is not None:
            self._retention.close()

    def moment(self) -> float:
        """Returns the moment on the session's clock, what it works on at present included."""
        return self.now if self.config.moment is None else self.config.moment()

    @property
    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self.now + self.config.epoch

    def new_id(self, prefix: str) -> str:
        """Returns a fresh id."""
        return self.config.ids.new(prefix, self.wall)

    def in_use(self, response_id: str) -> bool:
        """Whether an id must stay addressable."""
        return self.uses[response_id] > 0 or response_id in self.by_id

    def turn_failed(self, parent_id: str, lane: str) -> None:
        """Hears that a continuation failed; empty where there was nothing to continue."""
        # A response at work, which can only be a held one, goes on: what failed has taken nothing from it.
        if parent_id and parent_id not in self.by_id:
            self.retention.turn_failed(parent_id, lane)

    def release(self, response_id: str) -> None:
        """Ends one use of an id."""
        if response_id:
            self.uses[response_id] -= 1
            if self.uses[response_id] <= 0:
                del self.uses[response_id]

    def remember(self, response_id: str, request_id: str, done: ResponseDone) -> None:
        """Keeps the outcome of a response, without its bulk, for requests that cross its end."""
        slim = ResponseDone()
        slim.CopyFrom(done)
        slim.ClearField("output")
        slim.ClearField("response")
        slim.ClearField("token_output")
        self.ended[response_id] = slim.SerializeToString()
        if len(self.ended) > self.limits.request_memory:
            del self.ended[next(iter(self.ended))]
        if request_id:
            self.ended_requests[request_id] = response_id
            if len(self.ended_requests) > self.limits.request_memory:
                del self.ended_requests[next(iter(self.ended_requests))]

    def rejected(self, request_id: str, lane: str, error: Error, response_id: str = "") -> None:
        """Answers a request that changed nothing, and remembers the answer for repeats."""
        self.refuse(request_id, lane, error, response_id)
        self.requests.settle(
            request_id, lambda: self._send_rejected(request_id, lane, error, response_id, duplicate=True)
        )

    def refuse(self, request_id: str, lane: str, error: Error, response_id: str = "") -> None:
        """Answers a request without remembering the answer."""
        self._send_rejected(request_id, lane, error, response_id, duplicate=False)

    def _send_rejected(self, request_id: str, lane: str, error: Error, response_id: str, *, duplicate: bool) -> None:
        # What the client named is repeated as far as it can be a name at all: an answer must not grow with its request.
        rejected = RequestRejected(
            request_id=request_id[:MAX_NAME],
            lane=lane if valid_name(lane) else "",
            error=error,
            response_id=response_id[:MAX_NAME],
            duplicate=duplicate,
        )
        self.outbox.answer(ServerEvent(rejected=rejected))
        self.effects.append(Refused(error.code))
