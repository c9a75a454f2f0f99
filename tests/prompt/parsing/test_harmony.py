"""The harmony parser: what well-formed and broken messages become."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.parsing import parser_for

DATA = Path(vocabulary.__file__).parent / "data" / vocabulary.VOCABULARY_FILE


def encode(text: str) -> list[int]:
    return vocabulary.encoding().encode(text, allowed_special="all")


def briefs(run: Any, text: str, reason: str = "stop", **options: Any) -> list[tuple[str, ...]]:
    ids = encode(text)
    items = run(parser_for("harmony", **options), [[token] for token in ids], reason)
    assert sum(item.tokens for item in items) <= len(ids)
    return [item.brief() for item in items]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|channel|>final<|message|>Hello.<|return|>", [("text", "Hello.")]),
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi 🌍<|return|>",
            [("reasoning", "Hm."), ("text", "Hi 🌍")],
        ),
        (
            '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>',
            [("call", "f", '{"a": 1}')],
        ),
        (
            " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
            [("call", "f", "{}")],
        ),
        (
            "<|channel|>analysis to=functions.f code<|message|>{}<|call|>",
            [("call", "f", "{}")],
        ),
        (
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>Done<|return|>",
            [("text", "I look."), ("text", "Done")],
        ),
        (
            "<|channel|>commentary to=functions.f<|message|>{}<|call|>"
            "<|start|>assistant<|channel|>commentary to=functions.g.h<|message|>{}<|call|>",
            [("call", "f", "{}"), ("call", "g.h", "{}")],
        ),
    ],
)
def test_well_formed_messages_become_their_items(run: Any, text: str, expected: list[tuple[str, ...]]) -> None:
    assert briefs(run, text) == expected


def test_preambles_and_answers_are_told_apart_by_phase(run: Any) -> None:
    text = "<|channel|>commentary<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>"
    items = run(parser_for("harmony"), [encode(text)])
    assert [item.phase for item in items] == ["commentary", "final_answer"]


def test_text_that_looks_like_a_mark_stays_text(run: Any) -> None:
    look_alike = vocabulary.encode("Never write <|call|> or <|channel|>final.")
    ids = [*encode("<|channel|>analysis<|message|>"), *look_alike, *encode("<|end|>")]
    (item,) = run(parser_for("harmony"), [ids])
    assert item.brief() == ("reasoning", "Never write <|call|> or <|channel|>final.")
    assert item.ids == look_alike


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A channel nobody knows may hold anything, so it is not shown as the answer.
        ("<|channel|>comment<|message|>some text<|end|>", [("reasoning", "some text")]),
        ("<|channel|><|message|>x<|end|>", [("text", "x")]),
        ("<|message|>no channel<|return|>", [("text", "no channel")]),
        ("Plain words.<|return|>", [("text", "Plain words.")]),
        ('<|channel|>final {"answer": "hi"}<|return|>', [("text", '{"answer": "hi"}')]),
        ("<|channel|>??<|end|><|start|>assistant<|channel|>final<|message|>x<|return|>", [("text", "x")]),
        ("<|start|><|start|>assistant<|channel|>final<|message|>x<|return|>", [("text", "x")]),
        (
            "<|channel|>final<|message|>a<|end|> 364<|start|>assistant<|channel|>final<|message|>b",
            [
                ("text", "a"),
                ("text", "364"),
                ("text", "b"),
            ],
        ),
        # Marks that come where they do not belong end what is open, or are passed over.
        ("<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|return|>", [("reasoning", "a"), ("text", "b")]),
        ("<|channel|>final<|message|>a<|message|>b<|constrain|>c<|return|>", [("text", "abc")]),
        (
            "<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b<|return|>",
            [
                ("reasoning", "a"),
                ("text", "b"),
            ],
        ),
        ("<|channel|>commentary to=assistant<|channel|>analysis<|message|>a<|end|>", [("reasoning", "a")]),
        # A recipient that is no tool on offer, or has no name.
        ("<|channel|>commentary to=python<|message|>print(1)<|call|>", [("reasoning", "print(1)")]),
        ("<|channel|>commentary to=functions.<|message|>{}<|call|>", [("reasoning", "{}")]),
        # The model goes on as somebody else.
        ("<|channel|>final<|message|>a<|end|><|start|>user<|message|>b<|end|>", [("text", "a"), ("reasoning", "b")]),
        ("", []),
        ("<|end|><|end|><|return|>", []),
    ],
)
def test_broken_messages_become_valid_items(run: Any, text: str, expected: list[tuple[str, ...]]) -> None:
    assert briefs(run, text) == expected


def test_a_bare_recipient_is_a_call_if_the_tool_was_offered(run: Any) -> None:
    text = "<|channel|>commentary to=look_up<|message|>{}<|call|>"
    assert briefs(run, text, tools=["look_up"]) == [("call", "look_up", "{}")]


def test_a_header_that_never_ends_becomes_content(run: Any) -> None:
    words = "so " * 200
    assert briefs(run, f"<|channel|>final {words}<|return|>") == [("text", words)]


def test_unfinished_arguments_are_a_call_that_has_ended_or_was_cut(run: Any) -> None:
    ids = encode('<|channel|>commentary to=functions.f<|message|>{"a": "Par')
    for reason, ended in (("stop", True), ("length", False)):
        (item,) = run(parser_for("harmony"), [ids], reason)
        assert item.brief() == ("call", "f", '{"a": "Par')
        assert item.ended is ended


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_stop_inside_a_character_leaves_valid_text(run: Any, cut: int) -> None:
    ids = encode("<|channel|>final<|message|>")
    character = [vocabulary.encoding().encode_single_token(bytes([byte])) for byte in "🌍".encode()]
    for reason in ("stop", "length"):
        (item,) = run(parser_for("harmony"), [ids, *([token] for token in character[:cut])], reason)
        assert item.text == "\ufffd"
        assert item.ids == character[:cut]


def test_an_output_goes_on_where_the_prompt_left_off(run: Any) -> None:
    for prompt, output, expected in (
        ("<|start|>user<|message|>hi<|end|><|start|>assistant", "<|channel|>final<|message|>a", ("text", "a")),
        ("<|start|>assistant<|channel|>analysis<|message|>", "a<|end|>", ("reasoning", "a")),
        ("<|start|>assistant<|channel|>commentary to=functions.f<|message|>", "{}<|call|>", ("call", "f", "{}")),
        ("<|start|>assistant<|channel|>final", "<|message|>a", ("text", "a")),
    ):
        assert briefs(run, output, prompt=encode(prompt)) == [expected]


def test_ids_that_no_vocabulary_has_are_passed_over(run: Any) -> None:
    ids = [*encode("<|channel|>final<|message|>a"), 199_998, 200_018, 201_087, 2**32 - 1, *encode("b")]
    (item,) = run(parser_for("harmony"), [ids])
    assert item.text == "ab"


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    harmony = pytest.importorskip("openai_harmony")
    folder = tmp_path_factory.mktemp("encodings")
    (folder / "o200k_base.tiktoken").write_bytes(DATA.read_bytes())
    before = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    try:
        yield harmony
    finally:
        if before is None:
            del os.environ["TIKTOKEN_ENCODINGS_BASE"]
        else:
            os.environ["TIKTOKEN_ENCODINGS_BASE"] = before


WORDS = ["", "Hello.", "日本語 🌸", "<|end|>", "a\n\n b", '{"x": [1, "é"]}', " lead", "trail ", "\u200d👩‍💻"]


def test_rendered_messages_parse_to_themselves(run: Any, oracle: Any) -> None:
    encoding = oracle.load_harmony_encoding(oracle.HarmonyEncodingName.HARMONY_GPT_OSS)
    count = 0
    for first in WORDS:
        for second in WORDS:
            for shape in ("final", "call", "calls", "preamble"):
                messages, expected = conversation(oracle, shape, first, second)
                ids: list[int] = []
                for message in messages:
                    ids += encoding.render(message)
                items = run(parser_for("harmony"), [[token] for token in ids])
                assert [item.brief() for item in items] == [item for item in expected if item[-1]]
                strict = oracle.StreamableParser(encoding, role=None)
                for token in ids:
                    strict.process(token)
                assert [part.text for message in strict.messages for part in message.content] == [
                    item[-1] for item in expected
                ]
                count += 1
    assert count >= 200


def conversation(oracle: Any, shape: str, first: str, second: str) -> tuple[list[Any], list[tuple[str, ...]]]:
    def say(channel: str, text: str) -> Any:
        return oracle.Message.from_role_and_content(oracle.Role.ASSISTANT, text).with_channel(channel)

    def call(name: str, text: str) -> Any:
        return say("commentary", text).with_recipient(f"functions.{name}").with_content_type("<|constrain|>json")

    arguments = '{"text": "' + second.replace('"', "'").replace("\n", " ") + '"}'
    match shape:
        case "final":
            return [say("analysis", first), say("final", second)], [("reasoning", first), ("text", second)]
        case "call":
            return [say("analysis", first), call("f", arguments)], [("reasoning", first), ("call", "f", arguments)]
        case "calls":
            return [call("f", arguments), call("g", "{}")], [("call", "f", arguments), ("call", "g", "{}")]
        case _:
            return [say("commentary", first), call("f", arguments)], [("text", first), ("call", "f", arguments)]
