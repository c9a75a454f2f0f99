"""What the report is made of, before it is written as Markdown or as HTML.

Above it: `markdown` and `page`, which write it. Below it: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """Paragraphs or lists, in Markdown."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first column is of names, the others of figures."""

    head: Row
    rows: Sequence[Row]
    words: bool = False
    """Whether the other columns are of words, too, and stand at the left."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a figure came from."""

    file: str
    command: str
    """What has to be typed to measure it again."""
    date: str
    machine: str
    load: str
    """The machine's load averages over a minute, in words."""
    ended: str = ""
    """Why the measurement is not whole; empty where it is."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot."""

    name: str
    """Of its file, without the ending."""
    svg: str
    title: str
    """What is seen, in one sentence."""


@dataclass(frozen=True, slots=True)
class Made:
    """How what stands above it was measured."""

    sources: Sequence[Source]


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that few readers need: folded in HTML, written out in Markdown."""

    title: str
    blocks: Sequence[Block]


Block = Words | Table | Picture | Made | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """One section."""

    anchor: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Document:
    """The whole report."""

    title: str
    sections: Sequence[Section]

    def pictures(self) -> list[Picture]:
        """Returns all plots, in order."""
        return [each for section in self.sections for each in _pictures(section.blocks)]


def _pictures(blocks: Sequence[Block]) -> list[Picture]:
    found: list[Picture] = []
    for block in blocks:
        if isinstance(block, Picture):
            found.append(block)
        elif isinstance(block, Folded):
            found += _pictures(block.blocks)
    return found
