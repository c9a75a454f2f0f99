"""Amounts of money in whole cents; no floats anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_AMOUNT = re.compile(r"(?P<sign>-?)(?P<units>\d{1,3}(?:,\d{3})+|\d+)(?:\.(?P<cents>\d{2}))?")


def divide(numerator: int, denominator: int) -> int:
    """Divides whole numbers and rounds half away from zero, as tax offices do."""
    if denominator <= 0:
        raise ValueError("denominator must be positive")
    quotient, rest = divmod(abs(numerator), denominator)
    if rest * 2 >= denominator:
        quotient += 1
    return quotient if numerator >= 0 else -quotient


@dataclass(frozen=True, order=True)
class Money:
    """An amount in cents."""

    cents: int = 0

    @classmethod
    def parse(cls, text: str) -> Money:
        """Reads amounts such as '12', '12.50', '-3.05' and '1,250.00'."""
        match = _AMOUNT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not an amount: {text!r}")
        cents = int(match["units"].replace(",", "")) * 100 + int(match["cents"] or 0)
        return cls(-cents if match["sign"] else cents)

    def __str__(self) -> str:
        units, cents = divmod(abs(self.cents), 100)
        return f"{'-' if self.cents < 0 else ''}{units:,}.{cents:02d}"

    def __add__(self, other: Money) -> Money:
        return Money(self.cents + other.cents)

    def __sub__(self, other: Money) -> Money:
        return Money(self.cents - other.cents)

    def __neg__(self) -> Money:
        return Money(-self.cents)

    def __mul__(self, count: int) -> Money:
        return Money(self.cents * count)

    def percent(self, basis_points: int) -> Money:
        """Returns a share given in hundredths of a percent: 1900 is 19 %."""
        return Money(divide(self.cents * basis_points, 10_000))

    def allocate(self, weights: Sequence[int]) -> list[Money]:
        """Splits the amount in proportion to the weights; the parts add up to the amount."""
        total = sum(weights)
        if total <= 0 or min(weights) < 0:
            raise ValueError("weights must not be negative, and not all zero")
        return [Money(divide(self.cents * weight, total)) for weight in weights]


def total(amounts: Sequence[Money]) -> Money:
    """Adds up any number of amounts."""
    return Money(sum(amount.cents for amount in amounts))
