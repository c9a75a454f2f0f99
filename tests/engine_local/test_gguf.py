"""What is read of a GGUF file."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.server.engine.local.gguf import read_metadata

from .toy import TOKENS, TYPES, vocabulary, write_gguf


def test_what_was_asked_for_is_read_and_everything_else_stepped_over(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", vocabulary())
    found = read_metadata(path, ["tokenizer.ggml.token_type", "tokenizer.ggml.add_space_prefix", "none.such"])
    assert found == {"tokenizer.ggml.token_type": tuple(TYPES), "tokenizer.ggml.add_space_prefix": False}
    assert read_metadata(path, ["tokenizer.ggml.tokens"]) == {"tokenizer.ggml.tokens": TOKENS}


@pytest.mark.parametrize("size", [4, 30, 200, 1000])
def test_a_file_that_ends_early_is_named(tmp_path: Path, size: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", vocabulary())
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"m\.gguf: its metadata cannot be read"):
        read_metadata(path, ["tokenizer.ggml.eos_token_id"])


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {}, version=1)
    with pytest.raises(ValueError, match="version 2 or 3"):
        read_metadata(path, ["x"])
