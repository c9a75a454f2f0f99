"""However an output is split, the items are the same; and no output raises."""

from __future__ import annotations

import functools
import json
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
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", f"{BAR}DSML{BAR}"),
]
# Formats that write arguments as bare text have pieces of their own: all pieces together rarely make a call of one.
MARKED = {
    "qwen-coder": [
        *(
            "<tool_call>",
            "</tool_call>",
            "<function=f>",
            "<function=g>",
            "</function>",
            "</parameter>",
            "</function",
            "=",
        ),
        *("<parameter=s>", "<parameter=n>", "<parameter=j>", "\n<parameter=s>\n", "\n</parameter>\n", "<parameter="),
    ],
    "glm": [
        *("<tool_call>", "</tool_call>", "f", "<tool_call>f", "<tool_call>g\n", "</arg_value>", "</arg_", "<arg_key>"),
        *("<arg_key>s</arg_key><arg_value>", "<arg_key>n</arg_key>\n<arg_value>", "<arg_key>j</arg_key><arg_value>"),
    ],
    "dsml": [
        *(f"<{BAR}DSML{BAR}function_calls>", f"</{BAR}DSML{BAR}function_calls>", f'<{BAR}DSML{BAR}invoke name="f">'),
        *(f'<{BAR}DSML{BAR} invoke name="f">', f"</{BAR}DSML{BAR}invoke>", f"</{BAR}DSML{BAR}parameter>"),
        *(f'<{BAR}DSML{BAR}parameter name="{name}">' for name in "snj"),
        *(f'<{BAR}DSML{BAR}parameter name="n" string="{told}">' for told in ("true", "false")),
        *(f'<{BAR}DSML{BAR}invoke name="g"/>', f"<{BAR}DSML{BAR}", f"</{BAR}"),
    ],
}
CLOSED = {
    "qwen-coder": "\n</parameter>\n</function>\n</tool_call>",
    "glm": "</arg_value></tool_call>",
    "dsml": f"</{BAR}DSML{BAR}parameter>\n</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}function_calls>",
}
VALUES = [
    "Paris",
    "1",
    "1.5e3",
    "true",
    "None",
    "null",
    '{"a": [1]}',
    "{'a': True}",
    '"',
    "\\",
    "\n",
    " ",
    "é",
    "x" * 70,
]
SCHEMAS = {
    "f": json.dumps(
        {
            "properties": {
                "s": {"type": "string"},
                "n": {"type": ["integer", "null"]},
                "j": {"anyOf": [{"type": "object"}, {"type": "string"}]},
            }
        }
    )
}
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


@pytest.mark.parametrize("output_format", MARKED)
@pytest.mark.parametrize("reason", ["stop", "length"])
@given(data=st.data(), places=cuts)
@settings(max_examples=300, deadline=None)
def test_any_split_of_marked_calls_gives_the_same_items(
    run: Any, output_format: str, reason: str, data: st.DataObject, places: list[int]
) -> None:
    pieces = st.sampled_from([*MARKED[output_format], *VALUES, "<think>", "</think>"])
    text = data.draw(st.lists(pieces, max_size=24).map("".join))

    def read(pieces: Sequence[Any]) -> list[Any]:
        return list(run(parser_for(output_format, table(), tools=SCHEMAS, schemas=SCHEMAS), pieces, reason))

    whole = read([text])
    assert read(split(text, places)) == whole
    assert read(list(text)) == whole
    by_ids = read([[byte] for byte in text.encode()])
    assert [item.brief() for item in by_ids] == [item.brief() for item in whole]
    for item in whole:
        item.text.encode()


@pytest.mark.parametrize("output_format", MARKED)
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_calls_whose_last_marks_came_have_json_for_arguments(run: Any, output_format: str, data: st.DataObject) -> None:
    # A call is closed by marks spelt as those that opened it.
    pieces = [piece for piece in MARKED[output_format] if f"{BAR} " not in piece]
    text = data.draw(st.lists(st.sampled_from([*pieces, *VALUES]), max_size=24).map("".join))
    closed = parser_for(output_format, tools=SCHEMAS, schemas=SCHEMAS)
    for item in run(closed, [text + CLOSED[output_format]]):
        if item.kind == "call":
            assert item.ended
            assert isinstance(json.loads(item.text), dict)


keys = st.text(alphabet="abcé_-.0 ", min_size=1, max_size=5).filter(str.strip).map(str.strip)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
words = st.text(alphabet='ab<>/=\n "\\é🌍{}[]0tn', max_size=12) | st.sampled_from(
    ["null", "12", '{"a": 1}', "</tool_call>."]
)
values = scalars | words | st.lists(scalars | words, max_size=3) | st.dictionaries(keys, scalars | words, max_size=3)


@pytest.mark.parametrize("output_format", MARKED)
@given(arguments=st.dictionaries(keys, values, max_size=4), places=cuts)
@settings(max_examples=200, deadline=None)
def test_what_is_written_by_the_rules_of_a_format_is_read_as_it_was(
    run: Any, output_format: str, arguments: dict[str, Any], places: list[int]
) -> None:
    schema = {"properties": {name: {"type": _type(value)} for name, value in arguments.items()}}
    schemas = {"f": json.dumps(schema)}
    text = "Hi.\n" + _written(output_format, arguments)
    for pieces in ([text], split(text, places), list(text)):
        items = run(parser_for(output_format, tools=schemas, schemas=schemas), pieces)
        assert [item.kind for item in items] == ["text", "call"]
        assert (items[1].name, json.loads(items[1].text)) == ("f", arguments)


def _type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _written(output_format: str, arguments: dict[str, Any]) -> str:
    shown = {name: value if isinstance(value, str) else json.dumps(value) for name, value in arguments.items()}
    match output_format:
        case "qwen-coder":
            inner = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in shown.items())
            return f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"
        case "glm":
            inner = "".join(
                f"<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>\n" for name, value in shown.items()
            )
            return f"<tool_call>f\n{inner}</tool_call>"
        case _:
            told = {name: str(isinstance(value, str)).lower() for name, value in arguments.items()}
            inner = "".join(
                f'<{BAR}DSML{BAR}parameter name="{name}" string="{told[name]}">{value}</{BAR}DSML{BAR}parameter>\n'
                for name, value in shown.items()
            )
            calls = f'<{BAR}DSML{BAR}invoke name="f">\n{inner}</{BAR}DSML{BAR}invoke>\n'
            return f"<{BAR}DSML{BAR}function_calls>\n{calls}</{BAR}DSML{BAR}function_calls>"


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
        opened = {
            "hermes": "<tool_call>",
            "mistral": "[TOOL_CALLS]",
            "pythonic": "[f(",
            "qwen-coder": "<tool_call><function=f><parameter=a>",
            "glm": "<tool_call>f<arg_key>a</arg_key><arg_value>",
            "dsml": f'<{BAR}DSML{BAR}invoke name="f"><{BAR}DSML{BAR}parameter name="a">',
        }.get(output_format, "")
        run(parser_for(output_format), [opened + text])
