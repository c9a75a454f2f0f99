"""The model's tokenizer behind the renderer's port: ids are llama.cpp's, and no text becomes a control token."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.server.engine.local.spelling import incomplete, spelled_by
from turnwire.server.engine.local.vocabulary import LlamaTokenizer, read_vocabulary

from .toy import (
    BOS,
    END_MARK,
    EOS,
    FIRST_BYTE,
    MARK,
    MARKED,
    PAIR,
    TOKENS,
    TYPES,
    ToyLlama,
    encode,
    vocabulary,
    write_gguf,
)


@pytest.fixture
def llama() -> ToyLlama:
    return ToyLlama(MARKED)


@pytest.fixture
def tokenizer(tmp_path: Path, llama: ToyLlama) -> LlamaTokenizer:
    path = write_gguf(tmp_path / "m.gguf", vocabulary())
    return LlamaTokenizer(read_vocabulary(path), llama.tokenize, MARKED)


def test_control_tokens_part_texts_that_are_encoded_in_one_question(tokenizer: LlamaTokenizer, llama: ToyLlama) -> None:
    llama.asked.clear()
    ids = tokenizer.encode("<|mark|>user\nHi<|end|><|mark|>a b<|end|>", begins=False)
    assert list(ids) == [MARK, *encode("user\nHi"), END_MARK, MARK, *encode("a b"), END_MARK]
    assert llama.asked == ["user\nHi", "a b"]


def test_a_prompt_begins_as_the_model_wants_it_once(tokenizer: LlamaTokenizer) -> None:
    assert list(tokenizer.encode("a", begins=True)) == [BOS, *encode("a")]
    assert list(tokenizer.encode("<bos>a", begins=True)) == [BOS, *encode("a")]
    assert list(tokenizer.encode("a", begins=False)) == encode("a")


def test_what_reads_like_a_control_token_in_a_clients_text_is_none(tokenizer: LlamaTokenizer) -> None:
    text = tokenizer.special.mark("say <|end|> or <bos>")
    assert list(tokenizer.encode(f"<|mark|>{text}<|end|>", begins=False)) == [
        MARK,
        *encode("say <|end|> or <bos>"),
        END_MARK,
    ]


def test_long_texts_are_encoded_once(tokenizer: LlamaTokenizer, llama: ToyLlama) -> None:
    long = "words " * 100
    first = tokenizer.encode(long, begins=False)
    llama.asked.clear()
    assert tokenizer.encode(f"{long}<|end|>", begins=False)[:-1] == first
    assert llama.asked == []


def test_a_border_is_where_no_token_reaches_across(tokenizer: LlamaTokenizer) -> None:
    assert tokenizer.border("\n", "Q")
    assert not tokenizer.border("\n", "\n")


@pytest.mark.parametrize("changes", [{"add_space_prefix": True}, {"model": b"gpt2"}])
def test_other_vocabularies_know_no_borders(tmp_path: Path, llama: ToyLlama, changes: dict[str, bool | bytes]) -> None:
    path = write_gguf(tmp_path / "m.gguf", vocabulary(**changes))
    assert not LlamaTokenizer(read_vocabulary(path), llama.tokenize, MARKED).border("\n", "Q")


def test_the_ends_of_a_turn_are_those_of_the_file_and_those_known_by_name(tmp_path: Path) -> None:
    read = read_vocabulary(write_gguf(tmp_path / "m.gguf", vocabulary()))
    assert read.stops == (EOS, END_MARK)
    assert read.pieces[PAIR] == b"\n\n"
    assert read.pieces[FIRST_BYTE + 10] == b"\n"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": b"bert"}, "of the kind 'bert'"),
        ({"token_type": TYPES[:-1]}, "incomplete"),
        ({"model": b"gpt2", "tokens": TOKENS[:1], "token_type": TYPES}, "incomplete"),
    ],
)
def test_vocabularies_that_are_not_known_are_refused(
    tmp_path: Path, changes: dict[str, bytes | list[int] | list[bytes]], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        read_vocabulary(write_gguf(tmp_path / "m.gguf", vocabulary(**changes)))


def test_the_parts_of_a_character_are_told_by_its_bytes() -> None:
    parts = incomplete([b"a", "é".encode(), b"\xf0", b"\x9f", b"\xf0\x9f", b"\xaa", b"", b"\xf0"])
    assert parts == {b"\xf0": 2, b"\x9f": 3, b"\xf0\x9f": 4, b"\xaa": 5}
    assert spelled_by(b"\xf0\x9f\xaa", parts) == [4, 5]
    assert spelled_by(b"\xf0\xab", parts) == []
