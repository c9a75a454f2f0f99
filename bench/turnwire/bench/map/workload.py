"""What a rollout asks of a connection, turn by turn: bytes that are new, bytes before them, time of model and tools.

Above it: the other modules of the map. Below it: compiled scenarios. Pure. Sizes are bytes of content, without the
frames of JSON or protobuf; times are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from turnwire.bench.scenario.compiling import Rollout, compile_rollout, inference_time
from turnwire.bench.scenario.values import Scenario, Speed

BYTES_OF_TOKEN: Final = 4
"""About what a token of English text takes, where only its number is known."""


@dataclass(frozen=True, slots=True)
class Step:
    """One turn."""

    settings: int
    """Instructions and tools."""
    before: int
    """What the conversation held before this turn, the model's own words with it."""
    new: int
    """What the client brings; in the first turn the history is in it."""
    tokens: int
    """That the model says."""
    inference: float
    pause: float
    """What the client waits before the next turn."""

    @property
    def whole(self) -> int:
        """What the conversation holds when the model begins."""
        return self.before + self.new


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of rollout, of which the map varies speed, turns, history and round trip."""

    settings: int
    message: int
    """What the user says first."""
    growth: int
    """What the tools say after each turn."""
    tokens: int
    """Of each turn."""
    pause: float
    """That tools take after each turn."""
    ttft: float
    """At every speed; where prompts make it longer, all gains are smaller."""

    def steps(self, tokens_per_second: float, turns: int, history: int) -> list[Step]:
        """Returns a rollout of so many turns that begins with so much history."""
        _, inference = inference_time(Speed(self.ttft, tokens_per_second, 1), self.tokens)
        steps: list[Step] = []
        before = 0
        for turn in range(turns):
            new = self.growth if turn else history + self.message
            pause = self.pause if turn < turns - 1 else 0.0
            steps.append(Step(self.settings, before, new, self.tokens, inference, pause))
            before += new + self.tokens * BYTES_OF_TOKEN
        return steps


def steps_of(rollout: Rollout) -> list[Step]:
    """Returns the turns of a compiled rollout without forks."""
    settings = _size(rollout.instructions) + sum(
        _size(tool.name) + _size(tool.description) + _size(tool.parameters) for tool in rollout.tools
    )
    steps: list[Step] = []
    before, new = 0, sum(map(_size, rollout.history)) + _size(rollout.message)
    for turn in rollout.turns:
        steps.append(Step(settings, before, new, turn.tokens, turn.inference, turn.pause))
        before += new + turn.tokens * BYTES_OF_TOKEN
        new = sum(_size(call.output) for call in turn.calls) if turn.calls else _size(turn.reply)
    return steps


@lru_cache(maxsize=256)
def steps_in(scenario: Scenario) -> tuple[Step, ...]:
    """Returns the turns of a scenario without forks; texts are made to be measured, so what was made once is kept."""
    return tuple(steps_of(compile_rollout(scenario)))


def profile_of(rollout: Rollout) -> Profile:
    """Returns the averages of a compiled rollout of more than one turn."""
    steps = steps_of(rollout)
    follow = len(steps) - 1
    return Profile(
        settings=steps[0].settings,
        message=_size(rollout.message),
        growth=round(sum(step.new for step in steps[1:]) / follow),
        tokens=round(sum(step.tokens for step in steps) / len(steps)),
        pause=sum(step.pause for step in steps) / follow,
        ttft=rollout.turns[0].first_token,
    )


def least_time(steps: Sequence[Step], rtt: float) -> float:
    """Returns the floor: inference, what the client waits, and a round trip a turn."""
    return sum(step.inference + step.pause + rtt for step in steps)


def _size(text: str) -> int:
    return len(text.encode())
