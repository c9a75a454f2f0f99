"""What responses cost, as lines for a ledger: values that are handed out before anybody hears how a response stands.

Above it: the endings of responses, which account for them, and the port of the ledger. Below it: what is known of a
response at work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from turnwire.server.session.run import Run, Tally
from turnwire.server.session.state import State
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.usage_pb2 import StageTimes

MAX_END_USER: Final = 128
MAX_LABELS: Final = 16
MAX_LABEL: Final = 64
MAX_LABEL_VALUE: Final = 512

OUTCOMES: Final[dict[DoneReason.ValueType, str]] = {
    DoneReason.DONE_REASON_TOOL_CALLS: "paused",
    DoneReason.DONE_REASON_COMPLETED: "completed",
    DoneReason.DONE_REASON_INCOMPLETE: "incomplete",
    DoneReason.DONE_REASON_FAILED: "failed",
    DoneReason.DONE_REASON_CANCELLED: "cancelled",
}
"""What a ledger calls the reasons of `done`."""


@dataclass(frozen=True, slots=True)
class About:
    """Whom a request is accounted to, as its client says."""

    end_user: str = ""
    labels: tuple[tuple[str, str], ...] = ()


NOBODY: Final = About()
"""Of a request whose client says nothing."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What a response cost since it was accounted for last, and how it stood then; one `done`, one of these."""

    response_id: str
    passes: int
    """Passes so far; with the id it names the line. An end that comes after a pause has the pause's number, and cost
    nothing more."""
    principal: str
    model: str
    created_at: float
    """When the response was asked for, in seconds since 1970-01-01 UTC."""
    ended_at: float
    """When it came to this, in seconds since 1970-01-01 UTC."""
    outcome: str
    """A value of `OUTCOMES`."""
    code: str
    """Error code where it failed, else empty."""
    input_tokens: int
    cached_tokens: int
    """Part of the input."""
    output_tokens: int
    reasoning_tokens: int
    """Part of the output."""
    estimated: bool
    """Whether some of it is the server's own count, of a pass that was cut off before its engine could say."""
    times: StageTimes
    end_user: str
    """Of the request's context, else its `safety_identifier`, else its `user`."""
    labels: tuple[tuple[str, str], ...]
    """Of the request's context."""
    metadata: Mapping[str, str]
    """Of the request."""


Keep = Callable[[Spending, State | None], bool]
"""Keeps what a response cost, and where it is stored what it stands for; False where that cannot be done."""


def read_about(context: RequestContext) -> About:
    """Reads whom a request is accounted to, within limits; nothing of the request is held on to.

    Raises:
        RequestError: `string_above_max_length` or `array_above_max_length`.
    """
    if not context.end_user and not context.labels:
        return NOBODY
    _check("context.end_user", context.end_user, MAX_END_USER)
    labels = context.labels
    if len(labels) > MAX_LABELS:
        message = f"Invalid 'context.labels': expected at most {MAX_LABELS}, but got {len(labels)}."
        raise reject("array_above_max_length", message, param="context.labels", limit=str(MAX_LABELS))
    for name, value in labels.items():
        _check("context.labels", name, MAX_LABEL)
        _check(f"context.labels.{name}", value, MAX_LABEL_VALUE)
    return About(context.end_user, tuple(sorted(labels.items())))


def _check(param: str, text: str, limit: int) -> None:
    if len(text) > limit:
        message = f"Invalid '{param}': expected at most {limit} characters, but got {len(text)}."
        raise _too_long(param, message, limit)


def _too_long(param: str, message: str, limit: int) -> RequestError:
    return reject("string_above_max_length", message, param=param, limit=str(limit))


def spending(
    run: Run, principal: str, wall: float, reason: DoneReason.ValueType, code: str, times: StageTimes
) -> Spending:
    """Accounts for a response since its last `done`.

    Args:
        run: The response.
        principal: Whose it is.
        wall: The moment, in seconds since 1970-01-01 UTC.
        reason: How it stands.
        code: Why it failed.
        times: Where the time went.
    """
    since = Tally()
    for part in (run.carried_tally, run.pass_tally, run.lost_tally):
        since.add(part)
    settings = run.settings
    return Spending(
        response_id=run.id,
        passes=run.passes,
        principal=principal,
        model=run.model,
        created_at=run.created_at,
        ended_at=wall,
        outcome=OUTCOMES[reason],
        code=code,
        input_tokens=since.input,
        cached_tokens=since.cached,
        output_tokens=since.output,
        reasoning_tokens=since.reasoning,
        estimated=run.estimated,
        times=times,
        end_user=run.about.end_user or settings.safety_identifier or settings.user,
        labels=run.about.labels,
        metadata=dict(settings.metadata) if settings.metadata else {},
    )
