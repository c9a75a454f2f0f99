"""No door: the same core, runtime and scripted engine in the client's own process, with no socket and no serialization.

Above it: the registry. Below it: `compact`, and the server's session runner. What is left of a turn's overhead is the
core's work and the engine's timer, which every other driver has as well: it is what they are to be compared with. There
is no network either, whatever the scenario says, and the process's CPU time is counted as the client's.
"""

from __future__ import annotations

import time
from typing import Final

from turnwire.bench.core import core_services
from turnwire.bench.drivers.compact import CompactConversation, Session
from turnwire.bench.drivers.port import Failed, Target
from turnwire.bench.scenario.compiling import Rollout
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Services
from turnwire.server.session.limits import MIB, SessionLimits
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.responses_service_pb2 import ConnectResponse

_MANY: Final = 65_536


def services(engine: ScriptedEngine) -> Services:
    """Returns what a server has for its sessions, with the limits of `stand`; needs a running event loop."""
    limits = SessionLimits(
        max_lanes=_MANY,
        max_in_flight=_MANY,
        max_held=_MANY,
        max_queued=_MANY,
        max_responses=_MANY,
        max_state_bytes=8192 * MIB,
    )
    return core_services(engine, limits)


class Null:
    """Plays conversations in one session of this process."""

    def __init__(self, target: Target, rollout: Rollout) -> None:
        """Takes the rollout; there is nowhere to connect to."""
        del target
        self._rollout = rollout
        self._engine: ScriptedEngine | None = None
        self._runner: SessionRunner | None = None
        self._session = Session(rollout, self)

    async def open(self, conversations: int) -> None:
        """Opens the session; see `Driver`."""
        self._engine = ScriptedEngine(load_scenario(self._rollout.script, "the scenario, compiled"))
        self._runner = SessionRunner(services(self._engine), "", "bench")
        await self._session.open()

    async def send(self, request: ConnectRequest) -> None:
        """Hands the core a message; see `compact.Wire`."""
        assert self._runner is not None
        # The core counts what it keeps by the size of messages, which doors know from the wire.
        self._runner.receive(request, request.ByteSize())

    async def receive(self) -> tuple[ConnectResponse, float]:
        """Takes the next batch; see `compact.Wire`."""
        assert self._runner is not None
        batch = await self._runner.next_batch()
        now = time.perf_counter()
        if batch is None:
            raise Failed(f"the session ended: {self._runner.close_error}")
        self._runner.sent(batch.ByteSize(), len(batch.events))
        return batch, now

    def conversation(self, name: str) -> CompactConversation:
        """Begins a conversation; see `Driver`."""
        return self._session.conversation(name, hold=True)

    async def close(self) -> None:
        """Ends the session and its engine; see `Driver`."""
        await self._session.close()
        if self._runner is not None:
            self._runner.abandon()
        if self._engine is not None:
            await self._engine.aclose()
