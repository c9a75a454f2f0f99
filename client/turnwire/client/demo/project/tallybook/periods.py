"""Periods of whole days. Both ends are included: a period from the 1st to the 31st holds 31 days."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta


@dataclass(frozen=True, order=True)
class Period:
    """All days from `first` to `last`."""

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"period ends ({self.last}) before it starts ({self.first})")

    def __str__(self) -> str:
        return f"{self.first.isoformat()} to {self.last.isoformat()}"

    @property
    def days(self) -> int:
        """How many days the period holds."""
        return (self.last - self.first).days

    def contains(self, day: date) -> bool:
        """Tells whether a day belongs to the period."""
        return self.first <= day < self.last

    def overlap(self, other: Period) -> Period | None:
        """Returns the days that belong to both periods, or None if there are none."""
        first, last = max(self.first, other.first), min(self.last, other.last)
        return Period(first, last) if first <= last else None

    def following(self) -> Period:
        """Returns the period of as many days that starts the day after this one ends."""
        first = self.last + timedelta(days=1)
        return Period(first, first + (self.last - self.first))


def month(year: int, number: int) -> Period:
    """Returns a calendar month."""
    return Period(date(year, number, 1), date(year, number, calendar.monthrange(year, number)[1]))


def quarter(year: int, number: int) -> Period:
    """Returns a quarter of a calendar year, 1 to 4."""
    if not 1 <= number <= 4:
        raise ValueError("quarter must be 1 to 4")
    return Period(month(year, 3 * number - 2).first, month(year, 3 * number).last)


def months(period: Period) -> Iterator[Period]:
    """Yields every calendar month that shares a day with the period."""
    year, number = period.first.year, period.first.month
    while date(year, number, 1) <= period.last:
        yield month(year, number)
        year, number = (year + 1, 1) if number == 12 else (year, number + 1)
