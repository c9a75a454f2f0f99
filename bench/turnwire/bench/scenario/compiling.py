"""Compiles a scenario to what the scripted engine plays and to what the client answers.

Above it: the runner and the drivers. Below it: `values`, `material`, and the scripted engine, which says how many
tokens each turn has and thereby how long its inference takes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Final

from turnwire.bench.scenario.material import make
from turnwire.bench.scenario.values import STREAMED, Call, Kind, Material, Output, Scenario, Speed, Turn
from turnwire.server.engine.scripted.filler import filler
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.engine.scripted.script import compile_turn

MODEL: Final = "scripted"
_HISTORY_ITEM: Final = 4096
"""Bytes of one message of a history."""
_TOOL: Final = 1024
"""About the bytes of one tool's definition."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that the model will make, and what the tool will say."""

    name: str
    arguments: str
    time: float
    """What the tool takes, in seconds."""
    output: str


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """What the model will say, and what the client answers."""

    text: str
    calls: tuple[PlannedCall, ...]
    reply: str
    """What the user says next; empty where calls are answered instead, and at the end."""
    tokens: int
    inference: float
    """Seconds from the prompt in the engine's hands to the last token, as the engine's format promises."""
    first_token: float
    """Seconds to the first token."""
    pause: float
    """Seconds that tools or the user take before the next turn; parallel calls as long as the longest."""
    text_tokens: int = 0
    """Of `tokens`, those of the text."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function tool as clients declare it."""

    name: str
    description: str
    parameters: str
    """JSON Schema."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A scenario compiled."""

    script: str
    """What the scripted engine plays, as TOML."""
    instructions: str
    tools: tuple[Tool, ...]
    history: tuple[str, ...]
    """Messages of the user's that stand at the beginning. They are none of the model's, since the engine counts those
    as turns played."""
    message: str
    """What the user says first."""
    turns: tuple[PlannedTurn, ...]
    output: Output = STREAMED
    """How much of it is sent, and as what."""


def compile_rollout(scenario: Scenario) -> Rollout:
    """Compiles a scenario. The same scenario always gives the same rollout."""
    arguments = [
        [_arguments(call, f"{scenario.seed} {n} {m}") for m, call in enumerate(turn.calls)]
        for n, turn in enumerate(scenario.turns)
    ]
    script = _script(scenario, arguments)
    played = load_scenario(script, f"{scenario.name}, compiled")
    last = len(scenario.turns) - 1
    turns: list[PlannedTurn] = []
    for index, (turn, scripted) in enumerate(zip(scenario.turns, played.turns, strict=True)):
        tokens = compile_turn(scripted).released
        count = len(tokens) - 1
        reply = "" if turn.calls or index == last else make(turn.reply, f"{scenario.seed} reply {index}")
        calls = tuple(
            PlannedCall(call.name, text, call.time, make(call.output, f"{scenario.seed} output {index} {place}"))
            for place, (call, text) in enumerate(zip(turn.calls, arguments[index], strict=True))
        )
        pause = max((call.time for call in calls), default=0.0 if index == last else turn.think)
        first, whole = inference_time(scenario.speed, count)
        turns.append(PlannedTurn(scripted.text, calls, reply, count, whole, first, pause, turn.text))
    request = scenario.request
    names = list(dict.fromkeys(call.name for turn in scenario.turns for call in turn.calls))
    return Rollout(
        script=script,
        instructions=make(Material(Kind.PROSE, request.instructions), f"{scenario.seed} instructions"),
        tools=_tools(names, request.tools, scenario.seed),
        history=_history(request.history, scenario.seed),
        message=make(Material(Kind.PROSE, request.message), f"{scenario.seed} message"),
        turns=tuple(turns),
        output=scenario.output,
    )


def inference_time(speed: Speed, tokens: int) -> tuple[float, float]:
    """Returns the seconds to the first and to the last of so many tokens, by the formula of docs/scenarios.md."""
    if math.isinf(speed.tokens_per_second) or tokens < 2:
        return speed.ttft, speed.ttft
    return speed.ttft, speed.ttft + (tokens - 1) // speed.burst * speed.burst / speed.tokens_per_second


def at_once(rollout: Rollout) -> Rollout:
    """Returns the same rollout without any waiting of the client's, for checks that nobody times."""
    return replace(
        rollout,
        turns=tuple(
            replace(turn, pause=0.0, calls=tuple(replace(call, time=0.0) for call in turn.calls))
            for turn in rollout.turns
        ),
    )


def _script(scenario: Scenario, arguments: list[list[str]]) -> str:
    speed = scenario.speed
    per_second = 0 if math.isinf(speed.tokens_per_second) else speed.tokens_per_second
    lines = [
        'on_end = "error"',
        "[speed]",
        f"ttft_ms = {speed.ttft * 1000:g}",
        f"tokens_per_second = {per_second:g}",
        f"burst = {speed.burst}",
    ]
    for index, turn in enumerate(scenario.turns):
        lines += ["[[turn]]", *_words(turn, index, scenario.seed)]
        for call, text in zip(turn.calls, arguments[index], strict=True):
            # A basic string of TOML takes all escapes of JSON.
            lines += ["[[turn.call]]", f"name = {json.dumps(call.name)}", f"arguments = {json.dumps(text)}"]
    return "\n".join(lines) + "\n"


def _words(turn: Turn, index: int, seed: int) -> list[str]:
    words = (("reasoning", turn.reasoning), ("text", turn.text))
    return [f"{key} = {json.dumps(filler(count, f'{seed} {key} {index}'))}" for key, count in words if count]


def _arguments(call: Call, seed: str) -> str:
    # The frame of the JSON takes about six tokens.
    return json.dumps({"input": filler(max(1, call.arguments_tokens - 6), seed)}, separators=(",", ":"))


def _tools(names: list[str], size: int, seed: int) -> tuple[Tool, ...]:
    """Declares the tools that are called, and as many others as fill the size."""
    names = names + [f"tool_{n:02d}" for n in range(len(names), size // _TOOL)]
    described = size // len(names) if names else 0
    tools: list[Tool] = []
    for name in names:
        schema = {
            "type": "object",
            "properties": {"input": {"type": "string", "description": "What to work on."}},
            "required": ["input"],
            "additionalProperties": False,
        }
        parameters = json.dumps(schema, separators=(",", ":"))
        room = max(16, described - len(parameters) - len(name) - 60)
        tools.append(Tool(name, make(Material(Kind.PROSE, room), f"{seed} tool {name}"), parameters))
    return tuple(tools)


def _history(size: int, seed: int) -> tuple[str, ...]:
    sizes = [_HISTORY_ITEM] * (size // _HISTORY_ITEM)
    if rest := size % _HISTORY_ITEM:
        sizes.append(rest)
    return tuple(make(Material(Kind.FILE, each), f"{seed} history {n}") for n, each in enumerate(sizes))
