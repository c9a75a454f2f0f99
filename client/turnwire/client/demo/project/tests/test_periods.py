from datetime import date

import pytest
from tallybook.periods import Period, month, months, quarter


def test_a_month_has_all_of_its_days():
    assert month(2025, 1).days == 31
    assert month(2024, 2).days == 29
    assert quarter(2025, 1).days == 90


def test_the_first_and_the_last_day_belong_to_a_period():
    january = month(2025, 1)
    assert january.contains(date(2025, 1, 1))
    assert january.contains(date(2025, 1, 31))
    assert not january.contains(date(2025, 2, 1))


def test_periods_that_share_days_overlap():
    assert month(2025, 1).overlap(Period(date(2025, 1, 20), date(2025, 2, 5))) == Period(
        date(2025, 1, 20), date(2025, 1, 31)
    )
    assert month(2025, 1).overlap(month(2025, 2)) is None


def test_the_following_period_is_as_long():
    week = Period(date(2025, 3, 3), date(2025, 3, 9))
    assert week.following() == Period(date(2025, 3, 10), date(2025, 3, 16))


def test_months_cross_the_year():
    assert list(months(Period(date(2024, 12, 24), date(2025, 1, 6)))) == [month(2024, 12), month(2025, 1)]


def test_a_period_does_not_end_before_it_starts():
    with pytest.raises(ValueError, match="before it starts"):
        Period(date(2025, 1, 2), date(2025, 1, 1))
