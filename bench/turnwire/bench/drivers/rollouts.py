"""Plays rollouts: what the client does between the turns, for any driver.

Above it: `play`. Below it: a driver's conversations, and the alarm. Every turn is compared with what the scenario says,
so a figure can only come from a run in which text and tool calls were right.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from turnwire.bench.drivers.port import (
    IDS,
    LOGPROBS,
    TEXT_LOGPROBS,
    Conversation,
    Driver,
    Failed,
    New,
    ToolResult,
    Turn,
    UserMessage,
)
from turnwire.bench.drivers.records import RolloutRecord
from turnwire.bench.metrics.turns import Moments, turn_figures
from turnwire.bench.network.alarm import Alarm
from turnwire.bench.scenario.compiling import PlannedTurn, Rollout
from turnwire.bench.scenario.values import Fork, Load


def differences(turn: Turn, planned: PlannedTurn) -> list[str]:
    """Says where a turn differs from the plan; nothing where it does not."""
    found: list[str] = []
    text = "".join(turn.text)
    if text != planned.text:
        found.append(f"text: expected {_brief(planned.text)}, found {_brief(text)}")
    expected = [(call.name, call.arguments) for call in planned.calls]
    calls = [(call.name, call.arguments) for call in turn.calls]
    if calls != expected:
        found.append(f"tool calls: expected {_brief(str(expected))}, found {_brief(str(calls))}")
    due = {IDS: planned.tokens, LOGPROBS: planned.tokens, TEXT_LOGPROBS: planned.text_tokens}
    found += [
        f"{what}: expected {due[what]}, found {count}" for what, count in turn.counts.items() if count != due[what]
    ]
    return found


def _brief(text: str) -> str:
    return repr(text) if len(text) <= 160 else f"{text[:80]!r} … {text[-60:]!r} ({len(text)} characters)"


def starts(load: Load, seed: int) -> list[float]:
    """Returns when rollouts of an open loop begin, in seconds from the first one.

    Gaps are exponential (a Poisson process), scaled so that the mean rate is exactly the one set.
    """
    choice = random.Random(seed)
    gaps = [choice.expovariate(1.0) for _ in range(load.rollouts - 1)]
    scale = len(gaps) / load.rate / sum(gaps) if gaps else 0.0
    moments = [0.0]
    for gap in gaps:
        moments.append(moments[-1] + gap * scale)
    return moments


class Player:
    """Plays rollouts of one scenario with one driver."""

    def __init__(
        self,
        driver: Driver,
        rollout: Rollout,
        fork: Fork | None,
        round_trip: float,
        alarm: Alarm,
        *,
        pieces: bool = False,
    ) -> None:
        """Takes an open driver, what is played, where it forks, the round trip in seconds, an alarm, and whether to
        note each piece of text."""
        self._pieces = pieces
        self._driver = driver
        self._rollout = rollout
        self._fork = fork
        self._round_trip = round_trip
        self._alarm = alarm
        self.records: list[RolloutRecord] = []
        """Of all rollouts that were begun, in that order; filled as they go."""

    async def closed_loop(self, load: Load) -> None:
        """Lets agents play one rollout after the other until all are played. Cancelling it keeps what there is."""
        left = iter(range(load.rollouts))

        async def agent(name: str) -> None:
            for _ in left:
                await self._one(name, time.perf_counter())

        async with asyncio.TaskGroup() as group:
            for number in range(load.agents):
                group.create_task(agent(f"a{number}"))

    async def open_loop(self, load: Load, seed: int) -> None:
        """Begins rollouts at random moments, whether others have ended or not. Cancelling it keeps what there is."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, start in enumerate(starts(load, seed)):
                await self._alarm.until(began + start)
                group.create_task(self._one(f"a{number}", began + start))

    async def _one(self, name: str, intended: float) -> None:
        record = RolloutRecord()
        self.records.append(record)
        began = time.perf_counter()
        record.start_lag = began - intended
        record.failure = "it did not come to its end"
        try:
            await self.play(self._driver.conversation(name), record, name)
            record.failure = ""
        except Failed as error:
            record.failure = str(error)
        except Exception as error:
            # One broken rollout must not end the others; it is counted and shown.
            record.failure = f"{type(error).__name__}: {error}"
        record.took = time.perf_counter() - began

    async def play(self, conversation: Conversation, record: RolloutRecord, name: str) -> None:
        """Plays one rollout, with its forks.

        Raises:
            Failed: A turn failed, or differed from the scenario.
        """
        turns = self._rollout.turns
        first: list[New] = [UserMessage(self._rollout.message)]
        if self._fork is None:
            await self._turns(conversation, turns, 0, first, record)
            return
        after = self._fork.after
        new = await self._turns(conversation, turns[:after], 0, first, record)
        forks = [conversation.fork(f"{name}f{lane}") for lane in range(self._fork.lanes)]
        branches = [RolloutRecord() for _ in forks]
        await asyncio.gather(
            *(
                self._turns(fork, turns[after:], after, new, branch)
                for fork, branch in zip(forks, branches, strict=True)
            )
        )
        for branch in branches:
            record.turns += branch.turns
            record.lags += branch.lags

    async def _turns(
        self,
        conversation: Conversation,
        turns: Sequence[PlannedTurn],
        number: int,
        new: Sequence[New],
        record: RolloutRecord,
    ) -> Sequence[New]:
        """Plays turns that follow one another; returns what comes after them."""
        for place, planned in enumerate(turns, number + 1):
            turn = await conversation.turn(new)
            if found := differences(turn, planned):
                raise Failed(f"turn {place}: {'; '.join(found)}")
            moments = Moments(turn.sent, turn.arrivals, turn.done, turn.told)
            figures = turn_figures(moments, planned.tokens, planned.inference, self._round_trip, planned.pause)
            record.turns.append(figures)
            if self._pieces:
                came = zip(turn.arrivals, turn.text, strict=True)
                record.pieces.append([(moment - turn.sent, len(text)) for moment, text in came])
            if planned.pause:
                due = turn.done + planned.pause
                await self._alarm.until(due)
                record.lags.append(time.perf_counter() - due)
            new = _answers(turn, planned)
        return new


def _answers(turn: Turn, planned: PlannedTurn) -> Sequence[New]:
    if planned.calls:
        return [ToolResult(call.call_id, answer.output) for call, answer in zip(turn.calls, planned.calls, strict=True)]
    return [UserMessage(planned.reply)]
