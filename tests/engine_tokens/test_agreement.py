"""Renderers and engines that do not go together are refused when the server starts, both by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnwire.server.engine.tokens.agreement import check_agreement, compare_spelling, compare_tables
from turnwire.server.engine.tokens.opening import open_token_engine
from turnwire.server.engine.tokens.port import EngineFacts, EngineStartError
from turnwire.server.engine.tokens.vllm_grpc import VllmGrpcEngine
from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.harmony import HarmonyRenderer
from turnwire.server.prompt.parsing import TokenTable

Make = Callable[..., Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLE = TokenTable.from_tiktoken(vocabulary.encoding())


class Silent:
    """An engine that shows nothing of its tokenizer."""

    name = "vllm-grpc"
    address = "10.0.0.1:50051"

    async def disagreement(self, _: TokenTable) -> str:
        return ""


async def check(facts: EngineFacts, table: TokenTable = TABLE) -> None:
    engine: Any = Silent()
    await check_agreement(engine, facts, HarmonyRenderer(), table)


async def test_an_engine_of_the_renderers_model_is_taken() -> None:
    await check(EngineFacts(model="gpt-oss-20b", vocab_size=201_088, eos_ids=frozenset({200_002})))


async def test_an_engine_that_says_nothing_is_taken() -> None:
    await check(EngineFacts())


async def test_a_model_with_fewer_ids_is_refused_and_both_are_named() -> None:
    with pytest.raises(EngineStartError) as caught:
        await check(EngineFacts(model="tiny-llama", vocab_size=32_000))
    message = str(caught.value)
    for part in ("harmony", "446a9538cb6c", "vllm-grpc", "10.0.0.1:50051", "tiny-llama", "201088", "32000"):
        assert part in message


async def test_an_end_that_is_an_ordinary_token_here_is_refused() -> None:
    with pytest.raises(EngineStartError, match=r"ends a text with \[2\], the renderer with \[200002, 200012\]"):
        await check(EngineFacts(vocab_size=201_088, eos_ids=frozenset({2})))


async def test_another_special_token_as_the_end_is_taken() -> None:
    await check(EngineFacts(eos_ids=frozenset({199_999})))


def tokenizer_json(vocabulary_: Mapping[str, int], special: Mapping[str, int]) -> bytes:
    added = [{"id": token, "content": text, "special": True} for text, token in special.items()]
    return msgspec.json.encode(
        {"model": {"vocab": dict(vocabulary_)}, "added_tokens": added, "decoder": {"type": "ByteLevel"}}
    )


async def test_vocabularies_are_compared_by_what_their_ids_spell() -> None:
    words = {f"w{n}": n for n in range(1_000)}
    ours = TokenTable.from_tokenizer_json(tokenizer_json(words, {"<s>": 1_000}))
    assert compare_tables(ours, ours) == ""
    padded = TokenTable.from_tokenizer_json(tokenizer_json(words, {"<s>": 1_000, "<image>": 1_010}))
    assert compare_tables(ours, padded) == ""
    shifted = TokenTable.from_tokenizer_json(tokenizer_json({f"w{n}": 999 - n for n in range(1_000)}, {"<s>": 1_000}))
    assert "1000 ids mean something else, such as 0: b'w0' and b'w999'" in compare_tables(ours, shifted)
    larger = TokenTable.from_tokenizer_json(tokenizer_json({f"w{n}": n for n in range(2_000)}, {}))
    assert compare_tables(ours, larger) == "one tokenizer has 1001 ids, the other 2000"


async def test_ids_must_spell_the_text_they_were_made_of() -> None:
    assert compare_spelling(TABLE, "naïve", vocabulary.encode("naïve")) == ""
    assert compare_spelling(TABLE, "naïve", vocabulary.encode(" naïve")) == ""
    assert compare_spelling(TABLE, "naïve", [1, 2, 3]) != ""
    assert compare_spelling(TABLE, "naïve", [2**31]) != ""


async def test_the_engines_own_tokenizer_is_compared_at_the_start(fake: Make, tmp_path: Path) -> None:
    words = {f"w{n}": n for n in range(201_000)}
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_json(words, {}))
    started = await fake("vllm_grpc", "--tokenizer", str(tmp_path))
    with pytest.raises(EngineStartError, match="ids mean something else"):
        await open_token_engine(VllmGrpcEngine(started.address), HarmonyRenderer(), "harmony", TABLE)


async def test_an_engine_that_cannot_be_reached_is_a_failed_start() -> None:
    engine = VllmGrpcEngine("127.0.0.1:1", start_timeout=0.2)
    with pytest.raises(EngineStartError, match="not reached"):
        await open_token_engine(engine, HarmonyRenderer(), "harmony", TABLE)


async def test_an_output_format_that_nobody_knows_is_a_failed_start(fake: Make) -> None:
    started = await fake("vllm_grpc")
    with pytest.raises(EngineStartError, match="unknown output format 'klingon'"):
        await open_token_engine(VllmGrpcEngine(started.address), HarmonyRenderer(), "klingon", TABLE)
