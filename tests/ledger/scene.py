"""A server's core over a data directory, all in the test's process.

Above: the tests of this folder and of `store`. Below: the server's own parts, with a scripted engine.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwire.server.engine.port import Engine
from turnwire.server.engine.profile import Price
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.engine.scripted.turns import SpeedChange
from turnwire.server.ledger.budgets import Budget, Budgets
from turnwire.server.ledger.config import DataConfig
from turnwire.server.ledger.opening import DataRoom
from turnwire.server.runtime.clock import LoopClock
from turnwire.server.runtime.local import LocalCaller
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.testing import make_services
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.errors import RequestError
from turnwire.v1.json import from_json
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent

PRICE = Price(input=1.0, cached=0.1, output=10.0)
SCENARIO = """
[[turn]]
when = "weather"
reasoning = "I have to look."
call = [{ name = "look", arguments = { place = "Oslo" } }]

[[turn]]
when = "fail"
error = { code = "server_error", message = "The engine broke." }

[[turn]]
text = "All is well."
"""


def scripted(text: str = SCENARIO) -> Engine:
    """An engine that plays a scenario at once."""
    return ScriptedEngine(load_scenario(text), speed=SpeedChange(ttft=0, tokens_per_second=float("inf")))


@dataclass
class Shop:
    """A server's core, and what its clients would do."""

    data: DataRoom
    budgets: Budgets
    services: Services
    room: SessionRoom
    folder: Path
    events: list[ServerEvent] = field(default_factory=list[ServerEvent])

    def caller(self, principal: str = "", door: str = "http") -> LocalCaller:
        return LocalCaller(self.room, principal, door)

    async def create(
        self, text: str = "hi", *, principal: str = "", about: RequestContext | None = None, **body: Any
    ) -> ResponseDone:
        """Creates a response and returns its outcome, with the response in full; raises what refuses it."""
        create = from_json(ResponseCreate, json.dumps({"model": "scripted", "input": text, **body}))
        create.echo = True
        done = None
        async for events in self.caller(principal).respond(create, about or RequestContext()):
            self.events += events
            if events[-1].WhichOneof("event") == "done":
                done = events[-1].done
        assert done is not None
        return done

    async def completed(self, text: str = "hi", **more: Any) -> Response:
        """Creates a response that completes."""
        done = await self.create(text, **more)
        assert done.reason == DoneReason.DONE_REASON_COMPLETED, done
        return done.response

    async def refused(self, text: str = "hi", **more: Any) -> str:
        """Creates a response that is refused, and returns the code."""
        try:
            await self.create(text, **more)
        except RequestError as refusal:
            return refusal.error.code
        raise AssertionError("it was not refused")

    async def lines(self, order: str = "rowid") -> list[dict[str, Any]]:
        """Reads the ledger, once all of it is in the database."""
        await self.data.caught_up()
        return read_lines(self.folder, order)

    async def get(self, response_id: str, principal: str = "") -> Response:
        return await self.caller(principal).get_response(response_id)

    def forget(self) -> None:
        """Forgets what is in memory, as if it had been long ago."""
        for principal, response_id in list(self.data.store._memory._states):
            self.data.store._memory._drop((principal, response_id))


@contextmanager
def full_disk(scene: Shop) -> Generator[None]:
    """Lets every write to the journal fail as on a full disk."""
    fd = scene.data.journal.fileno()
    kept, full = os.dup(fd), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(kept)
        os.close(full)


def read_lines(folder: Path, order: str = "rowid") -> list[dict[str, Any]]:
    """Reads the ledger of a folder."""
    db = sqlite3.connect(folder / "turnwire.db")
    try:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(f"select * from ledger order by {order}")]
    finally:
        db.close()


def rows(folder: Path, table: str) -> int:
    """Counts the rows of a table."""
    db = sqlite3.connect(folder / "turnwire.db")
    try:
        count: int = db.execute(f"select count(*) from {table}").fetchone()[0]
        return count
    finally:
        db.close()


@asynccontextmanager
async def shop(
    folder: Path,
    engine: Engine | None = None,
    *,
    budgets: Mapping[str, Budget] | None = None,
    price: Price | None = PRICE,
    services: dict[str, Any] | None = None,
    **config: Any,
) -> AsyncGenerator[Shop, None]:
    """Opens a server's core over a data directory, and closes it in order."""
    engine = engine or scripted()
    sums = Budgets(budgets or {}, LoopClock().wall)
    tool_sets = ToolSets()
    data = DataRoom(DataConfig(folder, **config), sums, lambda model: price, LoopClock().wall, tool_sets)
    try:
        made = make_services([engine], store=data.store, ledger=data.ledger, tool_sets=tool_sets, **(services or {}))
        if made.conversations is not None:
            data.store.mark = made.conversations.marker.mark
        room = SessionRoom(made)
        yield Shop(data, sums, made, room, folder)
        await room.background.aclose()
    finally:
        await data.aclose()
        await engine.aclose()
