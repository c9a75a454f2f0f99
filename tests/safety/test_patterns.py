"""Patterns: which can be used, how long their matches are, and what a match begins with."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.server.policy.safety.patterns import MAX_SOURCE, PatternError, compile_pattern, read_pattern


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("a*", "write a number such as {0,50} in place of '*'"),
        ("(?:ab)+", "in place of '+'"),
        ("x{2,}", "'{2,}' needs a second number"),
        ("^a", "has an anchor"),
        ("a$", "has an anchor"),
        (r"\Aa", "has an escape that is not known"),
        ("(?i:a)", "has a group that is not known"),
        ("(?P<name>a)", "has a group that is not known"),
        (r"(a)\1", "is no pattern of RE2"),
        ("a(?=b)", "is no pattern of RE2"),
        ("a(", "is no pattern of RE2: missing )"),
        ("[a", "is no pattern of RE2: missing ]"),
        ("a?", "can match nothing at all"),
        ("a|", "can match nothing at all"),
        (r"\b", "can match nothing at all"),
        (".{1000}", "can match 4000 bytes"),
        ("a" * (MAX_SOURCE + 1), "is longer than"),
        ("naïve", "without 'ï', write 'i'"),
        ("a\u200bb", "leave it out"),
    ],
)
def test_patterns_that_cannot_be_used_are_told_why(source: str, complaint: str) -> None:
    with pytest.raises(PatternError, match=re.escape(complaint)):
        read_pattern(source)


@pytest.mark.parametrize(
    ("source", "width"),
    [
        (r"\bkill(?:ed|ing)?\b", 7),
        (r"\d{4}[ -]?\d{4}", 9),
        ("(ab|c){2,3}?d??", 7),
        (r"[[:alpha:]]\x41\x{1F600}\pL\p{Greek}", 17),
        (r"[]a]\.", 2),
        (r"[^]a]", 4),
        ("[a-ж]", 4),
        (r"[\W]", 4),
        ("ж", 4),
    ],
)
def test_a_pattern_knows_its_longest_match(source: str, width: int) -> None:
    assert read_pattern(source).width == width


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", r"\w", r"\b", "[^a]"])
SOURCES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda ways: f"(?:{'|'.join(ways)})"),
        st.tuples(inner, st.sampled_from(["?", "{2}", "{0,2}", "{1,3}"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(SOURCES, st.text("ab -", max_size=8))
def test_every_match_of_any_pattern_is_known_by_its_beginning(source: str, text: str) -> None:
    try:
        pattern = read_pattern(source)
    except PatternError:
        return
    whole = re.compile(source)
    beginnings = compile_pattern(pattern.beginnings + r"\z")
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            if whole.fullmatch(text, start, end) is None:
                continue
            if source.count(r"\b") and whole.fullmatch(text[:end] + text[end : end + 1], start, end) is None:
                continue
            assert end - start <= pattern.width
            for seen in range(start + 1, end):
                found = beginnings.search(text[:seen].encode(), start)
                assert found is not None, (source, text, start, seen, end)
                # The leftmost is the longest, and may be longer.
                assert found.start() <= start
