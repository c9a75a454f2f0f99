"""Measures what the packaged example rules cost: per streamed token, and per request. Run it as a program.

Everything but the core and the rules is left out: no socket, no engine. Each figure is the least of several rounds,
since a shared machine only ever adds to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import count

from turnwire.server.policy.port import RequestPolicy
from turnwire.server.policy.prepare import Preparer
from turnwire.server.policy.safety.opening import open_safety
from turnwire.server.policy.safety.rules_file import load_safety_file
from turnwire.server.policy.safety.screening import ScreeningPolicy
from turnwire.server.session.chunks import Channel, TextChunk
from turnwire.server.session.context import SessionConfig
from turnwire.server.session.effects import Prepare
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.screens import Safety
from turnwire.server.session.session import Session
from turnwire.server.session.toolsets import NO_TOOLS
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.ids import IdSource
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role
from turnwire.v1.response_pb2 import Input, ResponseCreate

TEXT = (
    "The function reads each line of the file, drops what it does not know, and keeps a count of the rest; where the"
    " number 4096 is met, the caller may pipe more into it, or build the list anew. "
)
ROUNDS = 7
TOKENS = 20_000


def main() -> None:
    """Prints all figures."""
    config = load_safety_file(files("turnwire.server.policy.safety").joinpath("example.toml").read_text(), {})
    opened = open_safety(config)
    assert opened.screener is not None
    words = TEXT.split(" ")
    print("core, per streamed token of one word:")
    bare = least(partial(stream, words, None, 1))
    bare_by_four = least(partial(stream, words, None, 4))
    for name, safety in (("gate", opened.safety), ("observe", replace(opened.safety, gate=False))):
        guarded = least(partial(stream, words, safety, 1))
        by_four = least(partial(stream, words, safety, 4)) - bare_by_four
        print(f"  {name}: {bare:.2f} µs without, {guarded:.2f} µs with; four at a time {by_four:.2f} µs more each")
    checks = Preparer(lambda name: name, SessionLimits(), count=lambda text: len(text) // 4)
    screening = ScreeningPolicy(checks, opened.screener)
    print("checks of a request, without and with:")
    for size in (100, 1_000, 10_000, 100_000, 1_000_000):
        text = (TEXT * (size // len(TEXT) + 1))[:size]
        off, on = least(partial(prepare, checks, text)), least(partial(prepare, screening, text))
        print(f"  {size:>9,} bytes: {off:8.1f} µs, {on:8.1f} µs; {(on - off) / size * 1_000:.2f} µs more per KB")


def least(measure: Callable[[], float]) -> float:
    """Returns the least of several measurements."""
    return min(measure() for _ in range(ROUNDS))


def stream(words: Sequence[str], safety: Safety | None, at_once: int) -> float:
    """Streams tokens through the core, and returns the microseconds of each."""
    numbers = count(1)
    config = SessionConfig("s", "", IdSource(lambda size: next(numbers).to_bytes(size, "big")), 0.0, safety=safety)
    session = Session(config, 0.0)
    create = ResponseCreate(model="m", input=Input(text="hello"))
    session.receive(0.0, ConnectRequest(request_id="1", create=create))
    checks = Preparer(lambda name: name, SessionLimits(), count=len)
    for effect in session.effects():
        if isinstance(effect, Prepare):
            session.prepared(0.0, effect.handle, checks.prepare(effect))
    session.effects()
    chunks = [TextChunk(Channel.TEXT, " " + words[n % len(words)]) for n in range(TOKENS)]
    batches = [chunks[n : n + at_once] for n in range(0, TOKENS, at_once)]
    started = time.perf_counter()
    for batch in batches:
        session.engine_output(0.0, 1, batch)
        while session.pull(0.0) is not None:
            pass
    return (time.perf_counter() - started) / TOKENS * 1e6


def prepare(policy: RequestPolicy, text: str) -> float:
    """RequestPolicy a request with one message, and returns its microseconds."""
    item = Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=text)))
    request = Prepare(1, [item], ResponseCreate(model="m"), NO_TOOLS, frozenset(), len(text))
    times = max(3, 200_000 // len(text))
    started = time.perf_counter()
    for _ in range(times):
        policy.prepare(request)
    return (time.perf_counter() - started) / times * 1e6


if __name__ == "__main__":
    main()
