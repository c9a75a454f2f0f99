"""Budgets: what is used up ends new responses, by day and month, for each principal alone."""

from __future__ import annotations

import calendar
import os
from pathlib import Path

import pytest

from turnwire.server.ledger.budgets import Budget, Budgets, Used, periods
from turnwire.server.ledger.budgets_file import BudgetsFileError, parse_budgets, reload_budgets
from turnwire.v1.errors import RequestError

from .scene import full_disk, shop

DAY = 86_400


class Clock:
    def __init__(self, *date: int) -> None:
        self.now = float(calendar.timegm((*date, 12, 0, 0)))

    def __call__(self) -> float:
        return self.now


def over(budgets: Budgets, principal: str) -> str:
    """Returns what a principal is told; empty where he may go on."""
    try:
        budgets.check(principal)
    except RequestError as refusal:
        return f"{refusal.error.code}: {refusal.error.message}"
    return ""


def test_tokens_of_a_day_are_used_up_and_come_back_the_next_day() -> None:
    clock = Clock(2026, 11, 30)
    budgets = Budgets({"alice": Budget(tokens_per_day=100)}, clock)
    budgets.spend("alice", 99, 0, "")
    assert over(budgets, "alice") == ""

    budgets.spend("alice", 1, 0, "")

    limit = "You exceeded your current quota: 100 tokens per day. Wait for the next day, or ask for more."
    words = f"insufficient_quota: {limit}"
    assert over(budgets, "alice") == words
    clock.now += DAY / 2 - 1
    assert over(budgets, "alice") == words
    clock.now += 1
    assert over(budgets, "alice") == ""


def test_costs_of_a_month_are_used_up_and_come_back_the_next_month() -> None:
    clock = Clock(2026, 12, 30)
    budgets = Budgets({"alice": Budget(cost_per_month=1.0, currency="EUR")}, clock)
    budgets.spend("alice", 1, 0.6, "EUR")
    budgets.spend("alice", 1, 9.0, "USD")
    clock.now += DAY
    assert over(budgets, "alice") == ""

    budgets.spend("alice", 1, 0.4, "EUR")

    assert "1 EUR per month" in over(budgets, "alice")
    clock.now += DAY
    assert over(budgets, "alice") == ""


def test_everybody_has_the_common_budget_for_himself_unless_he_has_one_of_his_own() -> None:
    budgets = Budgets({"*": Budget(tokens_per_day=10), "alice": Budget(tokens_per_day=1_000)}, Clock(2026, 1, 1))
    for principal in ("alice", "bob"):
        budgets.spend(principal, 10, 0, "")

    assert [bool(over(budgets, principal)) for principal in ("alice", "bob", "carol")] == [False, True, False]


def test_a_budget_of_nothing_lets_nobody_in() -> None:
    assert over(Budgets({"alice": Budget(tokens_per_month=0)}, Clock(2026, 1, 1)), "alice")


def test_what_was_used_before_counts_and_other_budgets_change_nothing_of_it() -> None:
    budgets = Budgets({}, Clock(2026, 1, 1))
    budgets.load([Used("alice", "USD", 5, 1.0)], [Used("alice", "USD", 50, 10.0), Used("alice", "EUR", 1, 1.0)])

    for budget, exceeded in (
        (Budget(tokens_per_day=6), False),
        (Budget(tokens_per_day=5), True),
        (Budget(tokens_per_month=51), True),
        (Budget(tokens_per_month=52), False),
        (Budget(cost_per_month=10.0), True),
        (Budget(cost_per_day=1.5), False),
    ):
        budgets.replace({"alice": budget})
        assert bool(over(budgets, "alice")) == exceeded, budget


def test_days_and_months_begin_in_utc() -> None:
    day, month = periods(Clock(2026, 2, 15)())

    assert day == calendar.timegm((2026, 2, 15, 0, 0, 0))
    assert month == calendar.timegm((2026, 2, 1, 0, 0, 0))


def test_a_file_of_budgets_is_read() -> None:
    budgets = parse_budgets(
        '[budget.alice]\ntokens_per_day = 5\ncost_per_month = 1.5\n[budget."*"]\ntokens_per_month = 0'
    )

    assert budgets == {"alice": Budget(tokens_per_day=5, cost_per_month=1.5), "*": Budget(tokens_per_month=0)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "b.toml:1: key 'budget': is missing"),
        ("[budget.a]", "b.toml:1: key 'budget.a.tokens_per_day': is missing, and so is every other limit"),
        ("[budget.a]\ntokens_per_day = -1", "b.toml:2: key 'budget.a.tokens_per_day': expected an integer from 0"),
        ('[budget.a]\ncost_per_day = "1"', "b.toml:2: key 'budget.a.cost_per_day': expected a number"),
        ("[budget.a]\ntokens_per_dya = 1", 'did you mean "tokens_per_day"?'),
        ("[budget", "b.toml:1: not valid TOML"),
    ],
)
def test_mistakes_are_named_with_line_and_key(text: str, complaint: str) -> None:
    with pytest.raises(BudgetsFileError) as caught:
        parse_budgets(text, "b.toml")

    assert complaint in str(caught.value)


def test_a_file_with_mistakes_changes_nothing_when_it_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "b.toml"
    budgets = Budgets({"alice": Budget(tokens_per_day=0)}, Clock(2026, 1, 1))
    path.write_text("[budget.alice]\ntokens = 5")
    reload_budgets(path, budgets)
    assert "budgets are as before" in caplog.text
    assert over(budgets, "alice")

    path.write_text("[budget.alice]\ntokens_per_day = 5")
    reload_budgets(path, budgets)

    assert not over(budgets, "alice")


async def test_a_budget_ends_new_responses_and_outlives_the_process(tmp_path: Path) -> None:
    limits = {"alice": Budget(tokens_per_day=1)}
    async with shop(tmp_path, budgets=limits) as scene:
        await scene.completed(principal="alice")
        assert await scene.refused(principal="alice") == "insufficient_quota"
        await scene.completed(principal="bob")
    async with shop(tmp_path, budgets=limits) as scene:
        assert await scene.refused(principal="alice") == "insufficient_quota"
        await scene.completed(principal="bob")


async def test_a_budget_of_money_goes_by_the_prices_of_models(tmp_path: Path) -> None:
    async with shop(tmp_path, budgets={"*": Budget(cost_per_day=1e-9)}) as scene:
        await scene.completed()
        assert await scene.refused() == "insufficient_quota"
    async with shop(tmp_path / "free", budgets={"*": Budget(cost_per_day=1e-9)}, price=None) as scene:
        await scene.completed()
        await scene.completed()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
async def test_what_could_not_be_recorded_is_not_used(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        first = await scene.completed(principal="alice")
        with full_disk(scene):
            await scene.create(principal="alice")
        scene.budgets.replace({"alice": Budget(tokens_per_day=first.usage.total_tokens + 1)})

        await scene.completed(principal="alice")
        assert await scene.refused(principal="alice") == "insufficient_quota"
