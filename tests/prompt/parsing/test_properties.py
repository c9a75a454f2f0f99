"""However an output is split, the items are the same; and no output raises."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.parsing import FORMATS, TokenTable, parser_for

DIALECTS = [name for name in FORMATS if name != "harmony"]
BAR, BLANK = "\uff5c", "\u2581"
MARKS = [
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>", "<|im_end|>"),
    *("<|python_tag|>", "<|python_start|>", "<|python_end|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    *("<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"),
    *(
        f"<{BAR}tool{BLANK}{words}{BAR}>"
        for words in ("sep", f"calls{BLANK}begin", f"call{BLANK}begin", f"call{BLANK}end")
    ),
]
PIECES = [
    *MARKS,
    *('{"name": "f", "arguments": {"a": "é\\""}}', '{"arguments": {}, "name": "f"}', '{"name": "f", "parameters": '),
    *('"name"', ": ", '"f"', "{", "}", "[", "]", '"', "\\", ",", ";", "f", "(", ")", "a=1", "'"),
    *("[f(a=1), g(b='x')]", "print(", "```tool_code", "```", "```json\n", "function", "functions.f:0"),
    *("\n", " ", "Hello", "🌍", "日本", "<", "<|", "<to", "x" * 40),
]
outputs = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=14).map("".join)
cuts = st.lists(st.integers(0, 300), max_size=12)


@functools.cache
def table() -> TokenTable:
    """All bytes, marks as special tokens, and some words and halves of characters as tokens."""
    words = [
        b"Hello",
        b' {"',
        b'": "',
        b"}}",
        b"\xf0\x9f",
        b"\x8c\x8d",
        b"name",
        b"arguments",
        b"</",
        b"<tool",
        b">\n",
        b"f(a",
    ]
    pieces = [bytes([byte]) for byte in range(256)] + words
    first = len(pieces)
    return TokenTable([*pieces, *(mark.encode() for mark in MARKS)], {first + i: mark for i, mark in enumerate(MARKS)})


def split(whole: Any, places: Sequence[int]) -> list[Any]:
    ends = sorted(place % (len(whole) + 1) for place in places)
    return [whole[start:end] for start, end in zip([0, *ends], [*ends, len(whole)], strict=True)]


@pytest.mark.parametrize("output_format", DIALECTS)
@pytest.mark.parametrize("reason", ["stop", "length"])
@given(text=outputs, places=cuts)
@settings(max_examples=150, deadline=None)
def test_any_split_of_a_text_gives_the_same_items(
    run: Any, output_format: str, reason: str, text: str, places: list[int]
) -> None:
    whole = run(parser_for(output_format), [text], reason)
    assert run(parser_for(output_format), split(text, places), reason) == whole
    assert run(parser_for(output_format), list(text), reason) == whole
    for item in whole:
        item.text.encode()


@pytest.mark.parametrize("output_format", DIALECTS)
@pytest.mark.parametrize("reason", ["stop", "length"])
@given(ids=st.lists(st.integers(0, 300) | st.integers(256, 290), max_size=60), places=cuts)
@settings(max_examples=150, deadline=None)
def test_any_split_of_ids_gives_the_same_items(
    run: Any, output_format: str, reason: str, ids: list[int], places: list[int]
) -> None:
    whole = run(parser_for(output_format, table()), [ids], reason)
    assert run(parser_for(output_format, table()), split(ids, places), reason) == whole
    assert run(parser_for(output_format, table()), [[token] for token in ids], reason) == whole
    assert sum(item.tokens for item in whole) <= len(ids)


@pytest.mark.parametrize("output_format", DIALECTS)
@given(text=outputs)
@settings(max_examples=60, deadline=None)
def test_ids_and_text_say_the_same(run: Any, output_format: str, text: str) -> None:
    by_text = run(parser_for(output_format), [text])
    by_ids = run(parser_for(output_format, table()), [[byte] for byte in text.encode()])
    assert [item.brief() for item in by_ids] == [item.brief() for item in by_text]


SPECIAL = [199_998, 199_999, 200_002, 200_003, 200_005, 200_006, 200_007, 200_008, 200_012, 200_018, 2**32 - 1]
WORDS = [
    token
    for text in (
        "assistant",
        "analysis",
        "commentary",
        "final",
        " to=functions.f",
        " json",
        "code",
        '{"a": 1}',
        "🌍",
        "user",
    )
    for token in vocabulary.encode(text)
]
harmony_ids = st.lists(
    st.sampled_from(SPECIAL) | st.sampled_from(WORDS) | st.integers(0, 199_997) | st.integers(0, 255), max_size=80
)


@pytest.mark.parametrize("reason", ["stop", "length"])
@given(ids=harmony_ids, places=cuts)
@settings(max_examples=400, deadline=None)
def test_any_split_of_harmony_gives_the_same_items(run: Any, reason: str, ids: list[int], places: list[int]) -> None:
    whole = run(parser_for("harmony"), [ids], reason)
    assert run(parser_for("harmony"), split(ids, places), reason) == whole
    assert run(parser_for("harmony"), [[token] for token in ids], reason) == whole
    assert sum(item.tokens for item in whole) <= len(ids)


@given(prompt=harmony_ids, ids=harmony_ids)
@settings(max_examples=150, deadline=None)
def test_no_prompt_makes_a_parser_fail(run: Any, prompt: list[int], ids: list[int]) -> None:
    run(parser_for("harmony", prompt=prompt), [ids])


@given(text=st.text(alphabet="{}[]\"\\:,<>/ \nabcnamefT=()'", max_size=80))
@settings(max_examples=300, deadline=None)
def test_noise_never_raises(run: Any, text: str) -> None:
    for output_format in DIALECTS:
        opened = {"hermes": "<tool_call>", "mistral": "[TOOL_CALLS]", "pythonic": "[f("}.get(output_format, "")
        run(parser_for(output_format), [opened + text])
