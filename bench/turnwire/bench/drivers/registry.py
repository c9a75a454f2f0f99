"""All drivers by name, with what each shows.

Above it: the runner and `play`. Below it: the drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from turnwire.bench.drivers import grpc_node
from turnwire.bench.drivers.grpc_session import GrpcSession
from turnwire.bench.drivers.grpc_streams import GrpcStreams
from turnwire.bench.drivers.http import Http
from turnwire.bench.drivers.native import NativeSocket
from turnwire.bench.drivers.port import Driver, Target
from turnwire.bench.drivers.websocket import ALL, WebSocket
from turnwire.bench.drivers.whole import Whole
from turnwire.bench.scenario.compiling import Rollout
from turnwire.bench.scenario.values import Scenario


def _any(scenario: Scenario) -> str:
    return ""


def _null(target: Target, rollout: Rollout) -> Driver:
    # Imported where it is played: it brings the server with it, whose memory must not be in that of other clients.
    from turnwire.bench.drivers.null import Null

    return Null(target, rollout)


def _needs_no_server(scenario: Scenario) -> str:
    return "there is no server whose idle sessions could be weighed" if scenario.idle is not None else ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One driver."""

    name: str
    title: str
    """For tables."""
    build: Callable[[Target, Rollout], Driver | Whole]
    """Makes a driver for a rollout; no I/O."""
    bridged: bool = False
    """Whether it goes through a bridge, whose cost is told apart."""
    direct: bool = False
    """Whether there is neither server nor network: client, core and engine are one process, counted as the client."""
    refusal: Callable[[Scenario], str] = _any
    """Says why it cannot play a scenario on this machine; empty where it can."""


DRIVERS: Final = {
    entry.name: entry
    for entry in (
        Entry("grpc-create", "gRPC, one stream, create", lambda t, r: GrpcSession(t, r, hold=False)),
        Entry("grpc-append", "gRPC, one stream, append", lambda t, r: GrpcSession(t, r, hold=True)),
        Entry("grpc-streams", "gRPC, a stream each, stored", GrpcStreams),
        Entry("grpc-node", "gRPC from Node, one stream, append", grpc_node.GrpcNode, refusal=grpc_node.refusal),
        Entry("http-full", "HTTP, whole history, kept alive", lambda t, r: Http(t, r, chained=False)),
        Entry(
            "http-full-new", "HTTP, whole history, new connections", lambda t, r: Http(t, r, chained=False, kept=False)
        ),
        Entry("http-chained", "HTTP, chained, kept alive", lambda t, r: Http(t, r, chained=True)),
        Entry("ws-create", "WebSocket, official, create", WebSocket),
        Entry("ws-append", "WebSocket, official, append", lambda t, r: WebSocket(t, r, hold=True)),
        Entry("ws-each", "WebSocket, official, a socket each", lambda t, r: WebSocket(t, r, shared=1)),
        Entry("ws-each-append", "WebSocket, a socket each, append", lambda t, r: WebSocket(t, r, hold=True, shared=1)),
        Entry("ws-one", "WebSocket, one socket, create", lambda t, r: WebSocket(t, r, shared=ALL)),
        Entry("ws-one-append", "WebSocket, one socket, append", lambda t, r: WebSocket(t, r, hold=True, shared=ALL)),
        Entry("native-create", "WebSocket, turnwire.v1, create", lambda t, r: NativeSocket(t, r, hold=False)),
        Entry("native-append", "WebSocket, turnwire.v1, append", lambda t, r: NativeSocket(t, r, hold=True)),
        Entry("null", "no door: core, engine and client in one process", _null, direct=True, refusal=_needs_no_server),
        Entry("bridge", "bridge: WebSocket, then gRPC", lambda t, r: WebSocket(t, r, bridged=True), bridged=True),
    )
}
"""In the order of tables."""


def left_out(drivers: Sequence[str], scenario: Scenario) -> dict[str, str]:
    """Returns which drivers cannot play a scenario on this machine, and why."""
    return {name: reason for name in drivers if (reason := DRIVERS[name].refusal(scenario))}
