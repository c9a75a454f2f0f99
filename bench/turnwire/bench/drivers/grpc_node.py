"""gRPC from Node: all conversations on one stream, by appends, in a process of Node's (`node/play.mjs`).

Above it: the registry. Below it: that program, and `rollouts`, whose comparison and figures are the same for all.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from turnwire.bench.drivers.compact import asked
from turnwire.bench.drivers.node_packages import FOLDER, SOURCE, missing
from turnwire.bench.drivers.port import IDS, LOGPROBS, Called, Failed, Target, Turn
from turnwire.bench.drivers.records import RolloutRecord
from turnwire.bench.drivers.rollouts import differences
from turnwire.bench.metrics.turns import Moments, Stages, turn_figures
from turnwire.bench.scenario.compiling import MODEL, Rollout
from turnwire.bench.scenario.values import Load, Scenario

NO_RATE: Final = "Node plays closed loops only, not rollouts that begin at random"

_LINE: Final = 1 << 30
"""Bytes of one answer at most; it holds the moments of a whole run."""
_CLOSING: Final = 5.0
"""Seconds for the process to end by itself."""


class PlayedTurn(msgspec.Struct):
    """A turn as Node tells it. Moments are seconds of its own clock."""

    number: int
    sent: float
    arrivals: list[float]
    done: float
    text: str
    calls: list[tuple[str, str, str]]
    """Id, name and arguments of each."""
    told: tuple[float, float, float, float] | None
    """Queued, before inference, inference, after it."""
    ids: int = 0
    """Token ids that came."""
    logprobs: int = 0


class Played(msgspec.Struct):
    """A rollout as Node tells it."""

    took: float
    start_lag: float
    turns: list[PlayedTurn]
    lags: list[float]
    failure: str


class _Answer(msgspec.Struct):
    rollouts: list[Played] | None = None


class GrpcNode:
    """Plays whole rollouts; see `Whole`."""

    def __init__(self, target: Target, rollout: Rollout) -> None:
        """Takes where the server is, and the rollout."""
        self._target = target
        self._rollout = rollout
        self._round_trip = 0.0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process of Node; 0 before it was started."""
        return 0 if self._process is None else self._process.pid

    async def start(self, scenario: Scenario) -> None:
        """Starts Node, connects and warms up; see `Whole`."""
        self._round_trip = scenario.network.rtt
        protos = str(Path(str(files("turnwire.v1").joinpath("responses_service.proto"))).parents[2])
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            "node", str(SOURCE / "play.mjs"), str(FOLDER), protos, stdin=pipe, stdout=pipe, stderr=pipe, limit=_LINE
        )
        self._say(
            {
                "address": self._target.grpc,
                "ca": self._target.ca,
                "model": MODEL,
                "rollout": _told(self._rollout),
                "fork": None if scenario.fork is None else asdict(scenario.fork),
            }
        )
        await self._hear()

    async def play(self, load: Load, seed: int) -> None:
        """Lets Node play, closed loops only; see `Whole`."""
        if load.rate:
            raise Failed(NO_RATE)
        self._say({"rollouts": load.rollouts, "agents": load.agents})
        await self._hear()

    async def collect(self) -> list[RolloutRecord]:
        """Asks Node what was played; see `Whole`."""
        self._say({})
        # The answer to a loop that was no longer waited for may come first.
        while (rollouts := (await self._hear()).rollouts) is None:
            pass
        return [judged(played, self._rollout, self._round_trip) for played in rollouts]

    def _say(self, what: dict[str, Any]) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(what) + b"\n")

    async def _hear(self) -> _Answer:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if line := await process.stdout.readline():
            return msgspec.json.decode(line, type=_Answer)
        words = (await process.stderr.read()).decode(errors="replace")
        raise Failed(f"Node ended: {words.strip()[-2000:]}")

    async def close(self) -> None:
        """Ends Node; see `Whole`."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _CLOSING)
        except TimeoutError:
            process.kill()
            await process.wait()


def refusal(scenario: Scenario) -> str:
    """Returns why Node cannot play a scenario here; empty where it can."""
    if scenario.load.rate:
        return NO_RATE
    if scenario.idle is not None:
        return "Node's client has no sessions that are idle"
    return missing()


def _told(rollout: Rollout) -> dict[str, Any]:
    """Returns what Node has to know: what it sends, and when; not what the model will say."""
    return {
        "instructions": rollout.instructions,
        "tools": [asdict(tool) for tool in rollout.tools],
        "history": rollout.history,
        "message": rollout.message,
        "output": asdict(rollout.output),
        "turns": [
            {"pause": turn.pause, "reply": turn.reply, "outputs": [call.output for call in turn.calls]}
            for turn in rollout.turns
        ],
    }


def judged(played: Played, rollout: Rollout, round_trip: float) -> RolloutRecord:
    """Returns a rollout's record: figures of its turns up to the first that differs from the plan."""
    record = RolloutRecord(played.took, played.start_lag, lags=played.lags, failure=played.failure)
    for turn in played.turns:
        plan = rollout.turns[turn.number]
        calls = [Called(*call) for call in turn.calls]
        came = {IDS: turn.ids, LOGPROBS: turn.logprobs}
        counts = {what: came[what] for what in asked(rollout)}
        if found := differences(Turn(text=[turn.text], calls=calls, counts=counts), plan):
            record.failure = f"turn {turn.number + 1}: {'; '.join(found)}"
            break
        told = None if turn.told is None else Stages(turn.told[0] + turn.told[1], *turn.told[2:])
        moments = Moments(turn.sent, turn.arrivals, turn.done, told)
        record.turns.append(turn_figures(moments, plan.tokens, plan.inference, round_trip, plan.pause))
    return record
