"""The bytes of every token of a vocabulary, whoever made it.

Above it: the parsers. Below it: nothing; the files of tokenizers are read as data, so that no tokenizer library is
needed to decode.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
import tiktoken


class TokenTable:
    """Maps ids to bytes, with special tokens told apart."""

    def __init__(self, pieces: Sequence[bytes], special: Mapping[int, str]) -> None:
        """Takes the bytes of each id in order, empty where an id is not used, and the texts of special tokens."""
        self._pieces = pieces
        self._special = dict(special)
        self._views: dict[frozenset[str], Sequence[bytes]] = {}

    @classmethod
    def from_tiktoken(cls, encoding: tiktoken.Encoding) -> TokenTable:
        """Reads an encoding of tiktoken."""
        special = {encoding.encode_single_token(text): text for text in encoding.special_tokens_set}
        pieces = [b""] * encoding.n_vocab
        for piece in encoding.token_byte_values():
            pieces[encoding.encode_single_token(piece)] = piece
        return cls(pieces, special)

    @classmethod
    def from_tokenizer_json(cls, data: bytes | str) -> TokenTable:
        """Reads a `tokenizer.json`: byte-level vocabularies, and those of SentencePiece with byte fallback.

        Raises:
            ValueError: The file is not one of these.
        """
        tokenizer = _Tokenizer.read(data)
        to_bytes = byte_level if tokenizer.byte_level else sentencepiece
        size = max((*tokenizer.vocabulary.values(), *tokenizer.added), default=-1) + 1
        pieces = [b""] * size
        for text, token in tokenizer.vocabulary.items():
            pieces[token] = to_bytes(text)
        for token, (text, _) in tokenizer.added.items():
            pieces[token] = text.encode()
        return cls(pieces, {token: text for token, (text, special) in tokenizer.added.items() if special})

    def visible(self, markers: Collection[str]) -> Sequence[bytes]:
        """Returns the bytes by id, with those special tokens empty that are not among `markers`."""
        key = frozenset(markers)
        view = self._views.get(key)
        if view is None:
            pieces = list(self._pieces)
            for token, text in self._special.items():
                pieces[token] = text.encode() if text in key else b""
            view = self._views.setdefault(key, pieces)
        return view


class _Tokenizer(msgspec.Struct):
    vocabulary: dict[str, int]
    added: dict[int, tuple[str, bool]]
    byte_level: bool

    @classmethod
    def read(cls, data: bytes | str) -> _Tokenizer:
        try:
            document = cast("dict[str, Any]", msgspec.json.decode(data))
            vocabulary: Any = document["model"]["vocab"]
            if isinstance(vocabulary, list):
                # Unigram models list pairs of token and score.
                vocabulary = {pair[0]: token for token, pair in enumerate(cast("list[list[Any]]", vocabulary))}
            added = {
                int(entry["id"]): (str(entry["content"]), bool(entry.get("special")))
                for entry in document.get("added_tokens") or ()
            }
            return cls(
                msgspec.convert(vocabulary, dict[str, int]),
                added,
                any(part.get("type") == "ByteLevel" for part in _parts(document.get("decoder"))),
            )
        except (AttributeError, KeyError, TypeError, IndexError, msgspec.MsgspecError) as error:
            msg = f"this is not a tokenizer.json with a vocabulary: {error!r}"
            raise ValueError(msg) from error


def _parts(decoder: Any) -> Iterator[dict[str, Any]]:
    if decoder:
        yield decoder
        yield from decoder.get("decoders") or ()


def byte_level(text: str) -> bytes:
    """Returns the bytes of a token as byte-level vocabularies write it; of any other text, its own."""
    alphabet = _byte_alphabet()
    try:
        return bytes(alphabet[character] for character in text)
    except KeyError:
        return text.encode()


def sentencepiece(text: str) -> bytes:
    """Returns the bytes of a token as SentencePiece writes it, bytes such as `<0x0A>` included."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return bytes([int(text[3:5], 16)])
        except ValueError:
            pass
    return text.replace("\u2581", " ").encode()


@functools.cache
def _byte_alphabet() -> dict[str, int]:
    """Byte-level vocabularies write a byte as its own character where it is printable, else as one from U+0100 up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet.update((chr(0x100 + index), byte) for index, byte in enumerate(others))
    return alphabet
