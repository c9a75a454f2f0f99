"""The formats of open models: what well-formed and broken outputs become."""

from __future__ import annotations

from typing import Any

import pytest

from turnwire.server.prompt.parsing import FORMATS, ParsedCallDelta, UnknownFormatError, parser_for

SEP, BEGIN, END = (
    "<\uff5ctool\u2581sep\uff5c>",
    "<\uff5ctool\u2581call\u2581begin\uff5c>",
    "<\uff5ctool\u2581call\u2581end\uff5c>",
)
SECTION, SECTION_END = "<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"

WELL_FORMED: list[tuple[str, str, list[tuple[str, ...]]]] = [
    ("text", "Hello.", [("text", "Hello.")]),
    ("text", " Hello. \n", [("text", " Hello. \n")]),
    ("text", "<think>\nHm.\n</think>\n\nHi.", [("reasoning", "Hm."), ("text", "Hi.")]),
    ("text", "<think>\n\n</think>\n\nHi.", [("text", "Hi.")]),
    ("text", "<tool_call>{}</tool_call>", [("text", "<tool_call>{}</tool_call>")]),
    ("text", "a < b and <i>c</i>", [("text", "a < b and <i>c</i>")]),
    (
        "hermes",
        '<think>Hm.</think>\n\nI look.\n<tool_call>\n{"name": "f", "arguments": {"a": "}"}}\n</tool_call>',
        [("reasoning", "Hm."), ("text", "I look."), ("call", "f", '{"a": "}"}')],
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n'
        '<tool_call>{"arguments": {"b": 2}, "name": "g"}</tool_call>',
        [("call", "f", "{}"), ("call", "g", '{"b": 2}')],
    ),
    ("hermes", '<tool_call>{"name": "f"}</tool_call>after', [("call", "f", "{}"), ("text", "after")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', [("call", "f", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', [("call", "f", "{}")]),
    ("llama", '{"name": "f", "parameters": {"a": [1]}}', [("call", "f", '{"a": [1]}')]),
    (
        "llama",
        '{"type": "function", "name": "f", "parameters": {}}; {"name": "g", "parameters": {}}',
        [("call", "f", "{}"), ("call", "g", "{}")],
    ),
    ("llama", 'I look. <|python_tag|>{"name": "f", "parameters": {}}', [("text", "I look."), ("call", "f", "{}")]),
    ("llama", '{"capital": "Paris"}', [("text", '{"capital": "Paris"}')]),
    ("llama", '{"name": "Ada", "age": 36}', [("text", '{"name": "Ada", "age": 36}')]),
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]',
        [
            ("call", "f", "{}"),
            ("call", "g", "{}"),
        ],
    ),
    (
        "mistral",
        'Hi[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]12[ARGS]{}',
        [
            ("text", "Hi"),
            ("call", "f", '{"a": 1}'),
            ("call", "g", "{}"),
        ],
    ),
    ("mistral", "[THINK]Say [TOOL_CALLS].[/THINK]Hi", [("reasoning", "Say [TOOL_CALLS]."), ("text", "Hi")]),
    (
        "deepseek",
        f'{SECTION}{BEGIN}function{SEP}f\n```json\n{{"a": 1}}\n```{END}\n'
        f"{BEGIN}function{SEP}g\n```json\n{{}}\n```{END}{SECTION_END}",
        [("call", "f", '{"a": 1}'), ("call", "g", "{}")],
    ),
    ("deepseek", f'Hi{SECTION}{BEGIN}f{SEP}{{"a": 1}}{END}{SECTION_END}', [("text", "Hi"), ("call", "f", '{"a": 1}')]),
    (
        "kimi",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>',
        [("call", "f", '{"a": 1}')],
    ),
    (
        "pythonic",
        "[f(a=1, b='x', c=[True, None]), g()]",
        [
            ("call", "f", '{"a": 1, "b": "x", "c": [true, null]}'),
            ("call", "g", "{}"),
        ],
    ),
    ("pythonic", "<|python_start|>[f(a={'é': \"(\"})]<|python_end|>", [("call", "f", '{"a": {"é": "("}}')]),
    ("pythonic", "```tool_code\nprint(f(a=1))\n```\nDone.", [("call", "f", '{"a": 1}'), ("text", "Done.")]),
    ("pythonic", "[a link](https://x) and [f(a=1)]", [("text", "[a link](https://x) and [f(a=1)]")]),
]


@pytest.mark.parametrize(("output_format", "text", "expected"), WELL_FORMED)
def test_well_formed_outputs_become_their_items(
    run: Any, output_format: str, text: str, expected: list[tuple[str, ...]]
) -> None:
    for pieces in ([text], list(text)):
        items = run(parser_for(output_format), pieces)
        assert [item.brief() for item in items] == expected
        assert all(item.ended for item in items)


BROKEN: list[tuple[str, str, list[tuple[str, ...]]]] = [
    ("hermes", "<tool_call>not json</tool_call>", [("text", "<tool_call>not json</tool_call>")]),
    ("hermes", '<tool_call>{"name": "", "arguments": {}}', [("text", '<tool_call>{"name": "", "arguments": {}}')]),
    ("hermes", '<tool_call>{"name": 7}</tool_call>', [("text", '<tool_call>{"name": 7}</tool_call>')]),
    ("hermes", "Use <tool_call> to call.", [("text", "Use <tool_call> to call.")]),
    ("hermes", "I look.\n<tool_call>\n", [("text", "I look.")]),
    ("hermes", "I look.\n<tool_c", [("text", "I look.\n<tool_c")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1', [("call", "f", '{"a": 1')]),
    # A forgotten mark, a brace too many, a call that ends early: the next one is found all the same.
    ("hermes", '<tool_call>{"name": "f", "arguments": {}}}\n</tool_call>ok', [("call", "f", "{}"), ("text", "ok")]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {}}\n<tool_call>{"name": "g"}</tool_call>',
        [
            ("call", "f", "{}"),
            ("call", "g", "{}"),
        ],
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {}} and a long text that goes on behind it',
        [
            ("call", "f", "{}"),
            ("text", "and a long text that goes on behind it"),
        ],
    ),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": </tool_call>x', [("call", "f", '{"a": '), ("text", "x")]),
    ("hermes", "<think>never closed", [("reasoning", "never closed")]),
    ("hermes", "no opening</think>\n\nHi", [("text", "no opening"), ("text", "Hi")]),
    ("hermes", "<think>a</think>b</think>c", [("reasoning", "a"), ("text", "b</think>c")]),
    ("llama", '{"name": "f", "par', [("text", '{"name": "f", "par')]),
    ("llama", "{}", [("text", "{}")]),
    ("llama", "<|python_tag|>print(1)", [("text", "<|python_tag|>print(1)")]),
    ("mistral", "[TOOL_CALLS] not json at all", [("text", "[TOOL_CALLS] not json at all")]),
    ("mistral", "Hi[TOOL_CALLS]", [("text", "Hi")]),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}}, oops', [("call", "f", "{}"), ("text", ", oops")]),
    ("deepseek", f'{BEGIN}f{SEP}{{"a": 1{END}x', [("call", "f", '{"a": 1'), ("text", "x")]),
    ("pythonic", "[f(a=open('x'))]", [("text", "[f(a=open('x'))]")]),
    ("pythonic", "[f(a=1", [("text", "[f(a=1")]),
    ("pythonic", "[f(a='\\ud800')]", [("text", "[f(a='\\ud800')]")]),
    ("pythonic", "[f(" + "[" * 3000 + "]" * 3000 + ")]", [("text", "[f(" + "[" * 3000 + "]" * 3000 + ")]")]),
]


@pytest.mark.parametrize(("output_format", "text", "expected"), BROKEN)
def test_broken_outputs_become_valid_items(
    run: Any, output_format: str, text: str, expected: list[tuple[str, ...]]
) -> None:
    for pieces in ([text], list(text)):
        assert [item.brief() for item in run(parser_for(output_format), pieces)] == expected


@pytest.mark.parametrize(
    ("output_format", "text", "expected"),
    [
        ("hermes", 'I look.\n<tool_call>\n{"name": "get_wea', [("text", "I look.")]),
        ("pythonic", '[f(a=1), g(b="x', [("call", "f", '{"a": 1}')]),
        ("llama", '{"name": "f", "par', [("text", '{"name": "f", "par')]),
    ],
)
def test_the_beginning_of_a_marked_call_that_was_cut_is_not_shown(
    run: Any, output_format: str, text: str, expected: list[tuple[str, ...]]
) -> None:
    assert [item.brief() for item in run(parser_for(output_format), list(text), "length")] == expected


def test_what_was_cut_has_no_end(run: Any) -> None:
    for text in ("Hello", "<think>Hm", '<tool_call>{"name": "f", "arguments": {"a": 1'):
        (item,) = run(parser_for("hermes"), [text], "length")
        assert not item.ended


def test_reasoning_that_the_prompt_opened_goes_on(run: Any) -> None:
    items = run(parser_for("hermes", prompt_text="<|im_start|>assistant\n<think>\n"), ["Hm.\n</think>\n\nHi"])
    assert [item.brief() for item in items] == [("reasoning", "Hm."), ("text", "Hi")]
    closed = parser_for("hermes", prompt_text="<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert [item.brief() for item in run(closed, ["Hi"])] == [("text", "Hi")]


def test_bare_calls_are_only_of_tools_on_offer(run: Any) -> None:
    for output_format, text in (("llama", '{"name": "f", "parameters": {}}'), ("pythonic", "[f()]")):
        assert [item.kind for item in run(parser_for(output_format, tools=["g"]), [text])] == ["text"]
        assert [item.kind for item in run(parser_for(output_format, tools=["f"]), [text])] == ["call"]


def test_arguments_are_said_as_they_arrive() -> None:
    parser = parser_for("hermes")
    parser.feed((), '<tool_call>{"name": "f", "arguments": ')
    for piece in ('{"a": "', "some ", "text", '"}'):
        deltas = [event for event in parser.feed((), piece) if isinstance(event, ParsedCallDelta)]
        assert [delta.text for delta in deltas] == [piece]


def test_a_models_own_call_ids_are_kept(run: Any) -> None:
    (item,) = run(parser_for("mistral"), ["[TOOL_CALLS]f[CALL_ID]abc123[ARGS]{}"])
    assert item.call_id == "abc123"


def test_a_call_whose_name_never_comes_is_text(run: Any) -> None:
    text = '<tool_call>{"arguments": {"a": "' + "x" * 70_000 + '"}, "name": "f"}</tool_call>'
    for pieces in ([text], [text[i : i + 999] for i in range(0, len(text), 999)]):
        assert [item.brief() for item in run(parser_for("hermes"), pieces)] == [("text", text)]


def test_half_characters_from_an_engine_become_question_marks(run: Any) -> None:
    (item,) = run(parser_for("text"), ["a\ud83cb"])
    assert item.text == "a?b"


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(UnknownFormatError, match="choose one of harmony, text, qwen-coder"):
        parser_for("xml")
    assert set(FORMATS) >= {"harmony", "hermes", "llama", "mistral", "deepseek", "pythonic"}


def test_ids_without_text_need_a_tokenizer() -> None:
    with pytest.raises(ValueError, match="give the parser the model's tokenizer"):
        parser_for("hermes").feed([1])
