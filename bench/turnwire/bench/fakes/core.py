"""What all fake engines have in common: scripts to play, a prefix cache, and a line protocol to direct them by.

Above it: one module per protocol. Below it: nothing. An engine reads commands as JSON lines from standard input and
writes what happens as JSON lines to standard output, so that whoever started it can wait for facts instead of time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

BLOCK: Final = 16
"""Ids in a block of the prefix cache, as in vLLM."""


class Script(msgspec.Struct, forbid_unknown_fields=True):
    """What to do with one request."""

    ids: list[int] = msgspec.field(default_factory=lambda: [11, 12, 13])
    """What is sampled."""
    chunks: list[int] = []
    """Sizes of the first chunks; the rest is sent one by one."""
    finish: str = "stop"
    matched_id: int | None = None
    matched_stop: str | None = None
    hold: bool = False
    """Whether to wait for `release` before the first chunk, as a long prefill would."""
    hold_after: int | None = None
    """Sampled ids after which to wait for `release`."""
    status: tuple[str, str] | None = None
    """A status (gRPC's name, or HTTP's number) and its text, instead of any output."""
    status_after: int | None = None
    """With `status`: how many ids come before it."""
    retry_after: str = ""
    die_after: int | None = None
    """Sampled ids after which the process is gone."""
    completes: int = 1
    """How often the end is reported; 0 leaves it out."""
    logprob: float | str = -0.5
    """Of every token; `nan`, `inf`, or `gaps`, which leaves every other out."""
    linger: bool = False
    """Whether the stream stays open after the end was reported."""
    garbage: bytes = b""
    """HTTP only: what is sent before the output; `html` makes that the type of the answer."""


class Command(msgspec.Struct, forbid_unknown_fields=True):
    """A line of standard input."""

    script: Script | None = None
    """Played by the next request that has none; requests without a script get a plain one."""
    release: bool = False
    """Lets everything that waits go on."""
    clear: bool = False
    """Forgets scripts that were not played, and what the cache holds; what was said before is not of what follows."""
    crash: bool = False
    """Ends the process at once."""


class Run:
    """One request being played."""

    def __init__(self, director: Director, request_id: str, prompt: Sequence[int], script: Script) -> None:
        self.request_id = request_id
        self.script = script
        self.prompt_tokens = len(prompt)
        self.cached_tokens = director.cache.match(prompt) if director.cache else 0
        self.aborted = asyncio.Event()
        self._director = director
        self._prompt = prompt

    async def deltas(self) -> AsyncIterator[list[int]]:
        """Yields the sampled ids in chunks; ends early when the request is aborted."""
        script = self.script
        if script.hold:
            await self._wait()
        at = 0
        sizes = deque(script.chunks)
        while at < len(script.ids) and not self.aborted.is_set():
            size = sizes.popleft() if sizes else 1
            delta = script.ids[at : at + size]
            at += len(delta)
            yield delta
            if script.die_after is not None and at >= script.die_after:
                os._exit(9)
            if script.status is not None and script.status_after is not None and at >= script.status_after:
                return
            if script.hold_after is not None and at >= script.hold_after:
                script.hold_after = None
                await self._wait()
        if self._director.cache and not self.aborted.is_set():
            self._director.cache.keep([*self._prompt, *script.ids])

    def logprobs(self, ids: Sequence[int]) -> tuple[list[int], list[float]]:
        """Returns the ids whose log-probability the engine gives, and the values."""
        said = self.script.logprob
        if said == "gaps":
            return list(ids[::2]), [-0.5] * len(ids[::2])
        return list(ids), [float(said)] * len(ids)

    async def _wait(self) -> None:
        self._director.say("waiting", request_id=self.request_id)
        released = asyncio.ensure_future(self._director.released.wait())
        aborted = asyncio.ensure_future(self.aborted.wait())
        try:
            await asyncio.wait((released, aborted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            released.cancel()
            aborted.cancel()


class PrefixCache:
    """Remembers whole blocks of ids, and never answers for the last id of a prompt."""

    def __init__(self) -> None:
        self._blocks: set[int] = set()

    def match(self, prompt: Sequence[int]) -> int:
        """Returns how many ids at the beginning are known."""
        chain = count = 0
        for at in range(0, (len(prompt) - 1) // BLOCK * BLOCK, BLOCK):
            chain = hash((chain, tuple(prompt[at : at + BLOCK])))
            if chain not in self._blocks:
                break
            count += BLOCK
        return count

    def keep(self, ids: Sequence[int]) -> None:
        """Remembers what was computed."""
        chain = 0
        for at in range(0, len(ids) // BLOCK * BLOCK, BLOCK):
            chain = hash((chain, tuple(ids[at : at + BLOCK])))
            self._blocks.add(chain)


class Director:
    """Reads commands, hands out scripts, reports what happens."""

    def __init__(self, *, quiet: bool, ids: Sequence[int] = ()) -> None:
        """Starts with no script.

        Args:
            quiet: Report nothing but the port, and have no prefix cache: for measurements.
            ids: What is sampled where no script says else; by default three ids without meaning.
        """
        self._plain = list(ids) or Script().ids
        self.cache = None if quiet else PrefixCache()
        self.released = asyncio.Event()
        self._quiet = quiet
        self._scripts: deque[Script] = deque()
        self._runs: dict[str, Run] = {}

    def begin(self, request_id: str, prompt: Sequence[int], **seen: Any) -> Run:
        """Starts to play a request and reports it."""
        script = self._scripts.popleft() if self._scripts else Script(ids=self._plain)
        run = self._runs[request_id] = Run(self, request_id, prompt, script)
        self.say("request", request_id=request_id, prompt=list(prompt) if not self._quiet else [], **seen)
        return run

    def over(self, run: Run, how: str) -> None:
        """Ends a request and reports how."""
        self._runs.pop(run.request_id, None)
        self.say("over", request_id=run.request_id, how=how)

    def abort(self, request_id: str) -> bool:
        """Aborts a request by its id, as an RPC asks for."""
        self.say("abort", request_id=request_id)
        run = self._runs.get(request_id)
        if run is None:
            return False
        run.aborted.set()
        return True

    def say(self, event: str, **facts: Any) -> None:
        """Writes a line."""
        if self._quiet and event != "listening":
            return
        sys.stdout.buffer.write(msgspec.json.encode({"event": event, **facts}) + b"\n")
        sys.stdout.buffer.flush()

    async def obey(self) -> None:
        """Reads commands until standard input ends. Safe to cancel."""
        reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        decoder = msgspec.json.Decoder(Command)
        while line := await reader.readline():
            command = decoder.decode(line)
            if command.crash:
                os._exit(9)
            if command.clear:
                self._scripts.clear()
                self.cache = PrefixCache() if self.cache else None
                self.say("cleared")
            if command.script is not None:
                self._scripts.append(command.script)
                self.say("scripted")
            if command.release:
                self.released.set()
                self.released = asyncio.Event()
                self.say("released")
