"""Whether a renderer and an engine mean the same by an id; where they do not, every answer would be nonsense.

Above it: whoever starts a token engine. Below it: the port. What an engine shows of its tokenizer differs, so several
things are compared, each only where it is known. What models do legitimately is let pass: embeddings padded beyond the
tokenizer, a marker or two beyond the embedding, turns that end at another special token than the model's documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwire.server.engine.tokens.port import EngineFacts, EngineStartError, TokenEngine
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.prompt.renderer import Renderer

_SLACK: Final = 64
"""Ids beyond the engine's embedding that are let pass: markers of other modalities that text models lack."""

PROBE: Final = "Hello, world! 0123456789 def f(x): return {'naïve': \"日本語\"}\n\t— 👩‍💻\r\n"
"""Text that tokenizers cut very differently, and that none may lose a byte of."""


async def check_agreement(engine: TokenEngine, facts: EngineFacts, renderer: Renderer, table: TokenTable) -> None:
    """Compares an engine with what will render for it. Safe to cancel.

    Raises:
        EngineStartError: They do not go together; it names both.
    """
    pieces = table.visible(())
    found = (
        _sizes(facts, len(pieces)) or _ends(facts, renderer.stop_token_ids, pieces) or await engine.disagreement(table)
    )
    if found:
        ours = f"the renderer {renderer.name} (tokenizer {renderer.tokenizer_hash[:12]})"
        theirs = f"{engine.name} at {engine.address} ({facts.model or 'unnamed model'})"
        msg = f"{ours} and {theirs} do not go together: {found}; choose the renderer of the engine's model"
        raise EngineStartError(msg)


def compare_tables(ours: TokenTable, theirs: TokenTable) -> str:
    """Says how two vocabularies differ; empty where they do not. Special tokens count by their being special."""
    mine, other = ours.visible(()), theirs.visible(())
    shared = min(len(mine), len(other))
    different = [at for at in range(shared) if mine[at] != other[at]]
    if abs(len(mine) - len(other)) > max(_SLACK, shared // 50):
        return f"one tokenizer has {len(mine)} ids, the other {len(other)}"
    # A handful may differ in whether they are special, or what an unused id is called.
    if len(different) > _SLACK:
        at = different[0]
        return f"{len(different)} ids mean something else, such as {at}: {mine[at]!r} and {other[at]!r}"
    return ""


def compare_spelling(table: TokenTable, text: str, ids: Sequence[int]) -> str:
    """Says whether the ids that an engine gave for a text spell it in our vocabulary."""
    pieces = table.visible(())
    spelled = b"".join(pieces[token] if token < len(pieces) else b"" for token in ids)
    # Vocabularies of SentencePiece may put a blank in front.
    if spelled in (text.encode(), b" " + text.encode()):
        return ""
    return f"its ids for {text!r} spell {spelled.decode(errors='replace')!r} here"


def _sizes(facts: EngineFacts, size: int) -> str:
    if facts.vocab_size is not None and size > facts.vocab_size + _SLACK:
        return f"the tokenizer has {size} ids, the engine's model {facts.vocab_size}"
    return ""


def _ends(facts: EngineFacts, stops: Sequence[int], pieces: Sequence[bytes]) -> str:
    """Checks the id that ends a text: if it is none of ours, it must be a special one all the same."""
    if not facts.eos_ids or not stops or not facts.eos_ids.isdisjoint(stops):
        return ""
    # Special tokens spell nothing in this view of the table.
    if any(token < len(pieces) and not pieces[token] for token in facts.eos_ids):
        return ""
    return f"the engine ends a text with {sorted(facts.eos_ids)}, the renderer with {sorted(stops)}"
