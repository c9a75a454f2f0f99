"""Models that repeat themselves without end: the work stays in proportion, the items do not depend on the pieces."""

from __future__ import annotations

from typing import Any

import pytest

from turnwire.server.prompt.parsing import parser_for
from turnwire.server.prompt.parsing.tagged import MOST_BLANKS, MOST_FALSE_CALLS

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


@pytest.mark.parametrize("blanks", [1, MOST_BLANKS - 1, MOST_BLANKS, MOST_BLANKS + 1, 3 * MOST_BLANKS])
@pytest.mark.parametrize("before", ["", "a", CALL, "<think>a"])
@pytest.mark.parametrize("behind", ["", "b", CALL, "</think>b"])
def test_blanks_before_a_mark_are_dropped_unless_there_is_no_end_of_them(
    run: Any, blanks: int, before: str, behind: str
) -> None:
    text = before + " " * blanks + behind
    whole = run(parser_for("hermes"), [text])
    for size in (1, 7, 600):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert run(parser_for("hermes"), pieces) == whole
    if before == "a" and behind == CALL:
        assert whole[0].text == ("a" + " " * blanks if blanks > MOST_BLANKS else "a")


@pytest.mark.parametrize(
    ("output_format", "text"),
    [
        ("hermes", "a" + " " * 60_000),
        ("hermes", CALL[:-12] + " " * 60_000),
        ("hermes", "<" * 60_000),
        ("hermes", "<tool_call>{" * 5_000),
        ("mistral", '[TOOL_CALLS][{"arguments":[' * 2_000),
        ("mistral", '[TOOL_CALLS][{"name":"f","arguments":{}}' + "," * 60_000),
        ("pythonic", "[" + "f(a=1)," * 8_000),
        ("pythonic", "[f(a=1)" + " " * 60_000),
        ("pythonic", "```tool_code\n" + "print(" * 10_000),
        ("llama", '{"name":"f","id":"' + "x" * 60_000),
    ],
)
@pytest.mark.timeout(20)
def test_endless_repetition_is_read_in_time(run: Any, output_format: str, text: str) -> None:
    whole = run(parser_for(output_format), [text])
    assert run(parser_for(output_format), [text[start : start + 4] for start in range(0, len(text), 4)]) == whole


def test_marks_that_no_call_follows_become_text_for_good(run: Any) -> None:
    marks = "<tool_call> " * MOST_FALSE_CALLS
    few = run(parser_for("hermes"), [marks[12:] + CALL])
    assert [item.kind for item in few] == ["text", "call"]
    many = run(parser_for("hermes"), [marks + CALL])
    assert [item.kind for item in many] == ["text"]
    assert many[0].text == marks + CALL
