"""The ablation: which setups are measured, and what its tables say."""

from __future__ import annotations

import sys

import pytest

from turnwire.bench.ablation import ORDER, SINGLY, TOGETHER, Figure, main, steps, table

EVERYTHING = frozenset(ORDER)


def test_optimizations_are_switched_on_one_after_the_other_and_off_one_at_a_time() -> None:
    assert SINGLY.steps()[0] == EVERYTHING
    assert SINGLY.steps()[1] == EVERYTHING - {ORDER[0]}
    assert SINGLY.steps()[-1] == frozenset()
    # The last step but one has the last optimization off alone, which is not measured twice.
    assert len(SINGLY.setups()) == len(SINGLY.steps()) + len(ORDER) - 1


def test_together_there_is_everything_off_and_everything_on() -> None:
    assert TOGETHER.setups() == [EVERYTHING, frozenset()]
    assert len(TOGETHER.names) == len(TOGETHER.groups)


def test_progress_counts_servers_and_in_front_of_both_models_histories_and_turns() -> None:
    assert steps(TOGETHER, 10) == 2 + 2 * (2 + 2 + 10)


def test_a_table_has_a_row_for_each_step() -> None:
    rows = table(TOGETHER.names, Figure("tiny", ((40.0, 50.0), (10.0, 20.0)), ((40.0, 50.0),), 1.0)).splitlines()
    assert rows[2:] == [
        "| everything off | 40.0 ms | 50.0 ms | | |",
        "| + all of them | 10.0 ms | 20.0 ms | 40.0 ms | 50.0 ms |",
    ]


def test_no_turns_are_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ablation", "--turns", "0"])
    with pytest.raises(SystemExit):
        main()
    assert "--turns: expected a number" in capsys.readouterr().err
