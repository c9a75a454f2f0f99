"""Long chains of short turns: does the upstream still get all of it, turn after turn?

Above it: the command, where it is asked for. Below it: `measuring`, for processes, and `playing`. Nothing is timed;
the question is from which turn on a gateway drops what was said, and whether it says so.
"""

from __future__ import annotations

from typing import Any, Final

from turnwire.bench.fakes.upstream import TOKENS, Said, digest, words
from turnwire.bench.peers.clients import Client
from turnwire.bench.peers.conversations import history
from turnwire.bench.peers.playing import BROKEN, Watch

SIZE: Final = 1024
"""Bytes of text in each new message."""


async def chain(client: Client, watch: Watch, turns: int) -> dict[str, Any]:
    """Plays a chain of stored responses until it is over, or refused, and returns how it went: `turns` played, the
    `messages` that the upstream got last, how many it had to get, and from which turn on (1 is the first) it got
    something else, in `wrong_from`, or why there was no answer, in `refused`. When cancelled, the client has to be
    closed."""
    said: list[Said] = []
    text = "".join(words(TOKENS))
    previous = ""
    found: dict[str, Any] = {"turns": turns}
    await watch.take()
    for turn in range(1, turns + 1):
        new = history(SIZE, turn)
        said += new
        try:
            answer = await client.ask(client.request(new, previous, store=True))
        except BROKEN as error:
            return found | {"turns": turn, "refused": f"{type(error).__name__}: {error}"[:500]}
        seen = await watch.take()
        found |= {"messages": seen.most, "expected": len(said)}
        if seen.digest != digest(said):
            found.setdefault("wrong_from", turn)
        previous = answer.id
        said.append(Said("assistant", text))
    return found
