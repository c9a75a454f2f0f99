"""Makes text of an exact number of tokens, for scenarios that need bulk rather than sense.

Above it: `scenario`. Below it: nothing; that every word is one token of the vocabulary is kept by a test.
"""

from __future__ import annotations

import random

_PROSE = (
    "the model reads one line and writes another while each test starts for its turn so we check what changed "
    "before it runs again then look at that file find where two paths meet keep both parts simple name things "
    "well measure every step and leave no state behind when this stream ends or moves on with more data"
)
WORDS = tuple(_PROSE.split())
"""Each of them is one token at the start of a text and after a space."""

_SENTENCE = range(6, 15)


def filler(tokens: int, seed: str) -> str:
    """Returns the same plain prose for the same arguments; it has exactly `tokens` tokens."""
    # Not a secret: the words only need to vary, in the same way everywhere.
    choice = random.Random(seed)
    parts: list[str] = []
    left = choice.choice(_SENTENCE)
    for _ in range(tokens):
        if left == 0:
            parts.append(".")
            left = choice.choice(_SENTENCE)
        else:
            parts.append(f" {choice.choice(WORDS)}" if parts else choice.choice(WORDS))
            left -= 1
    return "".join(parts)
