"""Long chains: a thousand turns, a hundred thousand segments, and what they keep in memory."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import style_of
from turnwire.server.engine.chat.history import History
from turnwire.server.policy.prepare import Preparer
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.segments import EMPTY as NO_TOKENS
from turnwire.server.prompt.segments import Segment
from turnwire.server.session.budget import Budget, SharedBytes
from turnwire.server.session.conversations import Conversations
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.transcript import EMPTY, Entry, Origin
from turnwire.server.testing import make_services

from .fakes import LOOP, LoopingTokens, scripted_engine, token_engine
from .talk import Talk, calls_of, output_for

DEEP = 100_000


def test_a_chain_of_a_hundred_thousand_segments_is_counted_walked_and_freed() -> None:
    transcript = EMPTY
    for number in range(DEEP):
        transcript = transcript.extend([Entry(b"x", Origin.INPUT, 1, mark=number.to_bytes(16, "big"))], frozenset())
    assert transcript.length == transcript.tokens == DEEP
    assert sum(1 for _ in transcript.walk()) == DEEP
    shared = SharedBytes(Budget())
    shared.hold(transcript)
    assert shared.total == transcript.bytes
    shared.release(transcript)
    assert shared.total == 0
    # Freed in one go: the interpreter must not recurse into each parent.
    del transcript
    gc.collect()


def test_what_renderers_keep_of_such_a_chain_is_freed_too() -> None:
    tokens = NO_TOKENS
    style = style_of(ChatEngineConfig("http://localhost/v1"), ChatModel("m"))
    history = None
    transcript = EMPTY
    for _ in range(DEEP):
        tokens = tokens.extend(Segment([1]))
        history = History(style, history, b"x", (), None, started=True)
        transcript = transcript.extend([], frozenset())
        transcript.rendering = (tokens, history)
    assert tokens.length == DEEP
    del tokens, history, transcript
    gc.collect()


async def test_of_a_thousand_turns_the_newest_are_found_and_all_are_kept() -> None:
    services = make_services([scripted_engine(LOOP)], limits=SessionLimits(max_responses=16))
    services.budget = Budget()
    services.conversations = known = Conversations(bytes(32), budget=services.budget)
    talk = Talk(services)
    done = await talk.create(input="begin", store=False)
    first = talk.response_id
    previous: list[str] = []
    for _ in range(1_000):
        previous.append(talk.response_id)
        done = await talk.create(input=[output_for(calls_of(done)[0])], store=False)
    session = talk.runner.session
    assert session.find(first) is None
    assert session.find(previous[-1]) is not None
    assert session.gauges().responses == 16
    newest = session.find(talk.response_id)
    assert newest is not None
    # Unlisted responses are no longer found; what they said is still part of the conversation.
    assert newest.transcript.length == 1 + 1_000 * 3 + 2
    with pytest.raises(AssertionError, match="previous_response_not_found"):
        await talk.create(input="x", previous_response_id=first)
    talk.leave()
    # Known by what was said in it, until that is forgotten too.
    assert services.budget.shared.total == known.kept_bytes > 0
    while known.shed():
        pass
    assert services.budget.shared.total == 0


async def test_a_conversation_over_the_sessions_memory_is_refused_by_name_and_stays_usable() -> None:
    services = make_services([scripted_engine(LOOP)], limits=SessionLimits(max_state_bytes=100_000))
    talk = Talk(services)
    done = await talk.create(input="begin")
    with pytest.raises(AssertionError, match="context_length_exceeded"):
        await talk.create(input=[output_for(calls_of(done)[0], "x" * 100_000)])
    assert (await talk.create(input=[output_for(calls_of(done)[0])])).continuable
    talk.leave()


@pytest.mark.parametrize("kind", ["scripted", "tokens"])
async def test_a_hundred_thousand_tokens_cost_less_than_a_megabyte_beside_their_items(kind: str) -> None:
    engine = scripted_engine(LOOP) if kind == "scripted" else token_engine(LoopingTokens())
    services = make_services([engine])
    services.policy = Preparer(services.engines.resolve, services.limits, count=vocabulary.count)
    services.count_tokens = vocabulary.count
    talk = Talk(services)
    done = await talk.create(input="begin", store=False)
    for _ in range(10):
        done = await talk.create(input=[output_for(calls_of(done)[0])], store=False)
    text = " ".join(f"line {number} of a file" for number in range(330))
    talk.events.clear()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tokens, items = 0, 0
    while tokens < 100_000:
        output = output_for(calls_of(done)[0], f"{tokens}: {text}")
        done = await talk.create(input=[output], store=False)
        talk.events.clear()
        state = talk.runner.session.find(talk.response_id)
        assert state is not None
        new = [*state.input, *state.output]
        tokens += sum(entry.tokens for entry in new)
        items += sum(len(entry.data) for entry in new)
        del state, new
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert (kept - items) / tokens * 100_000 < 1_000_000
    # What the server says that it keeps is near what it does.
    assert 0.6 * kept < talk.runner.session.gauges().state_bytes < 1.6 * kept
    talk.leave()
