"""One turn of one gateway, from an idle connection to an idle one: what it took, and whether it was right.

Above it: `measuring` and `chains`. Below it: `clients`, `processes`, and what the upstream saw. A turn goes on from the
one just before it on the same connection, as an agent's does, chained or resent; that one is not measured, nor is what
a gateway does behind its answer. Every turn is checked, not only the first: the text that came out, and the
conversation that the upstream got.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp
import grpc
import msgspec

from turnwire.bench.fakes.upstream import Said, Seen, digest
from turnwire.bench.peers.clients import Answer, Client, Failed
from turnwire.bench.peers.conversations import Conversation, history
from turnwire.bench.peers.port import Cell
from turnwire.bench.peers.processes import clocks, cpu

SETTLE: Final = 0.05
"""Seconds to wait at least behind each answer, as for a tool. What a gateway does then, such as storing the answer,
belongs to the CPU time of its turn."""
_LOOK: Final = 0.025
"""Seconds after which to look again whether a gateway is done."""
_IDLE: Final = 0.1
"""Share of a core below which it is."""
_SETTLED: Final = 0.5
"""Seconds to wait at most: some never rest."""

BROKEN: Final = (Failed, OSError, TimeoutError, aiohttp.ClientError, grpc.aio.AioRpcError, msgspec.DecodeError)
"""What a turn may end with that does not go well."""


class Watch:
    """Asks the upstream what it got."""

    def __init__(self, url: str) -> None:
        """Takes its base URL, without a path."""
        self._url = f"{url}/seen"
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Makes room for a connection. Safe to cancel."""
        self._http = aiohttp.ClientSession()

    async def take(self) -> Seen:
        """Returns what it got since this was called last; it counts from nothing again. Safe to cancel."""
        assert self._http is not None
        async with self._http.get(self._url) as response:
            return msgspec.json.decode(await response.read(), type=Seen)

    async def close(self) -> None:
        """Disconnects. Safe to cancel."""
        if self._http is not None:
            await self._http.close()


@dataclass(frozen=True, slots=True)
class Played:
    """A turn that went well."""

    answer: Answer
    cpu: float
    """Seconds that the gateway's processes ran for it."""
    form: str
    """How it asked the upstream: `chat` or `responses`."""


def fault(answer: Answer, text: str, seen: Seen, wanted: list[Said]) -> str:
    """Returns what is wrong with a turn; nothing where it is right.

    Args:
        answer: What came out.
        text: What the upstream says.
        seen: What the upstream got.
        wanted: The conversation that it had to get.
    """
    if not seen.requests:
        return "the upstream was not asked"
    if seen.fewest != len(wanted):
        return f"the upstream got {seen.fewest} of {len(wanted)} messages"
    if seen.digest != digest(wanted):
        return f"the upstream got {len(wanted)} messages, but not with the roles and texts that were sent"
    if answer.text != text:
        return f"expected the text {_short(text)}, found {_short(answer.text)}"
    return ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:40]}…{text[-20:]}") + f" ({len(text)} characters)"


async def settled(pids: list[int]) -> None:
    """Waits until processes have done what was left to do. Safe to cancel."""
    await asyncio.sleep(SETTLE - _LOOK)
    end = time.monotonic() + _SETTLED
    while time.monotonic() < end:
        before = clocks(pids)
        await asyncio.sleep(_LOOK)
        if cpu(before) < _LOOK * _IDLE:
            return


class Player:
    """Plays turns of one cell over one connection after another."""

    def __init__(self, cell: Cell, connect: Callable[[], Client], pids: list[int], watch: Watch, text: str) -> None:
        """Takes the cell, what makes a client of it, the processes to weigh, and the upstream's text."""
        self._cell = cell
        self._connect = connect
        self._pids = pids
        self._watch = watch
        self._conversation = Conversation(history(cell.history), text)
        self._played = 0
        self._client: Client | None = None

    async def turn(self, new: str) -> Played:
        """Plays one turn. When it fails or is cancelled, its connection is closed, and the next has one of its own.

        Raises:
            Failed: It did not complete, or was wrong: what was dropped or changed is in the text.
            OSError: The connection broke; see `BROKEN` for all that may come.
        """
        try:
            return await self._turn(new)
        except BaseException:
            await self.close()
            raise

    async def _turn(self, new: str) -> Played:
        client = self._client
        if client is None:
            client = self._client = self._connect()
            await client.open()
        mode = self._cell.mode
        if mode == "unseen":
            self._played += 1
            self._conversation = Conversation(history(self._cell.history, self._played), self._conversation.answer)
        conversation = self._conversation
        whole = conversation.whole(new)
        if mode == "chained":
            stored = await client.ask(client.request(conversation.before, store=True))
            request = client.request(whole[-1:], stored.id, store=True)
        else:
            if mode == "full":
                await client.ask(client.request(conversation.before))
            request = client.request(whole)
        await settled(self._pids)
        await self._watch.take()
        before = clocks(self._pids)
        answer = await client.ask(request)
        await settled(self._pids)
        used = cpu(before)
        seen = await self._watch.take()
        if wrong := fault(answer, conversation.answer, seen, whole):
            raise Failed(wrong)
        return Played(answer, used, seen.form)

    async def close(self) -> None:
        """Disconnects. Cancelling it leaves the connection to the garbage collector."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
