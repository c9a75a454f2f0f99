"""Limits of a session, in one place, with the reason for each number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration

from turnwire.v1.response_pb2 import Timeouts
from turnwire.v1.session_pb2 import Limits

MIB: Final = 1024 * 1024

SESSION_CREDIT: Final = 256 * 1024
"""Default bytes on their way; without it a quiet lane waits seconds behind a flooding one in HTTP/2 buffers."""
RESPONSE_CREDIT: Final = 64 * 1024
"""Default bytes a response may be ahead of its reader: about 2,600 tokens. A quarter of the session's credit, so that
one flooding response cannot take all of it (measured: a quiet lane's delay beside it falls by that factor), and still
40,000 tokens a second over a round trip of 50 ms."""
MAX_EVENT_BYTES: Final = 3 * MIB
"""Default largest event: below the 4 MiB that gRPC clients take when not told otherwise."""
MAX_BATCH_WINDOW: Final = 0.1
"""Seconds; more would no longer be streaming."""
SESSION_CREDIT_RANGE: Final = (16 * 1024, 16 * MIB)
RESPONSE_CREDIT_RANGE: Final = (4 * 1024, 16 * MIB)
EVENT_RANGE: Final = (4 * 1024, 64 * MIB)

LANE_NAME: Final = r"[A-Za-z0-9_.-]{1,256}"
REQUEST_ID: Final = r"[\x21-\x7e]{1,128}"
MAX_NAME: Final = 128
"""Characters of a request id or response id that a client may name."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What one session may use. Times are seconds."""

    max_request_bytes: int = 32 * MIB
    """Largest decoded request. The public API closes a WebSocket over 16 MiB and takes the same body over HTTP."""
    max_lanes: int = 4_096
    """Distinct named lanes over the session's life; the largest fleet that the benchmarks drive."""
    max_in_flight: int = 4_096
    """Responses at work, held ones included."""
    max_queued: int = 4_096
    """Requests waiting over all lanes."""
    max_held: int = 4_096
    """Responses held open."""
    max_responses: int = 8_192
    """Responses that can be named in `previous_response_id`: two per lane, so that no busy lane loses its head."""
    max_state_bytes: int = 256 * MIB
    """Bytes of items kept for continuation, shared history counted once."""
    max_items: int = 20_000
    """Items in one request."""
    max_tools: int = 1_024
    """Tools in one request."""
    request_memory: int = 1_024
    """Request ids remembered after their requests ended."""
    max_unread_responses: int = 4_096
    """Ended responses whose output waits for credit that the client does not return."""
    max_appends: int = 4_096
    """Appends into one response."""
    max_control_events: int = 1_024
    """Answers waiting for a client that does not read, before its requests are no longer read either."""
    max_age: float = 24 * 3600.0
    """Life of a session."""
    websocket_in_flight: int = 16
    """Responses at work on a WebSocket in the public API's mode, where `max_in_flight` is not less; its limit."""
    websocket_lanes: int = 32
    """Distinct named lanes of a WebSocket in that mode, where `max_lanes` is not less; the public API's limit."""
    websocket_max_age: float = 3600.0
    """Life of a WebSocket in the public API's mode, where `max_age` is not less; the public API's limit."""
    idle_timeout: float = 3600.0
    """Time without a request while nothing is at work."""
    heartbeat: float = 15.0
    """Silence after which the server says that it lives, and two thirds more while nothing is at work; below the idle
    limits of common proxies (30 to 60 s)."""
    stall_timeout: float = 120.0
    """Time that output may wait for a client that takes nothing."""
    total_timeout: float = 6 * 3600.0
    """Life of a response, holds included."""
    first_token_timeout: float = 600.0
    """Time from the start of a pass to its first token; long, since a prefill of a huge prompt is slow."""
    hold_timeout: float = 3600.0
    """Time that a held response waits for the client at one pause; test suites run long."""
    grace: float = 30.0
    """Time that running responses get when the server shuts down or the session is too old."""
    queue_high_water: int = 64 * 1024
    """Bytes waiting in a response's queue at which its engine is paused."""
    queue_low_water: int = 16 * 1024
    """Bytes at which it goes on."""

    def to_proto(self) -> Limits:
        """Returns what the client is told."""
        return Limits(
            max_request_bytes=self.max_request_bytes,
            max_lanes=self.max_lanes,
            max_in_flight=self.max_in_flight,
            max_queued=self.max_queued,
            max_held=self.max_held,
            max_responses=self.max_responses,
            max_state_bytes=self.max_state_bytes,
            max_items=self.max_items,
            max_tools=self.max_tools,
            request_memory=self.request_memory,
            max_age=duration(self.max_age),
            idle_timeout=duration(self.idle_timeout),
            timeouts=Timeouts(
                total=duration(self.total_timeout),
                first_token=duration(self.first_token_timeout),
                hold=duration(self.hold_timeout),
            ),
            stall_timeout=duration(self.stall_timeout),
        )


def duration(seconds: float) -> Duration:
    """Returns seconds as a Duration."""
    whole = int(seconds)
    return Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


def seconds(value: Duration) -> float:
    """Returns a Duration as seconds."""
    return value.seconds + value.nanos / 1e9
