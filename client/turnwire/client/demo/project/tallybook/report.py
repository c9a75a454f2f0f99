"""The statement of an account as a plain-text table."""

from __future__ import annotations

from collections.abc import Sequence

from tallybook.ledger import Ledger
from tallybook.money import Money
from tallybook.periods import Period


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Sets rows in columns as wide as their widest cell; the last column is set flush right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        left = [cell.ljust(width) for cell, width in zip(cells[:-1], widths, strict=False)]
        return "  ".join([*left, cells[-1].rjust(widths[-1])]).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def statement(ledger: Ledger, account: str, period: Period) -> str:
    """Returns opening balance, every transaction of the period, and closing balance of an account."""
    opening: Money = ledger.balance(account, before=period.first)
    rows = [(period.first.isoformat(), "opening balance", str(opening))]
    for transaction in ledger.touching(account):
        if period.contains(transaction.day):
            rows.append((transaction.day.isoformat(), transaction.text, str(transaction.amount(account))))
    closing = opening + ledger.turnover(account, period)
    rows.append((period.last.isoformat(), "closing balance", str(closing)))
    return f"Statement of {account}, {period}\n\n" + table(("day", "text", "amount"), rows)
