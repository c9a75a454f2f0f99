from datetime import date

from tallybook.invoice import Invoice, Line, prorate
from tallybook.ledger import Ledger
from tallybook.money import Money
from tallybook.periods import Period, month


def invoice(discount=0):
    lines = [
        Line("Design", Money(33_333)),
        Line("Hosting", Money(33_333)),
        Line("Printed guide", Money(33_333), tax=700),
    ]
    return Invoice("2025-001", "acme", date(2025, 1, 31), lines, Money(discount))


def test_tax_is_rounded_once_per_rate():
    assert invoice().taxes() == {700: Money(2_333), 1900: Money(12_667)}
    assert invoice().gross == Money(114_999)


def test_a_discount_is_given_in_full():
    assert invoice(discount=1_000).net == Money(98_999)


def test_an_invoice_is_booked_in_balance():
    ledger = Ledger()
    booked = invoice(discount=1_000)
    booked.book(ledger)
    assert ledger.balance("customers:acme") == booked.gross
    assert ledger.balance("sales") == Money(-98_999)


def test_a_whole_month_costs_the_whole_fee():
    assert prorate(Money(31_000), month(2025, 1), Period(date(2024, 6, 1), date(2025, 12, 31))) == Money(31_000)


def test_a_part_of_a_month_costs_its_days():
    assert prorate(Money(31_000), month(2025, 1), Period(date(2025, 1, 22), date(2025, 3, 1))) == Money(10_000)


def test_one_day_costs_one_day():
    assert prorate(Money(31_000), month(2025, 1), Period(date(2025, 1, 7), date(2025, 1, 7))) == Money(1_000)
