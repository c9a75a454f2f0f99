"""The vocabulary `o200k_harmony`, loaded from package data: token ids, counts, and text cut into its tokens.

Above it: renderers, token counts and the scripted engine. Below it: tiktoken, which is given the ranks shipped beside
this module, so that nothing is fetched or cached anywhere at run time.

Text that looks like a special token is ordinary text here: it comes from users and tools, and must not be able to open
a message. Texts must be encodable as UTF-8, which every protobuf string is.
"""

from __future__ import annotations

import base64
import codecs
import functools
import hashlib
import importlib.resources
import importlib.util
import re
from typing import TYPE_CHECKING, Any, cast

import tiktoken

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "o200k_harmony"
"""tiktoken's name of the encoding."""

VOCABULARY_FILE = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""The ranks in `data/`, under the name tiktoken's own cache would give them."""

VOCABULARY_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Digest of that file."""

# One call of tiktoken gets no more than this many characters. Its regular expressions give up with a panic on runs of
# several hundred thousand spaces, and its work per call, done in one go, would hold up an event loop for too long.
_WINDOW = 50_000

# How far back from the end of a window to look for a place where cutting changes no token.
_LOOK_BACK = 4_096

# No token of the vocabulary spans the border before a single space between two visible characters.
_BORDER = re.compile(r"(?<=\S) (?=\S)")


@functools.cache
def encoding() -> tiktoken.Encoding:
    """Returns the encoding; the first call takes about half a second, so make it before serving.

    Safe to call from several threads: calls that race build the same value twice at worst.
    """
    constants = _private_copy_of_tiktoken_constants()
    # The constructor calls this global of its own module; the copy is ours, so nobody else sees the change.
    constants.load_tiktoken_bpe = _read_ranks
    return tiktoken.Encoding(**constants.o200k_harmony())


def encode(text: str) -> list[int]:
    """Returns the token ids of `text`."""
    if len(text) <= _WINDOW:
        return encoding().encode_ordinary(text)
    ids: list[int] = []
    for window in _windows(text):
        ids += encoding().encode_ordinary(window)
    return ids


def count(text: str) -> int:
    """Returns how many tokens `text` has."""
    return len(encode(text))


def split(text: str) -> list[str]:
    """Cuts `text` into the strings of its tokens, so that joining them gives `text` again.

    A token that ends inside a UTF-8 character is merged with those that complete the character.
    """
    return [piece for piece, _ in split_encoded(text)]


def split_encoded(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Like `split`, with the ids of the tokens each string stands for; together they are `encode(text)`."""
    pieces: list[tuple[str, tuple[int, ...]]] = []
    decoder = codecs.getincrementaldecoder("utf-8")()
    held = ""
    ids: tuple[int, ...] = ()
    for token in encode(text):
        held += decoder.decode(token_bytes(token))
        ids += (token,)
        if not decoder.getstate()[0]:
            pieces.append((held, ids))
            held, ids = "", ()
    return pieces


def token_bytes(token: int) -> bytes:
    """Returns the bytes that a token stands for."""
    return encoding().decode_single_token_bytes(token)


def _windows(text: str) -> Iterator[str]:
    """Cuts a long text, at places that change no token wherever there is one near."""
    start = 0
    while len(text) - start > _WINDOW:
        end = start + _WINDOW
        for border in _BORDER.finditer(text, end - _LOOK_BACK, end):
            end = border.start()
        yield text[start:end]
        start = end
    yield text[start:]


def _private_copy_of_tiktoken_constants() -> Any:
    """Runs tiktoken's module of encodings once more, outside `sys.modules`.

    It holds the pattern and the special tokens, but its constructors download the ranks. A private copy can be given
    another loader without touching the environment, a cache folder or the module other code uses.
    """
    spec = importlib.util.find_spec("tiktoken_ext.openai_public")
    if spec is None or spec.loader is None:
        msg = "tiktoken's encodings are missing: reinstall tiktoken"
        raise RuntimeError(msg)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Any", module)


def _read_ranks(_url: str, expected_hash: str | None = None) -> dict[bytes, int]:
    """Reads the package's ranks in place of tiktoken's download of the same file."""
    data = importlib.resources.files("turnwire.server.prompt").joinpath("data", VOCABULARY_FILE).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != VOCABULARY_SHA256 or expected_hash not in (None, digest):
        msg = f"vocabulary file {VOCABULARY_FILE} is damaged or not the one this tiktoken expects: reinstall turnwire"
        raise RuntimeError(msg)
    ranks: dict[bytes, int] = {}
    for line in data.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return ranks
