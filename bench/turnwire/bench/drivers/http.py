"""HTTP: the whole conversation in each request, or chained through the store; with event streams, or with whole answers
where nothing is to be streamed.

Above it: the registry. Below it: `official` and aiohttp.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from turnwire.bench.drivers import official
from turnwire.bench.drivers.port import Conversation, Failed, New, Target, Turn
from turnwire.bench.drivers.sockets import Sockets
from turnwire.bench.scenario.compiling import Rollout

_HEADERS: Final = {"content-type": "application/json", "accept": "text/event-stream"}
_DATA: Final = b"data: {"


class Http:
    """Plays conversations as requests of their own."""

    def __init__(self, target: Target, rollout: Rollout, *, chained: bool, kept: bool = True) -> None:
        """Takes where the server is, the rollout, whether turns name the response before them or resend everything,
        and whether connections are kept or new for each."""
        self._url = f"{target.http}/v1/responses"
        self._tls = target.tls()
        self._rollout = rollout
        self._chained = chained
        self._kept = kept
        self._sockets = Sockets()
        self._http: aiohttp.ClientSession | None = None

    async def open(self, conversations: int) -> None:
        """Makes a pool; and a connection for each conversation, where they are kept. See `Driver`."""
        connector = aiohttp.TCPConnector(
            limit=0, force_close=not self._kept, ssl=self._tls, socket_factory=self._sockets.make
        )
        self._http = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        if self._kept:
            # As a running client's: the handshake belongs to no turn.
            requests = [
                await self._http.get(f"{self._url.removesuffix('/responses')}/models") for _ in range(conversations)
            ]
            for request in requests:
                await request.read()

    def conversation(self, name: str) -> Conversation:
        """Begins a conversation; see `Driver`."""
        assert self._http is not None
        if self._chained:
            return _Chained(self._http, self._url, self._rollout)
        return _Stateless(self._http, self._url, self._rollout)

    async def close(self) -> None:
        """Disconnects; see `Driver`."""
        if self._http is not None:
            await self._http.close()
        await self._sockets.gone()


class _Conversation:
    def __init__(self, http: aiohttp.ClientSession, url: str, rollout: Rollout) -> None:
        self._http = http
        self._url = url
        self._rollout = rollout
        self._settings: dict[str, Any] = official.settings(rollout) | {"stream": not rollout.output.done_only}

    def _begin(self) -> Turn:
        turn = Turn(counts=official.asked(self._rollout) if self._rollout.output.done_only else {})
        turn.send()
        return turn

    async def _play(self, turn: Turn, body: dict[str, Any], output: list[Any] | None = None) -> str:
        """Posts a body and reads the answer; returns the response's id and collects its finished items."""
        async with self._http.post(self._url, data=official.encode(body), headers=_HEADERS) as response:
            if response.status != 200:
                raise Failed(f"HTTP {response.status}: {(await response.text())[:500]}")
            if self._rollout.output.done_only:
                answer = await response.read()
                ended, said = official.take_answer(turn, answer, time.perf_counter())
                if output is not None:
                    output += said
                return ended
            rest, ended = b"", ""
            while piece := await response.content.readany():
                now = time.perf_counter()
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if not line.startswith(_DATA):
                        continue
                    event = official.decode(line[6:])
                    if output is not None and event.type == "response.output_item.done":
                        output.append(event.item.copy())
                    if official.take(turn, event, now) and event.response is not None:
                        ended = event.response.id
            if not ended:
                raise Failed("the stream ended before its response")
            return ended


class _Stateless(_Conversation):
    """Sends the whole conversation each time, reasoning included, as clients do that let nothing be stored."""

    def __init__(self, http: aiohttp.ClientSession, url: str, rollout: Rollout) -> None:
        super().__init__(http, url, rollout)
        include = [*self._settings.get("include", ()), "reasoning.encrypted_content"]
        self._settings |= {"store": False, "include": include}
        self._items: list[Any] = official.history(rollout)

    async def turn(self, new: Sequence[New]) -> Turn:
        turn = self._begin()
        self._items += official.items(new)
        output: list[Any] = []
        await self._play(turn, self._settings | {"input": self._items}, output)
        self._items += output
        return turn

    def fork(self, name: str) -> Conversation:
        forked = _Stateless(self._http, self._url, self._rollout)
        forked._items = list(self._items)
        return forked


class _Chained(_Conversation):
    """Sends what is new, and names the stored response before it."""

    def __init__(self, http: aiohttp.ClientSession, url: str, rollout: Rollout, previous: str = "") -> None:
        super().__init__(http, url, rollout)
        self._settings["store"] = True
        self._previous = previous

    async def turn(self, new: Sequence[New]) -> Turn:
        turn = self._begin()
        items = official.items(new)
        if self._previous:
            body = self._settings | {"input": items, "previous_response_id": self._previous}
        else:
            body = self._settings | {"input": official.history(self._rollout) + items}
        self._previous = await self._play(turn, body)
        return turn

    def fork(self, name: str) -> Conversation:
        return _Chained(self._http, self._url, self._rollout, self._previous)
