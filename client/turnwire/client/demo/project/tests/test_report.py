from datetime import date

from tallybook.ledger import Ledger
from tallybook.money import Money
from tallybook.periods import month
from tallybook.report import statement, table


def test_columns_are_as_wide_as_their_widest_cell():
    assert table(("day", "amount"), [("Monday", "1.00")]) == "day     amount\n------  ------\nMonday    1.00"


def test_a_statement_closes_with_everything_of_the_month():
    ledger = Ledger()
    ledger.post(date(2024, 12, 31), "deposit", ("bank", Money(100_000)), ("equity", Money(-100_000)))
    ledger.post(date(2025, 1, 3), "paper", ("office", Money(2_999)), ("bank", Money(-2_999)))
    ledger.post(date(2025, 1, 31), "rent", ("rent", Money(50_000)), ("bank", Money(-50_000)))
    assert statement(ledger, "bank", month(2025, 1)) == "\n".join(
        [
            "Statement of bank, 2025-01-01 to 2025-01-31",
            "",
            "day         text               amount",
            "----------  ---------------  --------",
            "2025-01-01  opening balance  1,000.00",
            "2025-01-03  paper              -29.99",
            "2025-01-31  rent              -500.00",
            "2025-01-31  closing balance    470.01",
        ]
    )
