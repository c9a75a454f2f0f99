"""Time to the first token of late turns on a real model: with a slot for each chain, without, and without any memory.

Runs the real core and runtime in this process over llama.cpp. Several chains take turns, as the lanes of a session do,
and share their instructions, as agents of a kind do: that is what makes it matter which slot a turn gets. Above it:
whoever prints the figures. Needs the extra `local`.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from turnwire.client import connect
from turnwire.client.session import Session
from turnwire.server.engine.local.config import LocalConfig
from turnwire.server.engine.local.engine import LocalEngine
from turnwire.server.engine.local.llama import LlamaServer
from turnwire.server.engine.local.model import find_model
from turnwire.server.testing import make_services, serving

TURNS: Final = (2, 10, 50)
"""Turns to report."""

PINNED: Final = "a slot for each chain"
CHOSEN: Final = "llama.cpp chooses"
FORGETFUL: Final = "nothing kept"

_INSTRUCTIONS: Final = (
    "Answer in one short sentence. Never repeat yourself. Stay polite, and be exact about numbers. " * 8
)
_NEWS: Final = "The log of step {step} of lane {lane} says that {step} files were read and {lane} tests passed."


@dataclass(slots=True)
class LateTurns:
    """What turns took in one setup; samples by turn, one a chain."""

    setup: str
    seconds: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """Time to the first token, as the client sees it."""
    computed: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Tokens of the prompt that were not kept."""
    prompt: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Tokens of the prompt."""

    def ttft_ms(self, turn: int) -> float:
        """Returns the median time to the first token, in milliseconds."""
        return statistics.median(self.seconds[turn]) * 1000


async def _turn(session: Session, lane: int, number: int, last: str | None, found: LateTurns, model: str) -> str:
    began = time.perf_counter()
    stream = await session.create(
        lane=f"{model}-{lane}",
        model=model,
        instructions=_INSTRUCTIONS,
        input=_NEWS.format(step=number, lane=lane),
        previous_response_id=last,
        max_output_tokens=16,
        seed=1,
    )
    async for _ in stream.text_deltas():
        found.seconds.setdefault(number, []).append(time.perf_counter() - began)
        break
    response = await stream.get_final_response()
    usage = response.usage
    found.prompt.setdefault(number, []).append(usage.input_tokens)
    found.computed.setdefault(number, []).append(usage.input_tokens - usage.input_tokens_details.cached_tokens)
    return response.id


async def _measure(turns: Sequence[int], chains: int, config: LocalConfig) -> list[LateTurns]:
    file = find_model(config)
    llama = LlamaServer(config, file)
    engine = LocalEngine(config, replace(file, name="kept"), llama)
    # A second engine over the same model, for turns that are computed in whole beside those that are not. With one
    # slot, the first, it disturbs nobody: what it leaves there is a turn of the chain that has it.
    forgetful = LocalEngine(replace(config, reuse=False, slots=1), replace(file, name="forgotten"), llama)
    found, whole = LateTurns(PINNED if config.pinned else CHOSEN), LateTurns(FORGETFUL)
    last: list[str | None] = [None] * chains
    try:
        async with serving(make_services([engine, forgetful])) as address, connect(address) as session:
            for number in range(1, max(turns) + 1):
                if config.pinned and number in turns:
                    await _turn(session, 0, number, last[0], whole, "forgotten")
                for lane in range(chains):
                    last[lane] = await _turn(session, lane, number, last[lane], found, "kept")
    finally:
        await engine.aclose()
        await forgetful.aclose()
    return [found, whole] if config.pinned else [found]


def measure(turns: Sequence[int] = TURNS, *, chains: int = 2, slots: int = 2, threads: int = 1) -> list[LateTurns]:
    """Measures late turns with slots of their own, with slots that llama.cpp chooses, and with nothing kept.

    Args:
        turns: The turns to look at; all up to the last are run, which takes minutes.
        chains: Conversations that take turns.
        slots: Chains whose state is kept.
        threads: Threads that compute. With as many as there are cores, anything else that runs spoils the figures.
    """
    results: list[LateTurns] = []
    for pinned in (True, False):
        config = LocalConfig(slots=slots, context=8192, threads=threads, pinned=pinned)
        results += asyncio.run(_measure(turns, chains, config))
    return results
