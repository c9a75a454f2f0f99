"""The budgets and whether they are kept.

Above it: `building`. Below it: the lines that `budgets` computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turnwire.bench.report.document import Section, Table, Words


class Line(Protocol):
    """One line; see `budgets.line`."""

    @property
    def id(self) -> str:
        """Of the budget; several lines may have the same."""
        ...

    @property
    def what(self) -> str:
        """What was measured."""
        ...

    @property
    def budget(self) -> str:
        """What is asked for."""
        ...

    @property
    def figure(self) -> str:
        """What was found, with its interval; empty where it was not measured."""
        ...

    @property
    def words(self) -> str:
        """The verdict, or how to measure it."""
        ...


def section(lines: Sequence[Line]) -> Section:
    """Returns the section."""
    rows = [(line.id, line.what, line.budget, line.figure, line.words) for line in lines]
    words = "Of several files of one kind the latest that came to its end counts; in brackets 95% intervals."
    head = ("", "what", "budget", "figure", "verdict")
    return Section("budgets", "The budgets", [Words(words), Table(head, rows, words=True)])
