"""Where the time of passes went: measured from a response's clocks, summed since its last `done`."""

from __future__ import annotations

from turnwire.server.session.run import Clocks
from turnwire.v1.usage_pb2 import StageTimes


def measure(clocks: Clocks, now: float, *, first_pass: bool) -> StageTimes:
    """Measures the current pass."""
    times = StageTimes(
        queued=clocks.queued if first_pass else 0.0,
        pre_inference=(clocks.started if clocks.started is not None else now) - clocks.begun,
        hosted_tools=clocks.hosted,
        client_wait=clocks.client_wait,
        stalled=clocks.stalled,
    )
    if clocks.started is not None:
        stopped = clocks.stopped if clocks.stopped is not None else now
        times.inference = max(0.0, stopped - clocks.started - clocks.stalled)
        if clocks.first_token is not None:
            times.first_token = clocks.first_token - clocks.started
        if clocks.stopped is not None:
            times.post_inference = max(0.0, now - clocks.stopped - clocks.hosted)
    return times


def total(earlier: StageTimes, last: StageTimes) -> StageTimes:
    """Adds passes up; the first token is that of the earliest pass that had one: what the client waited for."""
    times = StageTimes(
        queued=earlier.queued + last.queued,
        pre_inference=earlier.pre_inference + last.pre_inference,
        inference=earlier.inference + last.inference,
        hosted_tools=earlier.hosted_tools + last.hosted_tools,
        client_wait=earlier.client_wait + last.client_wait,
        post_inference=earlier.post_inference + last.post_inference,
        stalled=earlier.stalled + last.stalled,
    )
    for one in (earlier, last):
        if one.HasField("first_token"):
            times.first_token = one.first_token
            break
    return times
