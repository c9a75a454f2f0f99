"""However a text is cut, the same is found in it, and nothing of a match leaves before it is whole."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnwire.server.policy.safety.folding import fold
from turnwire.server.policy.safety.matcher import Matcher, Terms
from turnwire.server.policy.safety.patterns import Pattern, read_pattern
from turnwire.server.policy.safety.rules import Category
from turnwire.server.policy.safety.screener import RuleOutput, RuleScreener
from turnwire.server.session.screens import SILENCE, Hit, Tails
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role

PATTERNS = (
    r"\bab(?:a|bb)?\b",
    r"b{2,3}[ -]?a",
    r"(?:ab|ba ){1,2}c",
    r"\Bc\b ?a",
    r"[^ab]c{0,2}a",
    "(?:a|)(?:b|c?)ca",
    "é?c.c"[2:],
    r"ж\w? a",
)
LITERALS = ("abba", "a b", "ca", "Straße", "жb", "c")
CATEGORIES = (
    *(Category(f"pattern {n}", Terms((), (read_pattern(source),))) for n, source in enumerate(PATTERNS)),
    *(Category(f"word {n}", Terms((literal,), ())) for n, literal in enumerate(LITERALS)),
    *(Category(f"part {n}", Terms((literal,), (), whole_words=False)) for n, literal in enumerate(LITERALS)),
)
SCREENER = RuleScreener(CATEGORIES)
MATCHER = Matcher([category.terms for category in CATEGORIES])
LETTERS = "abc  -_ABßжé\u200b\u0301\n\uff11"
TEXTS = st.lists(
    st.one_of(st.text(LETTERS, max_size=8), st.sampled_from((*LITERALS, "abb", "bbb-a", "ba ba c", "ab"))), max_size=6
).map("".join)


def names(hits: Sequence[Hit]) -> set[str]:
    return {hit.category for hit in hits}


def output(tails: Tails = SILENCE.model) -> RuleOutput:
    screen = SCREENER.output(tails)
    assert screen is not None
    return screen


def found_in(*pieces: str) -> set[str]:
    screen = output()
    found = set[str]()
    for piece in pieces:
        found |= names(screen.text(piece)[1])
    return found | names(screen.end()[1])


def truth(text: str) -> set[str]:
    """What is found in a whole text at once."""
    data = fold(text)
    data = data if data.endswith(b" ") or not data else data + b" "
    return {CATEGORIES[place].name for place in MATCHER.find(data, 0, final=True)}


def message(text: str, role: Role.ValueType = Role.ROLE_USER) -> Item:
    return Item(message=Message(role=role, content=MessageContent(text=text)))


@given(TEXTS, st.data())
def test_any_cutting_of_a_text_finds_what_the_whole_holds(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert found_in(*pieces) == truth(text)


@given(TEXTS)
def test_a_text_that_comes_by_single_characters_finds_what_the_whole_holds(text: str) -> None:
    assert found_in(*text) == truth(text)


@given(TEXTS)
def test_an_item_of_the_input_finds_what_the_whole_text_holds(text: str) -> None:
    _, hits = SCREENER.follow(SILENCE, SCREENER.screen(message(text)))
    assert names(hits) == truth(text)


@given(TEXTS, st.data())
def test_a_match_that_is_cut_over_two_items_is_found(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    first, rest = message(text[:cut]), message(text[cut:])
    screened = (*SCREENER.screen(first), *SCREENER.screen(rest))
    _, together = SCREENER.follow(SILENCE, screened)
    # Over two turns it is the same, with what is remembered between them.
    overlap, before = SCREENER.follow(SILENCE, SCREENER.screen(first))
    _, after = SCREENER.follow(overlap, SCREENER.screen(rest))
    assert names(together) == names(before) | names(after)
    assert names(together) >= truth(text)


@given(st.lists(TEXTS, max_size=5))
def test_what_is_remembered_of_many_items_is_what_is_remembered_of_the_last_words(texts: list[str]) -> None:
    overlap = SILENCE
    for text in texts:
        overlap, _ = SCREENER.follow(overlap, SCREENER.screen(message(text)))
    at_once, _ = SCREENER.follow(SILENCE, [one for text in texts for one in SCREENER.screen(message(text))])
    assert overlap == at_once
    assert max(map(len, overlap.client)) <= MATCHER.width + 5


@given(TEXTS, TEXTS, st.data())
def test_output_goes_on_from_what_was_said_in_an_earlier_turn(first: str, rest: str, data: st.DataObject) -> None:
    screen = output()
    found = names(screen.text(first)[1]) | names(screen.end()[1])
    later = output(screen.tails)
    for piece in rest:
        found |= names(later.text(piece)[1])
    found |= names(later.end()[1])
    assert found >= truth(f"{first.rstrip()} {rest.lstrip()}") | truth(first) | truth(rest)


def matches(text: str) -> set[tuple[int, int]]:
    """All matches of a folded text, found by going through all of its stretches."""
    spans = {(a, b) for a in range(len(text)) for b in range(a + 1, len(text) + 1)}
    patterns = [re.compile(source, re.ASCII) for source in PATTERNS]
    literals = {fold(literal).decode() for literal in LITERALS}
    return {(a, b) for a, b in spans if text[a:b] in literals or any(p.fullmatch(text, a, b) for p in patterns)}


@given(TEXTS)
@example("x ab")
@example("ba ba c")
@example("bbb-a abba ")
def test_nothing_of_a_match_leaves_before_it_is_whole(text: str) -> None:
    folded = fold(text.lstrip()).decode()
    for start, end in matches(folded):
        for seen in range(start + 1, end):
            screen = output()
            screen.text(folded[:seen])
            assert screen.waiting() >= len(folded[start:seen].encode()), (folded, start, seen, end)


@pytest.mark.parametrize("source", PATTERNS)
def test_the_longest_match_is_no_longer_than_said(source: str) -> None:
    pattern: Pattern = read_pattern(source)
    assert 0 < pattern.width <= 20
