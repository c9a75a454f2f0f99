"""Double-entry books: every transaction moves money between accounts and adds up to zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date

from tallybook.money import Money, total
from tallybook.periods import Period


class UnbalancedError(ValueError):
    """The postings of a transaction do not add up to zero."""


@dataclass(frozen=True)
class Posting:
    """One amount on one account: positive is debit, negative is credit."""

    account: str
    amount: Money


@dataclass(frozen=True)
class Transaction:
    """Postings that belong together."""

    day: date
    text: str
    postings: tuple[Posting, ...]

    def __post_init__(self) -> None:
        difference = total([posting.amount for posting in self.postings])
        if difference.cents:
            raise UnbalancedError(f"{self.text!r} is off by {difference}")

    def amount(self, account: str) -> Money:
        """Returns what the transaction adds to one account."""
        return total([posting.amount for posting in self.postings if posting.account == account])


@dataclass
class Ledger:
    """Transactions in the order of their days."""

    transactions: list[Transaction] = field(default_factory=list)

    def post(self, day: date, text: str, *postings: tuple[str, Money]) -> Transaction:
        """Books a transaction."""
        transaction = Transaction(day, text, tuple(Posting(*posting) for posting in postings))
        self.transactions.append(transaction)
        self.transactions.sort(key=lambda each: each.day)
        return transaction

    def touching(self, account: str) -> Iterator[Transaction]:
        """Yields the transactions that concern an account, oldest first."""
        for transaction in self.transactions:
            if any(posting.account == account for posting in transaction.postings):
                yield transaction

    def balance(self, account: str, before: date | None = None) -> Money:
        """Returns the balance of an account: of today, or at the start of a day."""
        return total([each.amount(account) for each in self.touching(account) if before is None or each.day < before])

    def turnover(self, account: str, period: Period) -> Money:
        """Returns by how much an account changed within a period."""
        return total([each.amount(account) for each in self.touching(account) if period.contains(each.day)])
