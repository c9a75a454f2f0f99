"""The model's own tokenizer, as the template renderer wants one: its vocabulary from the file, its ids from llama.cpp.

Above it: `speech`. Below it: `gguf`, and llama.cpp through a function. Nothing is encoded here, so no tokenizer has to
be built a second time, and no id can differ from what llama.cpp itself would say.
"""

from __future__ import annotations

import functools
import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from turnwire.server.engine.local.gguf import read_metadata
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.prompt.parsing.token_table import byte_level, sentencepiece
from turnwire.server.prompt.renderer import RenderError
from turnwire.server.prompt.segments import TYPECODE
from turnwire.server.prompt.template.marks import SpecialTokens

_PREFIX: Final = "tokenizer.ggml."
_KEYS: Final = tuple(
    _PREFIX + name
    for name in (
        "model",
        "pre",
        "tokens",
        "token_type",
        "add_space_prefix",
        "eos_token_id",
        "eot_token_id",
        "eom_token_id",
    )
)
_SPELLINGS: Final[Mapping[str, Callable[[str], bytes]]] = {"llama": sentencepiece, "gpt2": byte_level}
"""The kinds of vocabularies that are known, and how they write bytes."""

# Types of tokens, as in llama.cpp's `llama.h`.
_UNKNOWN: Final = 2
_CONTROL: Final = 3
_USER_DEFINED: Final = 4
_BYTE: Final = 6

_ENDS: Final = (
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<turn|>",
    "<|eot|>",
    "<EOT>",
    "</s>",
)
"""Control tokens at which llama.cpp ends an answer by their names, whatever the file says of them."""

_CACHED_RUN: Final = 256
"""Characters from which a text's ids are kept: instructions and tools come again with every chain."""
_CACHED_IDS: Final = 4_000_000


class Tokenize(Protocol):
    """llama.cpp's tokenizer."""

    def __call__(
        self, content: Sequence[str | int], *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Returns the ids of some texts, each encoded apart, and of ids among them as they are. Blocks.

        Args:
            content: The texts and ids.
            add_special: Whether the model's own beginning stands before them.
            parse_special: Whether control tokens are found in texts.

        Raises:
            OSError: llama.cpp does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a file says of its tokenizer."""

    kind: str
    """`llama` (SentencePiece) or `gpt2` (byte level)."""
    texts: Sequence[str]
    """How tokens are written in the file, by id."""
    pieces: Sequence[bytes]
    """What tokens stand for, by id; control tokens for their names."""
    control: Mapping[str, int]
    """Tokens that no text becomes."""
    named: Mapping[str, int]
    """Tokens that llama.cpp finds in any text before it encodes the rest."""
    stops: tuple[int, ...]
    """Ids that end a turn or a text."""
    merges_freely: bool
    """Whether tokens are made of characters by nothing but merging neighbours: no expressions cut a text before that,
    and no blank is put in front."""
    hash: str

    def table(self) -> TokenTable:
        """Returns the table by which output is read."""
        return TokenTable(self.pieces, {token: name for name, token in self.control.items()})


def read_vocabulary(path: Path) -> Vocabulary:
    """Reads a file's vocabulary. Blocks, for about a second if it has 262,000 tokens.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has no vocabulary, or one of a kind that is not known here.
    """
    found = {key.removeprefix(_PREFIX): value for key, value in read_metadata(path, _KEYS).items()}
    kind = bytes(found.get("model", b"")).decode(errors="replace")
    spelling = _SPELLINGS.get(kind)
    if spelling is None:
        msg = f"its tokenizer is of the kind {kind!r}, of which only {', '.join(_SPELLINGS)} are known here"
        raise ValueError(msg)
    raw: list[bytes] = found.get("tokens", [])
    types: Sequence[int] = found.get("token_type") or [1] * len(raw)
    if not raw or len(types) != len(raw):
        msg = "its vocabulary is incomplete"
        raise ValueError(msg)
    texts = [token.decode(errors="replace") for token in raw]
    ordinary = (1, _BYTE)
    pieces = [spelling(text) if types[at] in ordinary else raw[at] for at, text in enumerate(texts)]
    digest = hashlib.sha256(b"\0".join([kind.encode(), found.get("pre", b""), *raw]))
    control = {text: at for at, text in enumerate(texts) if types[at] in (_CONTROL, _UNKNOWN)}
    stops = [found.get(name) for name in ("eos_token_id", "eot_token_id", "eom_token_id")]
    stops += [control.get(name) for name in _ENDS]
    return Vocabulary(
        kind=kind,
        texts=texts,
        pieces=pieces,
        control=control,
        named={text: at for at, text in enumerate(texts) if types[at] == _USER_DEFINED},
        stops=tuple(dict.fromkeys(each for each in stops if each is not None)),
        merges_freely=kind == "llama" and not found.get("add_space_prefix", True),
        hash=digest.hexdigest(),
    )


class LlamaTokenizer:
    """Encodes what a template rendered. Safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary, tokenize: Tokenize, template: str) -> None:
        """Takes the vocabulary, who encodes, and the template that goes with them.

        Raises:
            OSError: llama.cpp does not answer.
        """
        self._tokenize = tokenize
        # Some tokens that any text may hold are the template's all the same, such as marks around calls.
        written = {name: token for name, token in vocabulary.named.items() if name.strip() and name in template}
        self.special = SpecialTokens({**vocabulary.control, **written}, {})
        self.hash = vocabulary.hash
        self.tokenized = 0
        """Characters given to llama.cpp so far."""
        self._control_ids = frozenset(self.special.ids.values())
        self._vocabulary = vocabulary
        self._marks = [(name, token) for name, token in vocabulary.control.items() if name][:64]
        self._begin = self._tokenize([""], add_special=True)[:1]
        self._runs: OrderedDict[str, array[int]] = OrderedDict()
        self._cached = 0
        self._written = "\0".join(vocabulary.texts) if vocabulary.merges_freely else ""
        self.border = functools.lru_cache(1024)(self._border)
        """See the port."""

    def encode(self, text: str, *, begins: bool) -> array[int]:
        """Returns the ids of a marked text; llama.cpp is asked once or twice, however many control tokens are in it.

        Raises:
            RenderError: The text cannot be encoded.
        """
        parts = list(self.special.cut(text))
        known = self._encoded([part for part in parts if isinstance(part, str)])
        ids = array(TYPECODE)
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += known[part]
        if begins and self._begin and list(ids[:1]) != self._begin:
            # What the model was trained to begin with, and the template leaves to the tokenizer.
            return array(TYPECODE, self._begin) + ids
        return ids

    def _encoded(self, runs: Sequence[str]) -> dict[str, array[int]]:
        found: dict[str, array[int]] = {}
        new: list[str] = []
        for run in dict.fromkeys(runs):
            kept = self._runs.get(run)
            if kept is None:
                new.append(run)
            else:
                found[run] = kept
        for run, ids in zip(new, self._ask(new), strict=True):
            if not self._control_ids.isdisjoint(ids):
                ids = self._cut_and_encoded(run)
            found[run] = array(TYPECODE, ids)
            self._keep(run, found[run])
        return found

    def _cut_and_encoded(self, run: str) -> list[int]:
        """Encodes a text that holds a control token's name as words of its own: cut inside it."""
        ids = [token for piece in self._ask(self.special.pieces(run)) for token in piece]
        if not self._control_ids.isdisjoint(ids):
            msg = "The conversation holds text that this model's tokenizer takes for a special token."
            raise RenderError(msg)
        return ids

    def _ask(self, runs: Sequence[str]) -> list[list[int]]:
        if not runs:
            return []
        self.tokenized += sum(map(len, runs))
        between = next((token for name, token in self._marks if not any(name in run for run in runs)), None)
        if between is None or len(runs) == 1:
            return [self._tokenize([run]) for run in runs]
        # All at once, with a token between them that none of them can become.
        content: list[str | int] = []
        for run in runs:
            content += (run, between)
        parts: list[list[int]] = [[]]
        for token in self._tokenize(content):
            if token == between:
                parts.append([])
            else:
                parts[-1].append(token)
        return parts[:-1]

    def _keep(self, run: str, ids: array[int]) -> None:
        if len(run) < _CACHED_RUN:
            return
        self._runs[run] = ids
        self._cached += len(ids)
        while self._cached > _CACHED_IDS:
            # Threads may race for the last ones; who loses has nothing to drop.
            try:
                self._cached -= len(self._runs.popitem(last=False)[1])
            except KeyError:
                break

    def _border(self, left: str, right: str) -> bool:
        # Tokens only ever grow by merging neighbours, so that a place inside no token parts a text for good.
        if not self._vocabulary.merges_freely:
            return False
        both = left + right
        return both not in self._written and both.replace(" ", "\u2581") not in self._written
