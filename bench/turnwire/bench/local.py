"""Time to the first token of late turns on a real model: with a slot for each chain, without, and without any memory;
and with prompts that llama.cpp renders.

Runs the real core and runtime in this process over llama.cpp. Several chains take turns, as the lanes of a session do,
and share their instructions, as agents of a kind do: that is what makes it matter which slot a turn gets. Above it:
whoever prints the figures. Needs the extra `local`.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from turnwire.client import connect
from turnwire.client.session import Session
from turnwire.server.engine.local.config import LocalConfig
from turnwire.server.engine.local.engine import LocalEngine, find_speech
from turnwire.server.engine.local.llama import LlamaServer
from turnwire.server.engine.local.model import find_model
from turnwire.server.testing import make_services, serving

TURNS: Final = (2, 10, 50)
"""Turns to report."""

PINNED: Final = "a slot for each chain"
CHATTING: Final = "the same, prompts rendered by llama.cpp"
CHOSEN: Final = "llama.cpp chooses the slot"
FORGETFUL: Final = "nothing kept"

_T = TypeVar("_T")

_INSTRUCTIONS: Final = (
    "Answer in one short sentence. Never repeat yourself. Stay polite, and be exact about numbers. " * 8
)
_NEWS: Final = "The log of step {step} of lane {lane} says that {step} files were read and {lane} tests passed."


@dataclass(slots=True)
class LateTurns:
    """What turns took in one setup; samples by turn, of each chain and round, of that turn and the two before it."""

    setup: str
    seconds: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """Time to the first token, as the client sees it."""
    computed: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Tokens of the prompt that were not kept."""
    prompt: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Tokens of the prompt."""

    def late(self, turns: Sequence[int]) -> LateTurns:
        """Returns some turns, each with the two before it, except for the first, which computes everything."""

        def near(samples: dict[int, list[_T]]) -> dict[int, list[_T]]:
            return {
                turn: [each for at in range(max(2, turn - 2), turn + 1) for each in samples.get(at, ())]
                for turn in turns
            }

        return LateTurns(self.setup, near(self.seconds), near(self.computed), near(self.prompt))

    def ttft_ms(self, turn: int) -> float:
        """Returns the median time to the first token, in milliseconds."""
        return statistics.median(self.seconds[turn]) * 1000

    def row(self) -> str:
        """Returns the setup as a row of a table: medians in milliseconds, with the tokens of the prompt computed."""
        cells = [f"{self.ttft_ms(turn):,.0f} ({statistics.median(self.computed[turn]):.0f})" for turn in self.seconds]
        return f"| {self.setup} | {' | '.join(cells)} |"


async def _turn(session: Session, lane: int, number: int, last: str | None, found: LateTurns, model: str) -> str:
    began = time.perf_counter()
    stream = await session.create(
        lane=f"{hashlib.sha256(model.encode()).hexdigest()[:8]}-{lane}",
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


def _setup(config: LocalConfig) -> str:
    if not config.rendered:
        return CHATTING
    return PINNED if config.pinned else CHOSEN


async def _measure(turns: Sequence[int], chains: int, rounds: int, configs: Sequence[LocalConfig]) -> list[LateTurns]:
    """Runs all setups turn by turn, so that what else the machine does hits them alike."""
    engines: list[LocalEngine] = []
    for config in configs:
        file = find_model(config)
        llama = LlamaServer(config, file)
        speech = find_speech(config, file, llama)
        engines.append(LocalEngine(config, replace(file, name=_setup(config)), llama, speech))
        if not engines[1:]:
            # A second engine over the first one's model, for turns that are computed in whole. It has one slot, the
            # first, and leaves less there than the chain that has it left: the turn after it is not reported.
            forgetful = replace(config, reuse=False, slots=1)
            engines.append(LocalEngine(forgetful, replace(file, name=FORGETFUL), llama, speech))
    found = {setup: LateTurns(setup) for setup in (*map(_setup, configs), FORGETFUL)}
    setups = [_setup(config) for config in configs]
    try:
        async with serving(make_services(engines)) as address, connect(address) as session:
            for round_ in range(rounds):
                last: dict[tuple[str, int], str | None] = {}
                for number in range(1, max(turns) + 1):
                    before = last.get((PINNED, 0))
                    for setup in (*setups[number % len(setups) :], *setups[: number % len(setups)]):
                        for lane in range(chains):
                            parent = last.get((setup, lane))
                            last[setup, lane] = await _turn(session, lane, number, parent, found[setup], setup)
                    if not round_ and number in turns:
                        await _turn(session, 0, number, before, found[FORGETFUL], FORGETFUL)
    finally:
        for engine in engines:
            await engine.aclose()
    return [each.late(turns) for each in found.values()]


def measure(
    turns: Sequence[int] = TURNS, *, chains: int = 2, rounds: int = 3, slots: int = 2, threads: int = 1
) -> list[LateTurns]:
    """Measures late turns with slots of their own, with prompts or slots left to llama.cpp, and with nothing kept.

    Args:
        turns: The turns to look at; all up to the last are run, which takes minutes.
        chains: Conversations that take turns.
        rounds: How often all of it is run, but for turns of which nothing is kept, which are run once.
        slots: Chains whose state is kept.
        threads: Threads that compute. With as many as there are cores, anything else that runs spoils the figures.
    """
    base = LocalConfig(slots=slots, context=8192, threads=threads)
    configs = (base, replace(base, rendered=False), replace(base, pinned=False))
    return asyncio.run(_measure(turns, chains, rounds, configs))


if __name__ == "__main__":
    print("\n".join(each.row() for each in measure()))
