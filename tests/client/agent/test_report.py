from __future__ import annotations

import pytest

from turnwire.client.agent.report import TokenCounts, TurnReport, TurnTimer, totals
from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.server_event_pb2 import ResponseDone
from turnwire.v1.usage_pb2 import StageTimes


def pause(**times: float) -> ResponseDone:
    return ResponseDone(reason=DoneReason.DONE_REASON_TOOL_CALLS, times=StageTimes(**times), passes=1)


def test_what_the_service_does_not_account_for_is_the_network() -> None:
    timer = TurnTimer(1, asked=10.0)
    timer.answered(11.0, pause(queued=0.1, pre_inference=0.05, inference=0.6, post_inference=0.05), 1, TokenCounts())
    report = timer.report(run_started=8.0)
    assert report.network == pytest.approx(0.2)
    assert report.api == pytest.approx(0.4)
    assert report.inference == pytest.approx(0.6)
    assert report.client == 0
    assert (report.started, report.wall) == (2.0, 1.0)


def test_only_what_is_left_of_a_tool_after_the_answer_is_client_time() -> None:
    timer = TurnTimer(1, asked=0.0)
    timer.tool_started(0.4, "call_1", "build", "{}")
    timer.tool_started(0.5, "call_2", "test", "{}")
    assert not timer.complete
    timer.answered(1.0, pause(inference=1.0), 1, TokenCounts())
    timer.tool_ended(0.9, "call_1", failed=False)
    assert timer.running("call_2") == "test"
    assert timer.running("call_1") is None
    timer.tool_ended(3.0, "call_2", failed=True)
    assert timer.complete
    report = timer.report(0.0)
    assert (report.client, report.wall, timer.ended) == (2.0, 3.0, 3.0)
    build, test = report.tools
    assert (build.seconds, build.overlapped) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (test.seconds, test.overlapped, test.failed) == (pytest.approx(2.5), pytest.approx(0.5), True)


def test_outputs_sent_before_the_pause_came_add_no_client_time() -> None:
    timer = TurnTimer(1, asked=0.0)
    timer.tool_started(0.1, "call_1", "test", "{}")
    timer.tool_ended(0.2, "call_1", failed=False)
    timer.answered(0.5, pause(inference=0.4), 1, TokenCounts())
    assert timer.report(0.0).client == 0
    assert timer.ended == 0.5


def test_stalled_time_is_the_clients() -> None:
    timer = TurnTimer(1, asked=0.0)
    timer.answered(1.0, pause(inference=0.5, stalled=0.5), 1, TokenCounts())
    report = timer.report(0.0)
    assert (report.client, report.inference, report.api) == (0.5, 0.5, 0.0)


def test_passes_that_were_not_reported_count_as_inference() -> None:
    timer = TurnTimer(1, asked=0.0)
    timer.answered(2.0, pause(inference=0.5, pre_inference=0.1), 3, TokenCounts())
    report = timer.report(0.0)
    assert report.inference == pytest.approx(1.9)
    assert report.network == 0
    assert report.tokens_per_second is None


def test_a_service_that_counts_more_than_passed_here_makes_nothing_negative() -> None:
    timer = TurnTimer(1, asked=0.0)
    timer.answered(1.0, pause(inference=1.01, pre_inference=0.1), 1, TokenCounts())
    report = timer.report(0.0)
    assert report.api == 0
    assert report.network == 0


def test_the_rate_counts_from_the_first_token() -> None:
    timer = TurnTimer(1, asked=0.0)
    timer.answered(1.0, pause(inference=0.6, first_token=0.1), 1, TokenCounts(output=51))
    assert timer.report(0.0).tokens_per_second == pytest.approx(100)


def test_totals_add_up() -> None:
    reports: list[TurnReport] = []
    for number in (1, 2):
        timer = TurnTimer(number, asked=float(number))
        timer.tool_started(number, "call", "test", "{}")
        timer.answered(number + 0.5, pause(inference=0.25), 1, TokenCounts(10, 5, 3, 1))
        timer.tool_ended(number + 1.0, "call", failed=number == 2)
        reports.append(timer.report(1.0))
    sums = totals(reports)
    assert (sums.turns, sums.tool_calls, sums.failed_calls) == (2, 2, 1)
    assert (sums.wall, sums.api, sums.inference, sums.client) == (2.0, 0.5, 0.5, 1.0)
    assert sums.share(sums.client) == 0.5
    assert sums.tokens == TokenCounts(20, 10, 6, 2)
    assert sums.tool_seconds == 2.0


def test_nothing_has_no_shares() -> None:
    assert totals([]).share(0.0) == 0.0
