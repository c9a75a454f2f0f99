"""Prompts as JSON text: what was written for one turn is not written again."""

from __future__ import annotations

import json

from turnwire.server.engine.tokens.json_ids import JsonIds
from turnwire.server.prompt.segments import EMPTY, Rendered, Segment

OPENING = Segment([7, 8])


def said(prompt: Rendered, count: int, first: int = 100_000) -> Rendered:
    return prompt.extend(Segment(range(first, first + count)))


def test_a_prompt_is_the_array_of_its_ids() -> None:
    ids = JsonIds()
    long = said(EMPTY, 1000)
    for prompt in (EMPTY, said(EMPTY, 1), long, said(said(long, 3), 300), said(long, 5).extend(OPENING), long):
        for _ in range(2):
            assert json.loads(ids.array(prompt)) == prompt.join().tolist()


def test_a_turn_writes_what_is_new_however_its_answer_came_to_stand_in_the_prompt() -> None:
    ids = JsonIds()
    chain = said(EMPTY, 300)
    for turn in range(200):
        before = ids.encoded
        prompt = said(chain, 12).extend(OPENING)
        assert json.loads(ids.array(prompt)) == prompt.join().tolist()
        if turn:
            assert ids.encoded - before <= 12 + 30 + 2 * len(OPENING)
        # As it was sampled, behind the opening; or said anew, in its place.
        assert prompt.parent is not None
        chain = said(prompt if turn % 2 else prompt.parent, 30)


def test_a_fork_writes_short_segments_again_and_long_ones_never() -> None:
    ids = JsonIds()
    base = said(said(EMPTY, 5000), 10)
    for turn in range(5):
        ids.array(said(said(base, 5), turn + 1))
    assert ids.encoded < 5000 + 5 * (10 + 5 + 6)


def test_no_more_text_is_kept_than_was_allowed() -> None:
    ids = JsonIds(max_bytes=20_000)
    prompts = [said(said(EMPTY, 1000, first), 1) for first in range(100_000, 110_000, 1000)]
    for prompt in prompts:
        ids.array(prompt)
    before = ids.encoded
    for prompt in prompts[:5]:
        assert json.loads(ids.array(prompt)) == prompt.join().tolist()
    assert ids.encoded - before >= 5000
