"""Opening a session: what the client asks for, and what is in force."""

from __future__ import annotations

from turnwire.server.session.context import Context
from turnwire.server.session.limits import (
    EVENT_RANGE,
    MAX_BATCH_WINDOW,
    MAX_EVENT_BYTES,
    RESPONSE_CREDIT,
    RESPONSE_CREDIT_RANGE,
    SESSION_CREDIT,
    SESSION_CREDIT_RANGE,
    duration,
    seconds,
)
from turnwire.server.session.rules import find_rules
from turnwire.v1.errors import reject
from turnwire.v1.response_pb2 import Verbosity
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionOpen, SessionOpened


def open_session(context: Context, wish: SessionOpen) -> None:
    """Puts a client's settings in force and tells it which.

    Raises:
        RequestError: A setting is out of range; the session then goes on with its defaults.
    """
    session_credit = wish.session_credit_bytes if wish.HasField("session_credit_bytes") else SESSION_CREDIT
    response_credit = wish.response_credit_bytes if wish.HasField("response_credit_bytes") else RESPONSE_CREDIT
    max_event = wish.max_event_bytes if wish.HasField("max_event_bytes") else MAX_EVENT_BYTES
    window = seconds(wish.batch_window) if wish.HasField("batch_window") else context.batch_window
    _check_range("open.session_credit_bytes", session_credit, SESSION_CREDIT_RANGE, zero=True)
    _check_range("open.response_credit_bytes", response_credit, RESPONSE_CREDIT_RANGE, zero=True)
    _check_range("open.max_event_bytes", max_event, EVENT_RANGE, zero=False)
    if not 0 <= window <= MAX_BATCH_WINDOW:
        message = f"Invalid value for 'open.batch_window': {window} s is not within 0 and {MAX_BATCH_WINDOW} s."
        raise reject("invalid_value", message, param="open.batch_window")
    if wish.verbosity not in Verbosity.values():
        message = f"Invalid value for 'open.verbosity': {wish.verbosity}."
        raise reject("invalid_value", message, param="open.verbosity")
    rules = find_rules(wish.rules)
    context.verbosity = wish.verbosity or context.verbosity
    context.batch_window = window if context.config.switches.delta_batching else 0.0
    # Only who asked for a window reckons with deltas of several tokens.
    context.outbox.merge = wish.HasField("batch_window") and context.batch_window > 0
    context.session_credit = session_credit
    context.response_credit = response_credit
    context.max_event_bytes = max_event
    context.outbox.set_session_credit(session_credit)
    context.follow(rules)
    context.features = tuple(name for name in context.config.features if name in wish.features)
    answer = SessionOpened()
    if wish.resume_token:
        answer.resume_reason = (
            "This server cannot resume sessions. Send the whole conversation, or name stored responses."
        )
    context.outbox.answer(ServerEvent(opened=opened(context, answer)))


def opened(context: Context, answer: SessionOpened) -> SessionOpened:
    """Fills in what is in force."""
    answer.session_id = context.config.session_id
    answer.features.extend(context.features)
    answer.verbosity = context.verbosity
    answer.batch_window.CopyFrom(duration(context.batch_window))
    answer.session_credit_bytes = context.session_credit
    answer.response_credit_bytes = context.response_credit
    answer.max_event_bytes = context.max_event_bytes
    answer.limits.CopyFrom(context.limits.to_proto())
    answer.server = context.config.server
    answer.rules = context.rules.name
    return answer


def _check_range(param: str, value: int, allowed: tuple[int, int], *, zero: bool) -> None:
    if (zero and value == 0) or allowed[0] <= value <= allowed[1]:
        return
    message = f"Invalid value for '{param}': {value} is not within {allowed[0]} and {allowed[1]}."
    raise reject("invalid_value", message, param=param)
