"""Budgets: what a principal may use in a day and in a month, checked against running sums.

Above it: the ledgers, which ask before a response and tell what it cost. Below it: the error table. Days and months are
those of UTC. Running responses end as they would, so that a budget is overdrawn by as much as ran when it was reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from turnwire.v1.errors import reject

EVERYBODY: Final = "*"
"""Stands for every principal without a budget of its own; each has it for itself."""
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Budget:
    """What one principal may use; None for no limit. Tokens are input, cached part included, and output."""

    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    cost_per_day: float | None = None
    """In `currency`, by the prices of the models registry; models without a price cost nothing."""
    cost_per_month: float | None = None
    currency: str = "USD"


@dataclass(frozen=True, slots=True)
class Used:
    """What a principal used in one currency in some time."""

    principal: str
    currency: str
    tokens: int
    cost: float


@dataclass(slots=True)
class _Sum:
    """Uses within one period."""

    period: int
    tokens: int = 0
    costs: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, tokens: int, cost: float, currency: str) -> None:
        self.tokens += tokens
        if cost:
            self.costs[currency] = self.costs.get(currency, 0.0) + cost


class Budgets:
    """The running sums of all principals. On the event loop's thread; every call costs the same, however much was
    used."""

    def __init__(self, budgets: Mapping[str, Budget], wall: Callable[[], float]) -> None:
        """Takes the budgets by principal, and the clock in seconds since 1970-01-01 UTC."""
        self._budgets = dict(budgets)
        self._wall = wall
        self._days: dict[str, _Sum] = {}
        self._months: dict[str, _Sum] = {}
        self._today = -1
        self._month = -1

    def replace(self, budgets: Mapping[str, Budget]) -> None:
        """Puts other budgets in force; what was used stays used."""
        self._budgets = dict(budgets)

    def check(self, principal: str) -> None:
        """Checks that a principal may go on.

        Raises:
            RequestError: `insufficient_quota`.
        """
        budget = self._budgets.get(principal) or self._budgets.get(EVERYBODY)
        if budget is None:
            return
        self._follow()
        for name, period, sums, tokens, cost in (
            ("day", self._today, self._days, budget.tokens_per_day, budget.cost_per_day),
            ("month", self._month, self._months, budget.tokens_per_month, budget.cost_per_month),
        ):
            used = sums.get(principal)
            spent = used if used is not None and used.period == period else _Sum(period)
            if tokens is not None and spent.tokens >= tokens:
                raise _over(name, f"{tokens} tokens")
            if cost is not None and spent.costs.get(budget.currency, 0.0) >= cost:
                raise _over(name, f"{cost:g} {budget.currency}")

    def spend(self, principal: str, tokens: int, cost: float, currency: str) -> None:
        """Adds what a response cost."""
        self._follow()
        self._add(self._days, self._today, Used(principal, currency, tokens, cost))
        self._add(self._months, self._month, Used(principal, currency, tokens, cost))

    def load(self, day: Iterable[Used], month: Iterable[Used]) -> None:
        """Takes what was used so far on the current day and in the current month; see `periods`."""
        self._follow()
        self._days.clear()
        self._months.clear()
        for used in day:
            self._add(self._days, self._today, used)
        for used in month:
            self._add(self._months, self._month, used)

    def _add(self, sums: dict[str, _Sum], period: int, used: Used) -> None:
        known = sums.get(used.principal)
        if known is None or known.period != period:
            known = sums[used.principal] = _Sum(period)
        known.add(used.tokens, used.cost, used.currency)

    def _follow(self) -> None:
        """Finds out which day it is; the calendar is asked once a day."""
        wall = self._wall()
        today = int(wall // _DAY)
        if today != self._today:
            self._today = today
            date = time.gmtime(wall)
            self._month = date.tm_year * 12 + date.tm_mon


def periods(wall: float) -> tuple[float, float]:
    """Returns when the day and the month of a moment began, all in seconds since 1970-01-01 UTC."""
    day = wall // _DAY * _DAY
    return day, day - (time.gmtime(wall).tm_mday - 1) * _DAY


def _over(period: str, limit: str) -> Exception:
    message = f"You exceeded your current quota: {limit} per {period}. Wait for the next {period}, or ask for more."
    return reject("insufficient_quota", message, period=period, limit=limit)
