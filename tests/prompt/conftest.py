"""The format's own library as the oracle, without a network."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Iterator
from typing import Any

import pytest

from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.vocabulary import VOCABULARY_FILE

from .conversations import oracle as library


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("encodings")
    ranks = importlib.resources.files("turnwire.server.prompt").joinpath("data", VOCABULARY_FILE).read_bytes()
    (folder / "o200k_base.tiktoken").write_bytes(ranks)
    before = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    try:
        yield library.load_harmony_encoding(library.HarmonyEncodingName.HARMONY_GPT_OSS)
    finally:
        if before is None:
            del os.environ["TIKTOKEN_ENCODINGS_BASE"]
        else:
            os.environ["TIKTOKEN_ENCODINGS_BASE"] = before


@pytest.fixture(scope="session")
def harmony() -> HarmonyRenderer:
    return HarmonyRenderer()
