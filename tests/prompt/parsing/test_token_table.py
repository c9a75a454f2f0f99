"""Tables of token bytes, from tiktoken and from files of tokenizers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.parsing import TokenTable


def tokenizer_json(vocab: Any, decoder: Any, added: Any = ()) -> str:
    return json.dumps({"model": {"vocab": vocab}, "decoder": decoder, "added_tokens": list(added)})


def test_a_byte_level_vocabulary_gives_raw_bytes() -> None:
    table = TokenTable.from_tokenizer_json(
        tokenizer_json(
            {"\u0120Hello": 0, "\u00f0\u0141": 1, "\u010a": 2},
            {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]},
            [
                {"id": 3, "content": "<|im_end|>", "special": True},
                {"id": 4, "content": "<tool_call>", "special": False},
            ],
        )
    )
    assert list(table.visible(())) == [b" Hello", b"\xf0\x9f", b"\n", b"", b"<tool_call>"]
    assert list(table.visible(["<|im_end|>"]))[3] == b"<|im_end|>"


def test_a_sentencepiece_vocabulary_gives_spaces_and_bytes() -> None:
    table = TokenTable.from_tokenizer_json(
        tokenizer_json([["<unk>", 0.0], ["\u2581Hello", -1.0], ["<0xF0>", -2.0], ["é", -3.0]], {"type": "ByteFallback"})
    )
    assert list(table.visible(())) == [b"<unk>", b" Hello", b"\xf0", "é".encode()]


def test_tiktokens_encoding_gives_its_bytes() -> None:
    table = TokenTable.from_tiktoken(vocabulary.encoding()).visible(["<|end|>"])
    ids = vocabulary.encode("Hello 🌍")
    assert b"".join(table[token] for token in ids).decode() == "Hello 🌍"
    assert table[200_007] == b"<|end|>"
    assert table[200_006] == b""


@pytest.mark.parametrize("data", ["", "[]", "{}", '{"model": {"vocab": 7}}', '{"model": {"vocab": {"a": "b"}}}'])
def test_other_files_are_refused(data: str) -> None:
    with pytest.raises(ValueError, match=r"not a tokenizer\.json"):
        TokenTable.from_tokenizer_json(data)
