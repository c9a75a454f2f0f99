"""What all doors share: engine, session core and runtime, driven in this process with no door and no client.

Above it: `doors`, which takes its cost off that of each door. Below it: the server's rooms, put together as a server
without a data directory and without safety rules does, but unobserved; a little less than a server does, so that what
is left for a door is rather too much. All lanes are of one session, the cheapest way.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from turnwire.bench.core import core_services
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.runtime.services import Unobserved
from turnwire.server.session.effects import ResponseEnded
from turnwire.server.session.limits import SessionLimits
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import Input, ResponseCreate
from turnwire.v1.session_pb2 import SessionOpen

NAME: Final = "core alone"
_MODEL: Final = "scripted"


class _Ends(Unobserved):
    """Counts the responses that ended, so that nobody has to look for it among their events."""

    def __init__(self) -> None:
        self.count = 0
        self.refused = ""

    def response_ended(self, ended: ResponseEnded) -> None:
        self.count += 1

    def rejected(self, code: str) -> None:
        self.refused = code


class Core:
    """A session with lanes, whose events are taken and let go."""

    def __init__(self, scenario: str, lanes: int) -> None:
        """Takes the engine's scenario (TOML) and the number of lanes. Needs a running event loop."""
        self._ends = _Ends()
        engine = ScriptedEngine(load_scenario(scenario, "scenario"))
        self._services = core_services(engine, SessionLimits(), self._ends)
        self._lanes = [f"l{n}" for n in range(lanes)]
        self._runner = SessionRunner(self._services, "", "bench")
        self._receive(ConnectRequest(open=SessionOpen(session_credit_bytes=0, response_credit_bytes=0)))

    def _receive(self, request: ConnectRequest) -> None:
        self._runner.receive(request, request.ByteSize())

    async def run(self, text: str, turns: int) -> list[float]:
        """Runs so many rounds of a response in each lane; returns what each round took, in seconds.

        Events are taken and not looked at, since that is a client's work. Once cancelled, it has to be closed.

        Raises:
            RuntimeError: A response was refused, or the session ended.
        """
        took: list[float] = []
        for _ in range(turns):
            began, awaited = time.perf_counter(), self._ends.count + len(self._lanes)
            for lane in self._lanes:
                create = ResponseCreate(model=_MODEL, input=Input(text=text), store=False)
                self._receive(ConnectRequest(create=create, lane=lane))
            while self._ends.count < awaited or self._runner.session.sendable:
                if self._ends.refused:
                    raise RuntimeError(self._ends.refused)
                batch = await self._runner.next_batch()
                if batch is None:
                    raise RuntimeError("the session ended")
                self._runner.sent(batch.ByteSize(), len(batch.events))
            took.append(time.perf_counter() - began)
        return took

    async def close(self) -> None:
        """Ends the session. Safe to cancel."""
        self._runner.abandon()
        await asyncio.sleep(0)
