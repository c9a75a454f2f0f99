"""Reads a file of budgets, TOML: a table for each principal, and one for everybody else.

Above it: the settings, and whoever reads the file again. Below it: budgets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from turnwire.server.ledger.budgets import Budget, Budgets
from turnwire.server.toml.tables import FileError, Table, read_text, read_top

_log: Final = logging.getLogger(__name__)

_MOST_TOKENS: Final = 10**15
_MOST_COST: Final = 1e12


class BudgetsFileError(FileError):
    """A file of budgets cannot be used; its text has one line per mistake."""


def load_budgets(path: Path) -> Mapping[str, Budget]:
    """Reads a file of budgets.

    Raises:
        BudgetsFileError: It cannot be read, or something in it is wrong.
    """
    return parse_budgets(read_text(path, BudgetsFileError), str(path))


def parse_budgets(source: str, origin: str = "<budgets>") -> Mapping[str, Budget]:
    """Reads the text of a file of budgets.

    Raises:
        BudgetsFileError: Something in it is wrong.
    """
    top = read_top(source, origin, BudgetsFileError)
    budgets = {name: _budget(table) for name, table in top.named_tables("budget").items()}
    if not budgets and "budget" not in top:
        top.problem("budget", 'is missing: give a table [budget.NAME] for each principal, or [budget."*"] for all')
    top.refuse_unknown_keys()
    top.report.raise_if_any()
    return budgets


def _budget(table: Table) -> Budget:
    budget = Budget(
        tokens_per_day=table.integer("tokens_per_day", low=0, high=_MOST_TOKENS),
        tokens_per_month=table.integer("tokens_per_month", low=0, high=_MOST_TOKENS),
        cost_per_day=table.number("cost_per_day", high=_MOST_COST),
        cost_per_month=table.number("cost_per_month", high=_MOST_COST),
        currency=table.string("currency") or Budget().currency,
    )
    if not any(key in table for key in ("tokens_per_day", "tokens_per_month", "cost_per_day", "cost_per_month")):
        table.problem("tokens_per_day", "is missing, and so is every other limit: this budget limits nothing")
    table.refuse_unknown_keys()
    return budget


def reload_budgets(path: Path, budgets: Budgets) -> None:
    """Reads a file of budgets again and puts it in force; one with mistakes changes nothing and is logged."""
    try:
        budgets.replace(load_budgets(path))
    except BudgetsFileError as error:
        for problem in error.problems:
            _log.error("budgets are as before: %s", problem)
    else:
        _log.info("budgets of %s are in force", path)
