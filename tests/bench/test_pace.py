"""How evenly tokens arrive, against values worked out by hand."""

from __future__ import annotations

import pytest

from turnwire.bench.campaign import Stopped
from turnwire.bench.drivers.records import RolloutRecord, RunRecord
from turnwire.bench.metrics.pace import Pace, pace, promised, token_arrivals
from turnwire.bench.pace import SHAPES, line, observed, scenario, token_ends
from turnwire.bench.scenario.compiling import compile_rollout


def test_tokens_are_due_by_the_engines_formula() -> None:
    assert promised(5, 1000, 1) == pytest.approx([0.0, 0.001, 0.002, 0.003, 0.004])
    assert promised(5, 4000, 2) == pytest.approx([0.0, 0.0, 0.0005, 0.0005, 0.001])


def test_a_token_is_there_with_the_piece_that_has_its_last_character() -> None:
    # "He|llo| wor|ld": the first piece ends within a token, the last one brings two.
    pieces = [(1.0, 4), (2.0, 1), (3.0, 6)]
    assert token_arrivals(pieces, [2, 5, 9, 11]) == [1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("pieces", [[], [(1.0, 10)], [(1.0, 12)]], ids=["none", "too few", "too many"])
def test_text_that_is_not_the_tokens_is_refused(pieces: list[tuple[float, int]]) -> None:
    with pytest.raises(ValueError, match="expected 11 characters"):
        token_arrivals(pieces, [2, 5, 9, 11])


def test_delays_count_from_the_token_that_came_least_late() -> None:
    # Due 10 ms apart; 5, 3, 3 and 7 ms late beside what is the same for all.
    found = pace([1.005, 1.013, 1.023, 1.037], promised(4, 100, 1))
    assert found.delay_p50 == pytest.approx(0.001)
    # The delays are 0, 0, 2 and 4 ms.
    assert found.delay_p99 == pytest.approx(0.002 + 0.97 * 0.002)
    assert found.rate == pytest.approx(0.030 / 0.032)


def test_tokens_that_come_on_time_have_the_whole_rate_and_no_delay() -> None:
    due = promised(9, 4000, 4)
    found = pace([7.0 + moment for moment in due], due)
    assert found.rate == pytest.approx(1.0)
    assert found.delay_p99 == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("arrivals", "due"), [([], []), ([1.0], [0.0, 1.0]), ([1.0, 1.0], [0.0, 0.0])], ids=["none", "lost", "at once"]
)
def test_there_is_no_pace_of_tokens_that_were_lost_or_due_at_once(arrivals: list[float], due: list[float]) -> None:
    with pytest.raises(ValueError, match="one after the other"):
        pace(arrivals, due)


def test_a_line_takes_the_engines_own_error_away_within_each_repetition() -> None:
    alone = [Pace(1.0, 0.001, 0.002), Pace(1.0, 0.001, 0.010), Pace(1.0, 0.001, 0.003)]
    door = [Pace(0.99, 0.002, 0.003), Pace(0.98, 0.001, 0.012), Pace(0.97, 0.003, 0.006)]
    found = line("ws-append", SHAPES[0], 4000, door, alone)
    assert found["driver"] == "ws-append"
    assert (found["tokens_per_second"], found["burst"], found["tokens"]) == (1000.0, 1, 4000)
    assert found["rate"] == pytest.approx(0.98)
    assert found["delay_p50_ms"] == pytest.approx(2.0)
    assert found["delay_p99_ms"] == pytest.approx(6.0)
    assert found["engine_p99_ms"] == pytest.approx(3.0)
    # Differences of 1, 2 and 3 ms.
    assert found["net_p99_ms"] == pytest.approx(2.0)
    assert found["net_p99_low_ms"] == pytest.approx(1.0)
    assert found["net_p99_high_ms"] == pytest.approx(3.0)


def test_one_repetition_has_no_interval() -> None:
    one = [Pace(1.0, 0.001, 0.002)]
    assert "net_p99_low_ms" not in line("null", SHAPES[0], 10, one, one)


@pytest.mark.parametrize("shape", SHAPES, ids=["sustained", "bursts"])
def test_the_ends_of_tokens_are_those_of_what_the_engine_says(shape: tuple[float, int]) -> None:
    rollout = compile_rollout(scenario(shape, 300))
    ends = token_ends(rollout)
    last = rollout.turns[-1]
    assert len(ends) == last.tokens == 300
    assert ends[-1] == len(last.text)
    assert ends == sorted(ends)


@pytest.mark.parametrize(
    "record",
    [RunRecord("ws-append", failure="it broke"), RunRecord("ws-append", [RolloutRecord(failure="it broke")])],
    ids=["run", "response"],
)
def test_what_failed_has_no_pace(record: RunRecord) -> None:
    with pytest.raises(Stopped, match="ws-append: it broke"):
        observed(record, compile_rollout(scenario(SHAPES[0], 100)), SHAPES[0])


def test_a_client_that_tells_no_pieces_has_no_pace() -> None:
    with pytest.raises(Stopped, match="grpc-node: this driver does not tell"):
        observed(
            RunRecord("grpc-node", [RolloutRecord(took=1.0)]), compile_rollout(scenario(SHAPES[0], 100)), SHAPES[0]
        )
