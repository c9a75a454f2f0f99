"""What each optimization of a turn is good for: a late turn with everything off, with one more on at a time, with all.

Every setup is a real server in a process of its own, all of them beside each other and asked in turn, so that whatever
else the machine does falls on all alike. Behind them stand fakes that answer at once: what is measured is everything
but the model. The turn is made again and again from the same state of a conversation, as a fork of it, so that the
history stays as long as it is. Run with `python -m turnwire.bench.ablation [SVG]`.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import uvloop
from PIL import Image

from turnwire.bench.ablation_rig import CHAT, TOKENS, TOOL, server, upstreams
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

    @property
    def better(self) -> float:
        """The part of the time to the first token that is saved by all together."""
        return 1 - self.steps[-1][0] / self.steps[0][0]


def _setups() -> list[frozenset[str]]:
    """Returns what is off: in each step, then each alone; nothing twice."""
    steps = [frozenset(ORDER[done:]) for done in range(len(ORDER) + 1)]
    return list(dict.fromkeys([*steps, *(frozenset({name}) for name in ORDER)]))


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


async def _measure(addresses: dict[frozenset[str], str], model: str, turns: int) -> Figure:
    words = _Words()
    tools, instructions = _tools(words), words.text(8 * 1024)
    async with AsyncExitStack() as stack:
        conversations: dict[frozenset[str], _Conversation] = {}
        for off, address in addresses.items():
            session = await stack.enter_async_context(connect(address))
            conversations[off] = _Conversation(session, model, tools, instructions)
            await conversations[off].begin()
        for number in range(-2, turns):
            for conversation in conversations.values():
                await conversation.late_turn(number)
        for conversation in conversations.values():
            # The first two load what is loaded once.
            del conversation.times.first[:2], conversation.times.whole[:2]
    medians = {
        off: (statistics.median(each.times.first), statistics.median(each.times.whole))
        for off, each in conversations.items()
    }
    low, _, high = statistics.quantiles(conversations[_ALL_ON].times.first, n=4)
    return Figure(
        model,
        tuple(medians[frozenset(ORDER[done:])] for done in range(len(ORDER) + 1)),
        tuple(medians[frozenset({name})] for name in ORDER),
        (high - low) / 2,
    )


def measure(turns: int = TURNS) -> list[Figure]:
    """Measures all setups, in front of token ids and of a chat API.

    Args:
        turns: Turns of each setup and model.
    """
    with ExitStack() as stack:
        behind = stack.enter_context(upstreams())
        addresses = {off: stack.enter_context(server(behind, off)).addresses["grpc"] for off in _setups()}
        return [uvloop.run(_measure(addresses, model, turns)) for model in (TOKENS, CHAT)]


def table(figure: Figure) -> str:
    """Returns a figure as a table in Markdown."""
    lines = ["| | TTFT | turn | alone off: TTFT | turn |", "|---|---|---|---|---|"]
    first, whole = figure.steps[0]
    lines.append(f"| everything off | {first:.1f} ms | {whole:.1f} ms | | |")
    for name, step, alone in zip(ORDER, figure.steps[1:], figure.alone, strict=True):
        lines.append(f"| + {name} | {step[0]:.1f} ms | {step[1]:.1f} ms | {alone[0]:.1f} ms | {alone[1]:.1f} ms |")
    return "\n".join(lines)


def main() -> int:
    """Measures, prints tables, and draws the picture if a file is named."""
    loads = [os.getloadavg()[0]]
    figures = measure()
    loads.append(os.getloadavg()[0])
    for figure in figures:
        print(f"\n{figure.model}, {HISTORY:,} tokens of history, medians of {TURNS}:\n\n{table(figure)}")
        print(
            f"\nTTFT {figure.better:.0%} better with everything on (half the quartile distance {figure.spread:.1f} ms)"
        )
    print(f"\nload {loads[0]:.1f} before, {loads[1]:.1f} after, on {os.cpu_count()} cores")
    if len(sys.argv) > 1:
        # Behind the measurement: the plot library takes seconds to load.
        from turnwire.bench.ablation_picture import draw

        draw(figures, Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
