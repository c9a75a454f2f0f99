"""Invoices: lines, a discount spread over them, tax by rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from tallybook.ledger import Ledger, Transaction
from tallybook.money import Money, total
from tallybook.periods import Period


@dataclass(frozen=True)
class Line:
    """One line of an invoice."""

    text: str
    price: Money
    count: int = 1
    tax: int = 1900
    """Rate of tax in hundredths of a percent."""

    @property
    def amount(self) -> Money:
        """Price times count, before discount and tax."""
        return self.price * self.count


@dataclass(frozen=True)
class Invoice:
    """What a customer owes."""

    number: str
    customer: str
    day: date
    lines: Sequence[Line]
    discount: Money = Money(0)

    def net_lines(self) -> list[Money]:
        """Returns the lines after discount, which is spread over them by their amounts."""
        amounts = [line.amount for line in self.lines]
        if not self.discount.cents:
            return amounts
        parts = self.discount.allocate([amount.cents for amount in amounts])
        return [amount - part for amount, part in zip(amounts, parts, strict=True)]

    @property
    def net(self) -> Money:
        """The sum before tax."""
        return total(self.net_lines())

    def taxes(self) -> dict[int, Money]:
        """Returns the tax of each rate, rounded once per rate."""
        bases: dict[int, Money] = {}
        for line, net in zip(self.lines, self.net_lines(), strict=True):
            bases[line.tax] = bases.get(line.tax, Money()) + net
        return {rate: base.percent(rate) for rate, base in sorted(bases.items())}

    @property
    def gross(self) -> Money:
        """What is to be paid."""
        return self.net + total(list(self.taxes().values()))

    def book(self, ledger: Ledger) -> Transaction:
        """Books the invoice: the customer owes, sales and tax are credited."""
        tax = total(list(self.taxes().values()))
        return ledger.post(
            self.day,
            f"Invoice {self.number}",
            (f"customers:{self.customer}", self.gross),
            ("sales", -self.net),
            ("tax", -tax),
        )


def prorate(fee: Money, billed: Period, active: Period) -> Money:
    """Returns the share of a fee for the days of the billed period on which a customer was active."""
    shared = billed.overlap(active)
    if shared is None:
        return Money(0)
    used = shared.days
    return fee.allocate([used, billed.days - used])[0]
