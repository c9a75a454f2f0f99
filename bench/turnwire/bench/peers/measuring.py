"""The rounds: every repetition starts all gateways anew, checks them, and gives each cell its turns.

Above it: the command. Below it: `processes`, `playing` and the upstream. Cells of all gateways follow one another, and
each repetition begins with another one, so that a machine that slows down slows down all. A gateway that cannot be
started, or a cell that is answered wrongly, is left out with its reason; what was measured of it before stays.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from turnwire.bench.doors_processes import Process
from turnwire.bench.fakes.upstream import TOKENS, Said, words
from turnwire.bench.peers.clients import Client, DirectChat, DirectResponses
from turnwire.bench.peers.lines import Block
from turnwire.bench.peers.playing import BROKEN, Player, Watch
from turnwire.bench.peers.port import DIRECT, Cell, Gateway, Mode, Unavailable
from turnwire.bench.peers.processes import Running, resident, start

WARM: Final = 2
"""Turns of each cell in each repetition that are played before any counts."""
WHOLE: Final[Sequence[Mode]] = ("unseen", "full")
"""How conversations are sent whole."""
_AGAIN: Final = 0.2
"""Seconds between attempts to reach a gateway that starts."""
_TOO_MANY: Final = 3
"""Failures one after the other, after which a cell is given up for this repetition."""

Told = Callable[[str], None]
"""Hears of each step, once it is done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured."""

    gateways: Mapping[str, Gateway]
    pythons: Mapping[str, Path]
    """The interpreter of each one's environment."""
    histories: Sequence[int]
    """Bytes."""
    requests: int
    """Turns of each cell in each repetition."""
    repeat: int

    def cells(self) -> list[Cell]:
        """Returns all that there is to measure; those of one history stand together."""
        found: list[Cell] = []
        for size in self.histories:
            found += (Cell(name, "direct", "sse", size) for name in DIRECT.values())
            for gateway in self.gateways.values():
                found += (Cell(gateway.name, mode, "sse", size) for mode in WHOLE)
                found += (Cell(gateway.name, "chained", transport, size) for transport in gateway.chained)
        return found


@dataclass(slots=True)
class Outcome:
    """What came of it, as far as it got."""

    blocks: list[Block] = field(default_factory=list[Block])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Why a gateway, or a way to ask it, was left out."""
    idle: dict[str, int] = field(default_factory=dict[str, int])
    """Resident bytes of each gateway once it answers, before it is measured."""


def rotated(cells: Sequence[Cell], repetition: int, repeat: int) -> list[Cell]:
    """Returns cells in another order for each repetition: each begins elsewhere, evenly spread."""
    begin = len(cells) * repetition // max(1, repeat)
    return [*cells[begin:], *cells[:begin]]


def label(cell: Cell) -> str:
    """Names what is left out where a way to ask a gateway is."""
    return f"{cell.gateway} ({cell.mode} over {cell.transport}, {cell.history} bytes)"


async def answering(running: Running) -> None:
    """Returns once a gateway answers. Safe to cancel.

    Raises:
        Unavailable: It ended, or did not answer in time; what it said last is in the message.
    """
    end = time.monotonic() + running.gateway.patience
    last = "nothing"
    while not running.dead():
        client = running.client("sse")
        try:
            await client.open()
            await client.ask(client.request([Said("user", "Is anybody there?")]))
        except BROKEN as error:
            last = f"{type(error).__name__}: {error}"
        else:
            return
        finally:
            await client.close()
        if time.monotonic() > end:
            raise Unavailable(f"no answer in {running.gateway.patience:.0f} s; the last attempt: {last[:300]}")
        await asyncio.sleep(_AGAIN)
    raise Unavailable(f"it ended with {running.process.returncode}: {running.words()[-500:] or 'without a word'}")


class Campaign:
    """Measures a plan in front of one upstream."""

    def __init__(self, plan: Plan, upstream: Process, told: Told, outcome: Outcome) -> None:
        """Takes what to measure, the upstream, who hears of the steps, and what is filled as it goes."""
        self._plan = plan
        self._url = upstream.addresses["upstream"]
        self._told = told
        self._watch = Watch(self._url)
        self._left_out: set[Cell] = set()
        self.outcome = outcome

    async def run(self) -> None:
        """Measures. When it is cancelled or fails, all gateways are ended."""
        await self._watch.open()
        # Collections would fall into somebody's turn.
        gc.disable()
        try:
            for repetition in range(self._plan.repeat):
                async with started(self._alive(), self._plan.pythons, self._url) as (running, failed):
                    self._skip(failed)
                    for name in running:
                        self._told(f"{name} answers")
                    for name, each in running.items():
                        self.outcome.idle.setdefault(name, resident(each.pids()))
                    if repetition == 0:
                        await self._check(running)
                    await self._repetition(repetition, running)
        finally:
            gc.enable()
            await self._watch.close()

    def _alive(self) -> list[Gateway]:
        return [each for each in self._plan.gateways.values() if each.name not in self.outcome.skipped]

    def _skip(self, failed: Mapping[str, str]) -> None:
        self.outcome.skipped.update(failed)

    def _due(self, running: Mapping[str, Running]) -> list[Cell]:
        direct = DIRECT.values()
        return [
            cell
            for cell in self._plan.cells()
            if cell not in self._left_out and (cell.gateway in running or cell.gateway in direct)
        ]

    async def _check(self, running: Mapping[str, Running]) -> None:
        """Plays a turn of each cell; those that are wrong are left out."""
        for cell in self._due(running):
            player = self._player(cell, running)
            try:
                await player.turn("Is this right?")
            except BROKEN as error:
                if cell.gateway in DIRECT.values():
                    raise RuntimeError(f"{label(cell)} is wrong: {error}") from error
                self._left_out.add(cell)
                self.outcome.skipped[label(cell)] = f"{type(error).__name__}: {error}"[:500]
            finally:
                await player.close()
            self._told(f"checked {label(cell)}")

    async def _repetition(self, repetition: int, running: Mapping[str, Running]) -> None:
        for cell in rotated(self._due(running), repetition, self._plan.repeat):
            if cell.gateway in self.outcome.skipped:
                continue
            gc.collect()
            block = await self._block(cell, repetition, running)
            self.outcome.blocks.append(block)
            self._told(label(cell))
            gateway = running.get(cell.gateway)
            if gateway is not None and gateway.dead():
                words = gateway.words()[-500:]
                self.outcome.skipped[cell.gateway] = f"it ended in repetition {repetition + 1}: {words}"

    def _player(self, cell: Cell, running: Mapping[str, Running]) -> Player:
        text = "".join(words(TOKENS))
        gateway = running.get(cell.gateway)
        if gateway is None:
            direct: Callable[[str], Client] = DirectChat if cell.gateway == DIRECT["chat"] else DirectResponses
            return Player(cell, lambda: direct(self._url), [], self._watch, text)
        return Player(cell, lambda: gateway.client(cell.transport), gateway.pids(), self._watch, text)

    async def _block(self, cell: Cell, repetition: int, running: Mapping[str, Running]) -> Block:
        block = Block(cell, repetition)
        player = self._player(cell, running)
        in_a_row = 0
        try:
            for n in range(WARM + self._plan.requests):
                counts = n >= WARM
                try:
                    played = await player.turn(f"Turn {n} of repetition {repetition}: what now?")
                except BROKEN as error:
                    block.failures.append(f"{type(error).__name__}: {error}"[:500])
                    in_a_row += 1
                    if in_a_row == _TOO_MANY:
                        break
                    continue
                in_a_row = 0
                block.form = played.form
                if counts:
                    block.ttft.append(played.answer.ttft)
                    block.total.append(played.answer.total)
                    block.cpu.append(played.cpu)
        finally:
            await player.close()
        gateway = running.get(cell.gateway)
        if gateway is not None:
            block.memory = resident(gateway.pids())
        return block


@asynccontextmanager
async def started(
    gateways: Sequence[Gateway], pythons: Mapping[str, Path], upstream: str
) -> AsyncGenerator[tuple[dict[str, Running], dict[str, str]]]:
    """Runs gateways until the block ends; yields those that answer, and why others do not. Cancelling it ends them."""
    running: dict[str, Running] = {}
    failed: dict[str, str] = {}
    try:
        for gateway in gateways:
            try:
                running[gateway.name] = start(gateway, pythons[gateway.name], upstream)
            except OSError as error:
                failed[gateway.name] = f"it cannot be started: {error}"
        answers: dict[str, Running] = {}
        for name, each in running.items():
            try:
                await answering(each)
            except Unavailable as error:
                failed[name] = str(error)
            else:
                answers[name] = each
        yield answers, failed
    finally:
        for each in running.values():
            each.terminate()
        for each in running.values():
            each.stop()
