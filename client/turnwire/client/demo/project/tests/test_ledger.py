from datetime import date

import pytest
from tallybook.ledger import Ledger, UnbalancedError
from tallybook.money import Money
from tallybook.periods import month


def test_a_transaction_must_add_up_to_zero():
    with pytest.raises(UnbalancedError, match="off by 0.01"):
        Ledger().post(date(2025, 1, 1), "rent", ("rent", Money(50_001)), ("bank", Money(-50_000)))


def test_a_balance_is_taken_at_the_start_of_the_day():
    ledger = Ledger()
    ledger.post(date(2025, 1, 5), "rent", ("rent", Money(50_000)), ("bank", Money(-50_000)))
    assert ledger.balance("bank", before=date(2025, 1, 5)) == Money(0)
    assert ledger.balance("bank") == Money(-50_000)


def test_turnover_includes_the_last_day_of_the_month():
    ledger = Ledger()
    ledger.post(date(2025, 1, 31), "rent", ("rent", Money(50_000)), ("bank", Money(-50_000)))
    ledger.post(date(2025, 2, 1), "power", ("power", Money(9_000)), ("bank", Money(-9_000)))
    assert ledger.turnover("bank", month(2025, 1)) == Money(-50_000)
