from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.engine.chat.custom_input import CustomInput

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def decode(arguments: str, cuts: list[int] | None = None) -> str:
    decoder = CustomInput()
    text, at = "", 0
    for cut in [*sorted(cuts or []), len(arguments)]:
        text += decoder.feed(arguments[at:cut])
        at = max(at, cut)
    return text + decoder.finish()


@given(TEXT, st.booleans(), st.lists(st.integers(0, 60), max_size=10))
def test_the_input_comes_out_wherever_the_arguments_are_cut(text: str, ascii_only: bool, cuts: list[int]) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    assert decode(arguments, [min(cut, len(arguments)) for cut in cuts]) == text


def test_input_is_passed_on_before_the_arguments_are_whole() -> None:
    decoder = CustomInput()
    assert decoder.feed(' {"inp') == ""
    assert decoder.feed('ut" : "one') == "one"
    assert decoder.feed("\\") == ""
    assert decoder.feed("ntwo") == "\ntwo"


@pytest.mark.parametrize("arguments", ["*** Begin Patch", "{'input': 1}", '{"input": 5}', '["x"]', '{"other":"x"}'])
def test_arguments_of_another_form_are_the_input_as_they_stand(arguments: str) -> None:
    assert decode(arguments) == arguments
    assert decode(arguments, list(range(len(arguments)))) == arguments


def test_an_input_behind_other_members_is_found() -> None:
    assert decode('{"why": "because", "input": "x\\ny"}', [3, 9]) == "x\ny"


def test_half_a_surrogate_pair_becomes_a_replacement() -> None:
    assert decode('{"input":"a\\ud83d"}') == "a\ufffd"
    assert decode('{"input":"a\\ud83d\\u0041"}', [15, 19]) == "a\ufffdA"


def test_broken_escapes_are_kept_as_they_stand() -> None:
    assert decode('{"input":"a\\qb\\uzzzzc"}') == "a\\qb\\uzzzzc"


def test_arguments_cut_short_give_what_was_certain() -> None:
    assert decode('{"input":"abc\\u00') == "abc"
    assert decode('{"inp') == '{"inp'
