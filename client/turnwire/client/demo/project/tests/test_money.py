import pytest
from tallybook.money import Money, total


@pytest.mark.parametrize(
    ("text", "cents"), [("12", 1200), ("12.50", 1250), ("-3.05", -305), ("1,250.00", 125000)]
)
def test_amounts_are_read_and_written(text, cents):
    assert Money.parse(text) == Money(cents)
    assert Money.parse(str(Money(cents))) == Money(cents)


def test_what_is_no_amount_is_refused():
    with pytest.raises(ValueError, match="not an amount"):
        Money.parse("12.5")


def test_percentages_round_half_away_from_zero():
    assert Money(250).percent(1900) == Money(48)
    assert Money(-250).percent(1900) == Money(-48)


def test_even_splits_are_even():
    assert Money(900).allocate([1, 1, 1]) == [Money(300)] * 3


def test_splitting_loses_no_cent():
    for cents in (1, 100, 101, 9_999, -100):
        assert total(Money(cents).allocate([1, 1, 1])) == Money(cents)


def test_leftover_cents_go_to_the_parts_that_lost_most():
    assert Money(100).allocate([1, 1, 1]) == [Money(34), Money(33), Money(33)]
    assert Money(1_000).allocate([50, 33, 17, 1]) == [Money(495), Money(327), Money(168), Money(10)]
