"""Invoices and books for a small studio, to the cent and to the day."""

from tallybook.invoice import Invoice, Line, prorate
from tallybook.ledger import Ledger, Posting, Transaction
from tallybook.money import Money
from tallybook.periods import Period, month, quarter
from tallybook.report import statement

__all__ = [
    "Invoice",
    "Ledger",
    "Line",
    "Money",
    "Period",
    "Posting",
    "Transaction",
    "month",
    "prorate",
    "quarter",
    "statement",
]
