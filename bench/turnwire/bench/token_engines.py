"""What this server adds to the time to the first token in front of a token engine, beside asking the engine directly.

Three processes: a fake of vLLM's gRPC server, which samples at once; this server in front of it, rendering harmony; and
this one, with the client. Chained turns of growing histories go through the server, and requests with as many ids go to
the engine directly, interleaved. Run with `python -m turnwire.bench.token_engines`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Final

import uvloop

from turnwire.client import Session, connect
from turnwire.server.engine.tokens.opening import open_token_engine
from turnwire.server.engine.tokens.port import Sampling, TokenDelta, TokenEnd, TokenRequest
from turnwire.server.engine.tokens.vllm_grpc import VllmGrpcEngine
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.prompt.segments import EMPTY, Rendered, Segment
from turnwire.server.session.chunks import EngineFailure
from turnwire.server.testing import make_services, serving

HISTORIES: Final = (1, 100, 1024)
"""History at the start of a turn, in KB of text."""

_WORDS: Final = "the quick brown fox jumps over the lazy dog and reads one more line of the log "
_ANSWER: Final = "<|channel|>final<|message|>Done.<|return|>"
_MARKS: Final = 3
"""Ids of the answer before its text."""
_SERVE: Final = "serve"


@dataclass(frozen=True, slots=True)
class AddedTtft:
    """Medians for one size of history, in milliseconds."""

    kilobytes: int
    prompt_tokens: int
    direct_ms: float
    """From asking the engine to the first id of text, by the adapter that the server uses."""
    through_ms: float
    """From the client's create to its first piece of text."""

    @property
    def added_ms(self) -> float:
        """What the way through the server costs."""
        return self.through_ms - self.direct_ms


@contextmanager
def _process(*command: str) -> Generator[str]:
    """Runs a process that tells its port in its first line, and yields its address."""
    running = subprocess.Popen([sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdin is not None
    assert running.stdout is not None
    try:
        yield f"127.0.0.1:{json.loads(running.stdout.readline())['port']}"
    finally:
        running.stdin.close()
        running.kill()
        running.wait()
        running.stdout.close()


async def _serve(engine: str) -> None:
    opened = await open_token_engine(
        VllmGrpcEngine(engine), HarmonyRenderer(), "harmony", TokenTable.from_tiktoken(vocabulary.encoding())
    )
    async with serving(make_services((opened,))) as address:
        print(json.dumps({"port": int(address.rpartition(":")[2])}), flush=True)
        await asyncio.Event().wait()


class _Direct:
    """Takes one pass straight from the engine."""

    def __init__(self) -> None:
        self.first = 0.0
        self._marks = _MARKS
        self.over = asyncio.Event()

    def output(self, delta: TokenDelta) -> None:
        # The marks before the text are the model's time, on either way.
        self._marks -= len(delta.ids)
        if self._marks < 0:
            self.first = self.first or time.perf_counter()

    def ended(self, outcome: TokenEnd | EngineFailure) -> None:
        assert isinstance(outcome, TokenEnd), outcome
        self.over.set()


class _Chain:
    """One conversation, and requests of its size."""

    def __init__(self, session: Session, engine: VllmGrpcEngine, kilobytes: int) -> None:
        self.kilobytes = kilobytes
        self.tokens = 0
        self.through: list[float] = []
        self.direct: list[float] = []
        self._session = session
        self._engine = engine
        self._last = ""
        self._number = 0
        self._prompt: Rendered = EMPTY

    async def begin(self) -> None:
        # In pieces, as tool outputs would be; one message of a megabyte is another question.
        text = (_WORDS * (1024 // len(_WORDS) + 1))[:1024]
        for at in range(0, self.kilobytes, 256):
            pieces = [{"role": "user", "content": text} for _ in range(min(256, self.kilobytes - at))]
            await self._turn(pieces)
        self._prompt = EMPTY.extend(Segment(vocabulary.encode(_WORDS) * (self.tokens // 17 + 1)))

    async def go_on(self) -> None:
        self.through.append(await self._turn(_WORDS))
        await self._ask()

    async def _turn(self, given: str | list[dict[str, str]]) -> float:
        began = time.perf_counter()
        stream = await self._session.create(
            model="tiny",
            input=given,
            previous_response_id=self._last or None,
            lane=f"kb{self.kilobytes}",
            store=False,
        )
        first = 0.0
        async for _ in stream.text_deltas():
            first = first or time.perf_counter()
        await stream.until_done()
        self._last = stream.id
        self.tokens = stream.usage.input_tokens if stream.usage else 0
        return first - began

    async def _ask(self) -> None:
        self._number += 1
        sink = _Direct()
        # The history's bytes are kept, as the server keeps them; what is new is encoded for the first time.
        prompt = self._prompt.extend(Segment(vocabulary.encode(_WORDS)))
        began = time.perf_counter()
        self._engine.start(TokenRequest(f"{self.kilobytes}-{self._number}", prompt, Sampling()), sink)
        await sink.over.wait()
        self.direct.append(sink.first - began)


async def _measure(server: str, engine: str, histories: Sequence[int], turns: int) -> list[AddedTtft]:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(connect(server))
        direct = VllmGrpcEngine(engine)
        stack.push_async_callback(direct.aclose)
        chains = [_Chain(session, direct, kilobytes) for kilobytes in histories]
        for chain in chains:
            await chain.begin()
        # Interleaved, so that whatever else the machine does falls on all alike.
        for _ in range(turns):
            for chain in chains:
                await chain.go_on()
        return [
            AddedTtft(
                each.kilobytes,
                each.tokens,
                statistics.median(each.direct) * 1e3,
                statistics.median(each.through) * 1e3,
            )
            for each in chains
        ]


def measure(histories: Sequence[int] = HISTORIES, turns: int = 100) -> list[AddedTtft]:
    """Measures the added time to the first token.

    Args:
        histories: Sizes of history at the start, in KB.
        turns: Turns measured per size.
    """
    ids = [str(token) for token in vocabulary.encoding().encode(_ANSWER, allowed_special="all")]
    fake = ("turnwire.bench.fakes.vllm_grpc", "--quiet", "--context", "4000000", "--ids", *ids)
    with _process(*fake) as engine, _process("turnwire.bench.token_engines", _SERVE, engine) as server:
        return uvloop.run(_measure(server, engine, histories, turns))


if __name__ == "__main__":
    if sys.argv[1:2] == [_SERVE]:
        uvloop.run(_serve(sys.argv[2]))
    else:
        for figure in measure():
            print(json.dumps(asdict(figure) | {"added_ms": round(figure.added_ms, 3)}))
