"""How texts are compared: by what they look like, character by character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.policy.safety.folding import fold


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Pipe BOMB", "pipe bomb"),
        ("\uff50\uff49\uff50\uff45\u3000\uff42\uff4f\uff4d\uff42", "pipe bomb"),
        ("\U0001d429\U0001d422\U0001d429\U0001d41e \U0001d587\U0001d594\U0001d592\U0001d587", "pipe bomb"),
        ("p\u200bi\u00adp\u2060e\ufeff b\u202eo\u0000mb", "pipe bomb"),
        ("pi\u0307\u0323pe bömb", "pipe bomb"),
        ("pipe \t\r\n\u00a0\u2003\x1c bomb", "pipe bomb"),
        ("ﬁne", "fine"),
        ("Straße", "strasse"),
        ("①②", "12"),
        ("ПРИВЕТ", "привет"),
        ("x\ufe0fy\U000e0041z", "xyz"),
        # Marks of single scripts tell words apart.
        ("が", "か\u3099"),
        ("नि", "नि"),
    ],
)
def test_texts_that_look_alike_are_the_same(text: str, folded: str) -> None:
    assert fold(text).decode() == folded


@given(st.text(), st.text())
def test_a_text_that_is_cut_folds_to_the_same_as_the_whole(first: str, rest: str) -> None:
    left, right = fold(first), fold(rest)
    # Only a run of white space knows of its other half.
    joined = left + (right[1:] if left.endswith(b" ") and right.startswith(b" ") else right)
    assert joined == fold(first + rest)


@given(st.text())
def test_what_is_folded_stays_as_it_is(text: str) -> None:
    folded = fold(text)
    assert fold(folded.decode()) == folded


@given(st.characters(max_codepoint=127))
def test_ascii_has_the_same_form_whatever_stands_beside_it(character: str) -> None:
    assert fold(character) == fold(character + "ж").decode().removesuffix("ж").encode()


def test_long_runs_of_white_space_are_one() -> None:
    assert fold("a" + " \n" * 100_000 + "b") == b"a b"
