"""What a session has in use, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gauges:
    """Counts at one moment."""

    lanes: int
    """Distinct named lanes so far."""
    in_flight: int
    """Responses at work, held ones included."""
    queued: int
    """Requests waiting for their lanes."""
    held: int
    """Responses waiting for their client."""
    responses: int
    """Responses that can be continued from."""
    state_bytes: int
    """Bytes kept for continuation."""
    outstanding_bytes: int
    """Bytes sent and not acknowledged."""
