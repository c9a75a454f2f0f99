"""What each optimization of a turn is good for: a late turn with everything off, with one more on at a time, with all.

Every setup is a real server in a process of its own, all of them beside each other and asked in turn, so that whatever
else the machine does falls on all alike. Behind them stand fakes that answer at once: what is measured is everything
but the model. The turn is made again and again from the same state of a conversation, as a fork of it, so that the
history stays as long as it is. Run with `python -m turnwire.bench.ablation --out FILE --picture SVG`.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import uvloop
from PIL import Image

from turnwire.bench.ablation_rig import CHAT, TOKENS, TOOL, server, upstreams
from turnwire.bench.command import bar, stoppable, typed
from turnwire.bench.intervals import listed, spread, taken
from turnwire.bench.measured import measuring
from turnwire.bench.metrics.statistics import paired_bootstrap
from turnwire.client import Session, connect
from turnwire.server.prompt import vocabulary

ORDER: Final = (
    "token-cache",
    "route-cache",
    "inline-images",
    "incremental-safety",
    "incremental-validation",
    "item-cache",
    "tool-cache",
    "overlapped-ledger",
    "delta-batching",
)
"""As the article tells of them: what helps single requests first, then what a kept state adds."""

HISTORY: Final = 100_000
"""Tokens of history at the start of the turn."""
TURNS: Final = 40
"""Turns of each setup and model."""

_MODELS: Final = (TOKENS, CHAT)
_WARM: Final = 2
"""Turns that are not counted."""
_ALL_ON: Final = frozenset[str]()
_PIECE: Final = 1024
"""Bytes of a tool's output."""
_PER_CREATE: Final = 64
"""Tool calls that one request replays while the history is built."""
_IMAGES: Final = 4
"""Images in the history of the chat model; the late turn brings one more."""
_AROUND: Final = 40
"""About the tokens of a tool call, and of what stands around it and its output."""
_FIRST: Final = frozenset({"output_text_delta", "reasoning_text_delta"})


@dataclass(slots=True)
class Timed:
    """One setup's turns in front of one model, in milliseconds."""

    first: list[float] = field(default_factory=list[float])
    """To the first token."""
    whole: list[float] = field(default_factory=list[float])
    """To the end."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured in front of one model: medians in milliseconds, time to the first token and whole turn."""

    model: str
    steps: tuple[tuple[float, float], ...]
    """With everything off, then with one more of `ORDER` on at a time."""
    alone: tuple[tuple[float, float], ...]
    """With one of `ORDER` off and everything else on."""
    spread: float
    """Half the distance between the quartiles of the last step's times to the first token, in milliseconds."""
    saved: tuple[float, ...] = ()
    """`better` by the times that both setups were asked beside each other: the median, and the ends of its interval."""

    @property
    def better(self) -> float:
        """The part of the time to the first token that is saved by all together."""
        return 1 - self.steps[-1][0] / self.steps[0][0]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which setups are measured: groups of optimizations, switched on one after the other."""

    names: tuple[str, ...]
    groups: tuple[frozenset[str], ...]

    def steps(self) -> list[frozenset[str]]:
        """Returns what is off in each step, from everything to nothing."""
        return [frozenset[str]().union(*self.groups[done:]) for done in range(len(self.groups) + 1)]

    def setups(self) -> list[frozenset[str]]:
        """Returns what is off: in each step, then each alone; nothing twice."""
        return list(dict.fromkeys([*self.steps(), *self.groups]))


SINGLY: Final = Plan(ORDER, tuple(frozenset({name}) for name in ORDER))
"""One optimization after the other."""
TOGETHER: Final = Plan(("all of them",), (frozenset(ORDER),))
"""Everything off, and everything on."""


class _Words:
    """Text like that of logs and code; never the same twice, and the same in each run."""

    def __init__(self) -> None:
        self._random = random.Random(5)
        letters = "etaoinshrdlucmfwypvbgk"
        self._words = ["".join(self._random.choices(letters, k=self._random.randint(2, 9))) for _ in range(4_000)]

    def text(self, size: int) -> str:
        lines: list[str] = []
        while sum(map(len, lines)) < size:
            words = self._random.choices(self._words, k=9)
            lines.append(f"{self._random.randint(1, 999)}: {' '.join(words[:5])} = {words[5]}({', '.join(words[6:])})")
        return "\n".join(lines)[:size]


def _tools(words: _Words) -> list[dict[str, Any]]:
    """Returns about 20 KB of declarations."""
    tools: list[dict[str, Any]] = []
    for number in range(24):
        properties = {
            f"argument_{at}": {"type": "string", "description": words.text(90).replace("\n", " ")} for at in range(5)
        }
        parameters = {"type": "object", "properties": properties, "required": ["argument_0"]}
        name = TOOL if not number else f"tool_{number}"
        tools.append({"type": "function", "name": name, "description": words.text(200), "parameters": parameters})
    return tools


def _picture(seed: int) -> dict[str, Any]:
    """Returns a user's message with a screenshot of about 60 KB."""
    out = BytesIO()
    noise = Image.frombytes("RGB", (160, 120), random.Random(seed).randbytes(160 * 120 * 3))
    noise.resize((1024, 768), Image.Resampling.BICUBIC).save(out, "JPEG", quality=70)
    url = f"data:image/jpeg;base64,{b64encode(out.getvalue()).decode()}"
    return {"role": "user", "content": [{"type": "input_image", "image_url": url}]}


class _Conversation:
    """One setup's conversation with one model."""

    def __init__(self, session: Session, model: str, tools: Sequence[Any], instructions: str) -> None:
        self.times = Timed()
        self._session = session
        self._model = model
        self._body: dict[str, Any] = {"model": model, "tools": tools, "instructions": instructions}
        self._last = ""
        """The response that the next turn goes on from."""
        self._call = ""
        """The call that it has to answer."""

    async def begin(self) -> None:
        """Builds the history."""
        words = _Words()
        # Counted here, since not every upstream counts tokens.
        built = pairs = images = 0
        while built < HISTORY:
            items: list[Any] = self._answer(words)
            if self._model == CHAT and images < _IMAGES:
                items.append(_picture(images))
                images += 1
            for _ in range(_PER_CREATE):
                if built >= HISTORY:
                    break
                pairs += 1
                call = {"call_id": f"call_old_{pairs}", "name": TOOL, "arguments": f'{{"argument_0":"{pairs}"}}'}
                items.append({"type": "function_call", **call})
                output = {"call_id": call["call_id"], "output": words.text(_PIECE)}
                items.append({"type": "function_call_output", **output})
                built += vocabulary.count(output["output"]) + _AROUND
            await self._turn(items)

    async def late_turn(self, number: int) -> None:
        """Makes the turn once more, and notes its times."""
        words = _Words()
        items = self._answer(words)
        if self._model == CHAT:
            items.append(_picture(1_000 + number))
        stands = self._call, self._last
        first, whole = await self._turn(items)
        self._call, self._last = stands
        self.times.first.append(first * 1e3)
        self.times.whole.append(whole * 1e3)

    def _answer(self, words: _Words) -> list[Any]:
        """Returns the output that the model waits for."""
        if not self._call:
            return [{"role": "user", "content": "Find the bug."}]
        return [{"type": "function_call_output", "call_id": self._call, "output": words.text(_PIECE)}]

    async def _turn(self, items: list[Any]) -> tuple[float, float]:
        began = time.perf_counter()
        stream = await self._session.create(input=items, previous_response_id=self._last or None, **self._body)
        first = 0.0
        async for event in stream:
            if not first and event.kind in _FIRST:
                first = time.perf_counter()
        whole = time.perf_counter()
        self._last = stream.id
        self._call = next(item.function_call.call_id for item in stream.output if item.HasField("function_call"))
        return first - began, whole - began


async def _measure(
    plan: Plan, addresses: dict[frozenset[str], str], model: str, turns: int, told: Callable[[str], object]
) -> Figure:
    words = _Words()
    tools, instructions = _tools(words), words.text(8 * 1024)
    async with AsyncExitStack() as stack:
        conversations: dict[frozenset[str], _Conversation] = {}
        for off, address in addresses.items():
            session = await stack.enter_async_context(connect(address))
            conversations[off] = _Conversation(session, model, tools, instructions)
            await conversations[off].begin()
            told(f"{model}: histories")
        for number in range(-_WARM, turns):
            for conversation in conversations.values():
                await conversation.late_turn(number)
            told(f"{model}: turns")
        for conversation in conversations.values():
            # The first ones load what is loaded once.
            del conversation.times.first[:_WARM], conversation.times.whole[:_WARM]
    medians = {
        off: (statistics.median(each.times.first), statistics.median(each.times.whole))
        for off, each in conversations.items()
    }
    first = conversations[_ALL_ON].times.first
    low, _, high = statistics.quantiles(first, n=4) if turns > 1 else (0.0, 0.0, 0.0)
    pairs = list(zip(conversations[plan.steps()[0]].times.first, first, strict=True))
    return Figure(
        model,
        tuple(medians[off] for off in plan.steps()),
        tuple(medians[off] for off in plan.groups),
        (high - low) / 2,
        tuple(listed(paired_bootstrap(pairs, lambda off, on: 1 - on / off))),
    )


def measure(plan: Plan, turns: int, told: Callable[[str], object]) -> list[Figure]:
    """Measures the setups of a plan, in front of token ids and of a chat API.

    Args:
        plan: What is switched off.
        turns: Turns of each setup and model.
        told: Takes what goes on, after each step of `steps`.
    """
    with ExitStack() as stack:
        behind = stack.enter_context(upstreams())
        addresses: dict[frozenset[str], str] = {}
        for off in plan.setups():
            addresses[off] = stack.enter_context(server(behind, off)).addresses["grpc"]
            told("servers")
        return [uvloop.run(_measure(plan, addresses, model, turns, told)) for model in _MODELS]


def steps(plan: Plan, turns: int) -> int:
    """Returns how often a measurement tells what goes on."""
    setups = len(plan.setups())
    return setups + len(_MODELS) * (setups + _WARM + turns)


def table(order: Sequence[str], figure: Figure) -> str:
    """Returns a figure as a table in Markdown."""
    lines = ["| | TTFT | turn | alone off: TTFT | turn |", "|---|---|---|---|---|"]
    first, whole = figure.steps[0]
    lines.append(f"| everything off | {first:.1f} ms | {whole:.1f} ms | | |")
    for name, step, alone in zip(order, figure.steps[1:], figure.alone, strict=True):
        lines.append(f"| + {name} | {step[0]:.1f} ms | {step[1]:.1f} ms | {alone[0]:.1f} ms | {alone[1]:.1f} ms |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m turnwire.bench.ablation",
        description=f"Measures a late turn after {HISTORY:,} tokens of history with each optimization of the server "
        "switched off. Fakes that answer at once stand in for the model.",
    )
    parser.add_argument("--turns", type=int, default=TURNS, help=f"turns of each setup and model [{TURNS}]")
    parser.add_argument("--together", action="store_true", help="only everything off, and everything on")
    parser.add_argument("--out", type=Path, help="result file, JSON")
    parser.add_argument("--picture", type=Path, help="SVG that gets the waterfalls")
    given = parser.parse_args()
    if not 1 <= given.turns <= 100_000:
        parser.error("--turns: expected a number from 1 to 100000")
    return given


def main() -> int:
    """Measures, prints tables, and writes the file and the picture that are named."""
    given = _arguments()
    stoppable()
    plan = TOGETHER if given.together else SINGLY
    with measuring("ablation", typed("ablation"), given.out) as measured:
        with bar(steps(plan, given.turns), "upstreams") as told:
            figures = measure(plan, given.turns, told)
        measured.figures["order"] = plan.names
        measured.figures["figures"] = [asdict(figure) for figure in figures]
    for figure in figures:
        print(f"\n{figure.model}, {HISTORY:,} tokens of history, medians of {given.turns}:\n")
        print(table(plan.names, figure))
        better = spread(taken(figure.saved), 100)
        print(f"\nTTFT {better}% better with everything on (half the quartile distance {figure.spread:.1f} ms)")
    print(f"\nload {measured.load_before:.1f} before, {measured.load_after:.1f} after, on {os.cpu_count()} cores")
    if given.picture is not None:
        # Behind the measurement: the plot library takes seconds to load.
        from turnwire.bench.report.plots.ablation import draw

        given.picture.write_text(draw(plan.names, figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
