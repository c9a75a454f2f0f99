"""Harmony's special tokens, and messages found by them: what is done to tokens that are there already.

Above: the harmony renderer. Below: the vocabulary. A special token never comes out of text (text is encoded with all
of them disallowed), so that messages can be told apart by ids alone, rendered and sampled ones alike.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from turnwire.server.prompt import vocabulary
from turnwire.server.prompt.segments import TYPECODE, Segment

RETURN: Final = 200002
CONSTRAIN: Final = 200003
CHANNEL: Final = 200005
START: Final = 200006
END: Final = 200007
MESSAGE: Final = 200008
CALL: Final = 200012

SPECIAL: Final = {
    "<|return|>": RETURN,
    "<|constrain|>": CONSTRAIN,
    "<|channel|>": CHANNEL,
    "<|start|>": START,
    "<|end|>": END,
    "<|message|>": MESSAGE,
    "<|call|>": CALL,
}
"""The tokens by their names in the vocabulary."""


@functools.cache
def word(text: str) -> tuple[int, ...]:
    """Returns the ids of a short text that occurs in every prompt, such as a role."""
    return tuple(vocabulary.encode(text))


@functools.cache
def opening() -> Segment:
    """Returns the beginning of the model's answer."""
    return Segment((START, *word("assistant")))


@functools.cache
def _analysis_header() -> array[int]:
    return array(TYPECODE, (START, *word("assistant"), CHANNEL, *word("analysis"), MESSAGE))


@functools.cache
def _final_header() -> array[int]:
    return array(TYPECODE, (START, *word("assistant"), CHANNEL, *word("final")))


@dataclass(frozen=True, slots=True)
class Spans:
    """What a stretch of whole messages holds."""

    reasons: bool
    """Whether there is reasoning in it."""
    last_final: int
    """Where its last final answer begins; -1 without one."""
    open_at: int
    """Where a message begins that was cut before its content began; -1 without one."""
    closed: bool
    """Whether the last message has its end."""


def look(ids: array[int]) -> Spans:
    """Finds what matters in a stretch of messages that begins at a `<|start|>`."""
    analysis, final = _analysis_header(), _final_header()
    reasons, last_final, start = False, -1, 0
    for start in _starts(ids):
        if ids[start : start + len(analysis)] == analysis:
            reasons = True
        elif ids[start : start + len(final)] == final:
            last_final = start
    closed = bool(ids) and ids[-1] in (END, CALL, RETURN)
    open_at = start if not closed and MESSAGE not in ids[start:] else -1
    return Spans(reasons, last_final, open_at, closed)


def without_reasoning(ids: array[int], until: int) -> array[int]:
    """Returns a stretch of messages without the reasoning that begins before a position.

    Only plain reasoning is dropped: a call that the model wrote into its reasoning stays with its output.
    """
    analysis = _analysis_header()
    kept = array(TYPECODE)
    begun = 0
    dropping = False
    for start in _starts(ids):
        drop = start < until and ids[start : start + len(analysis)] == analysis
        if drop != dropping:
            if not dropping:
                kept += ids[begun:start]
            begun, dropping = start, drop
    if not dropping:
        kept += ids[begun:]
    return kept


def _starts(ids: array[int]) -> Iterator[int]:
    position = 0
    while True:
        try:
            position = ids.index(START, position)
        except ValueError:
            return
        yield position
        position += 1
