"""Where the time of an agent's run went: per turn and in all, in three stages.

    inference   the engine sampled
    API         everything else between asking and the answer's end: the service's own work, queueing, its hosted
                tools, and the network
    client      the rest of the turn: tools that were not finished when the answer was, and the loop itself

The service measures its own part and says so in `done`; the network is what remains of the time measured here. So the
three stages of a turn add up to its wall time.

Below: the generated messages. Above: `loop`, which fills a `TurnTimer` per turn, and whoever shows reports. Pure: no
clock; moments come from outside, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.server_event_pb2 import ResponseDone
from turnwire.v1.usage_pb2 import Usage


@dataclass(frozen=True, slots=True)
class ToolReport:
    """One tool call."""

    call_id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it."""
    started: float
    """Seconds after the start of the turn."""
    seconds: float
    """How long it ran."""
    overlapped: float
    """How many of these seconds the model was still at work."""
    failed: bool
    """Whether the tool could not be run or could not do what was asked."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of a turn, or of several."""

    input: int = 0
    """Tokens of the prompts, cached ones included."""
    cached: int = 0
    """The part of `input` that was neither rendered nor computed again."""
    output: int = 0
    """Sampled tokens, reasoning included."""
    reasoning: int = 0
    """The part of `output` that was reasoning."""

    @classmethod
    def of(cls, usage: Usage) -> TokenCounts:
        """Reads what a server reported."""
        return cls(
            usage.input_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.output_tokens,
            usage.output_tokens_details.reasoning_tokens,
        )

    def __add__(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )

    def __sub__(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(
            self.input - other.input,
            self.cached - other.cached,
            self.output - other.output,
            self.reasoning - other.reasoning,
        )


Outcome: TypeAlias = Literal["calls", "answer", "incomplete", "failed", "cancelled"]
"""How the model's part of a turn ended: at calls that wait for outputs, as it meant to, or otherwise."""

_OUTCOMES: Final[Mapping[int, Outcome]] = {
    DoneReason.DONE_REASON_TOOL_CALLS: "calls",
    DoneReason.DONE_REASON_COMPLETED: "answer",
    DoneReason.DONE_REASON_FAILED: "failed",
    DoneReason.DONE_REASON_CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One turn: the model was asked, answered, and its tools ran. All times are seconds."""

    number: int
    """Counted from 1."""
    outcome: Outcome
    passes: int
    """How often the engine was asked: more than once where outputs arrived so early that no pause was announced, or
    where hosted tools ran. What the service reports is of the last pass then; the earlier ones, and their hosted tools,
    count as inference."""
    started: float
    """Since the start of the run."""
    wall: float
    """From asking to the last tool output being sent, or to the end of the answer."""
    api: float
    """The API stage: `queued`, `pre_inference`, `post_inference`, `hosted_tools` and `network` together."""
    inference: float
    """The inference stage."""
    client: float
    """The client stage."""
    queued: float
    """Waiting in the lane's queue."""
    pre_inference: float
    """The service's work before sampling."""
    post_inference: float
    """The service's work after sampling."""
    hosted_tools: float
    """Tools that the service ran while sampling waited."""
    network: float
    """What remains of the time between asking and the end of the answer: both ways, and waiting for a processor."""
    first_token: float | None
    """From the prompt in the engine's hands to its first token; None where no token came."""
    tokens: TokenCounts
    tools: tuple[ToolReport, ...]
    """The calls, in the order they were made."""

    @property
    def tokens_per_second(self) -> float | None:
        """The rate of sampling after the first token; None where it cannot be told."""
        sampling = self.inference - (self.first_token or 0.0)
        if self.passes != 1 or self.first_token is None or self.tokens.output < 2 or sampling <= 0:
            return None
        return (self.tokens.output - 1) / sampling


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Several turns added up. All times are seconds."""

    turns: int
    tool_calls: int
    failed_calls: int
    wall: float
    """Sum of the turns; those of one run follow on one another."""
    api: float
    inference: float
    client: float
    network: float
    """The part of `api` that was the network."""
    tool_seconds: float
    """Time of all tools, whether or not something else went on meanwhile."""
    tokens: TokenCounts

    def share(self, stage: float) -> float:
        """Returns what part of the wall time a stage was, between 0 and 1."""
        return stage / self.wall if self.wall > 0 else 0.0


def totals(turns: Sequence[TurnReport]) -> RunTotals:
    """Adds turns up."""
    tools = [tool for turn in turns for tool in turn.tools]
    return RunTotals(
        turns=len(turns),
        tool_calls=len(tools),
        failed_calls=sum(tool.failed for tool in tools),
        wall=sum(turn.wall for turn in turns),
        api=sum(turn.api for turn in turns),
        inference=sum(turn.inference for turn in turns),
        client=sum(turn.client for turn in turns),
        network=sum(turn.network for turn in turns),
        tool_seconds=sum(tool.seconds for tool in tools),
        tokens=_sum_tokens(turn.tokens for turn in turns),
    )


def _sum_tokens(counts: Iterable[TokenCounts]) -> TokenCounts:
    whole = TokenCounts()
    for one in counts:
        whole += one
    return whole


def _outcome(done: ResponseDone) -> Outcome:
    # A response that has ended at calls is complete as such; its outputs go into the next one.
    if done.reason == DoneReason.DONE_REASON_COMPLETED and done.awaiting_call_ids:
        return "calls"
    return _OUTCOMES.get(done.reason, "incomplete")


@dataclass(slots=True)
class _Running:
    name: str
    arguments: str
    started: float
    ended: float | None = None
    failed: bool = False


@dataclass(slots=True)
class TurnTimer:
    """Notes the moments of one turn while it happens; all of them come from one clock."""

    number: int
    asked: float
    """When the create, or the append that completed the outputs, was sent."""
    done: ResponseDone | None = None
    """The pause or the end."""
    passes: int = 0
    """Passes up to `done`."""
    tokens: TokenCounts = field(default_factory=TokenCounts)
    _answered: float = 0.0
    _delivered: float = 0.0
    _tools: dict[str, _Running] = field(default_factory=dict[str, _Running])

    @property
    def complete(self) -> bool:
        """Whether the answer has ended and every tool with it."""
        return self.done is not None and all(tool.ended is not None for tool in self._tools.values())

    @property
    def ended(self) -> float:
        """When the turn was complete, and the next one may start."""
        return max(self._answered, self._delivered)

    def tool_started(self, now: float, call_id: str, name: str, arguments: str) -> None:
        """Notes the start of a call."""
        self._tools[call_id] = _Running(name, arguments, now)

    def running(self, call_id: str) -> str | None:
        """Returns the name of the tool that works on a call; None where it has ended or never started."""
        tool = self._tools.get(call_id)
        return tool.name if tool is not None and tool.ended is None else None

    def tool_ended(self, now: float, call_id: str, *, failed: bool) -> float:
        """Notes the end of a call, whose output is sent right after, and returns how long it ran."""
        tool = self._tools[call_id]
        tool.ended, tool.failed = now, failed
        self._delivered = max(self._delivered, now)
        return now - tool.started

    def answered(self, now: float, done: ResponseDone, passes: int, tokens: TokenCounts) -> None:
        """Notes the pause or the end: how many passes it took since the last one, and their tokens."""
        self._answered, self.done, self.passes, self.tokens = now, done, passes, tokens

    def report(self, run_started: float) -> TurnReport:
        """Returns the report of a complete turn."""
        times = (self.done or ResponseDone()).times
        service = times.queued + times.pre_inference + times.post_inference + times.hosted_tools
        asking = self._answered - self.asked
        # Outputs that are sent while the next pause is on its way cannot make this turn end before its answer did.
        waiting = max(self.ended - self._answered, 0.0)
        remainder = max(asking - service - times.inference - times.stalled, 0.0)
        inference, network = times.inference, remainder
        if self.passes > 1:
            inference, network = inference + remainder, 0.0
        client = waiting + min(times.stalled, asking)
        return TurnReport(
            number=self.number,
            outcome=_outcome(self.done or ResponseDone()),
            passes=self.passes,
            started=self.asked - run_started,
            wall=asking + waiting,
            # By subtraction, so that the stages add up even where the service's clock and ours disagree by a hair.
            api=max(asking + waiting - inference - client, 0.0),
            inference=inference,
            client=client,
            queued=times.queued,
            pre_inference=times.pre_inference,
            post_inference=times.post_inference,
            hosted_tools=times.hosted_tools,
            network=network,
            first_token=times.first_token if times.HasField("first_token") else None,
            tokens=self.tokens,
            tools=tuple(self._tool_report(call_id, tool) for call_id, tool in self._tools.items()),
        )

    def _tool_report(self, call_id: str, tool: _Running) -> ToolReport:
        ended = tool.ended if tool.ended is not None else self.ended
        return ToolReport(
            call_id=call_id,
            name=tool.name,
            arguments=tool.arguments,
            started=tool.started - self.asked,
            seconds=ended - tool.started,
            overlapped=max(min(ended, self._answered) - tool.started, 0.0),
            failed=tool.failed,
        )
