"""The measurement of the doors: what is measured how often, what repetitions come to, and the core without any door."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from turnwire.bench.doors import Asked, main, scenario
from turnwire.bench.doors_core import Core
from turnwire.bench.doors_cost import Cost, medians
from turnwire.bench.doors_list import DOORS
from turnwire.bench.doors_tables import summary, tables

COST = Cost("gRPC, one stream", 16, True, 10.0, 0.0, 3.0, 25.0, 1.0, 2.0, 500.0)
BY_NAME = {door.name: door for door in DOORS}


def test_figures_of_repetitions_are_medians_for_each_door_lanes_and_way_of_reading() -> None:
    other = replace(COST, lanes=200, server_us=7.0)
    found = medians([COST, replace(COST, server_us=30.0), replace(COST, server_us=11.0), other])
    assert [(cost.lanes, cost.server_us) for cost in found] == [(16, 11.0), (200, 7.0)]


@pytest.mark.parametrize(
    ("door", "lanes", "clients", "ways"),
    [
        ("HTTP and SSE", 1, "both", [False, True]),
        ("HTTP and SSE", 1, "parsing", [True]),
        ("gRPC, one stream", 1, "taking", [True]),
        ("WebSocket, a socket each", 1, "both", []),
        ("WebSocket, a socket each", 2, "taking", [False]),
    ],
    ids=["both", "parsing", "ends-are-found-by-parsing-only", "same-as-another-alone", "taking"],
)
def test_a_door_is_measured_in_each_way_that_its_client_has(
    door: str, lanes: int, clients: str, ways: list[bool]
) -> None:
    assert list(Asked(clients=clients).ways(BY_NAME[door], lanes)) == ways


def test_a_round_counts_each_way_of_each_door_and_the_core() -> None:
    doors = [BY_NAME["HTTP and SSE"], BY_NAME["WebSocket, a socket each"]]
    assert Asked(doors=doors).steps([1, 200]) == (2 + 0 + 1) + (2 + 2 + 1)
    assert Asked(doors=doors, core=False).steps([1]) == 2


async def test_the_core_runs_every_lane_to_its_end_without_a_door() -> None:
    core = Core(scenario(100_000, 20), 3)
    try:
        assert len(await core.run("go", 2)) == 2
        assert len(await core.run("ping", 3)) == 3
    finally:
        await core.close()


async def test_a_refused_response_of_the_core_is_told_and_not_waited_for() -> None:
    core = Core(scenario(100_000, 20).replace("[speed]", '[model]\nnames = ["other"]\n[speed]'), 1)
    try:
        with pytest.raises(RuntimeError, match="model_not_found"):
            await core.run("go", 1)
    finally:
        await core.close()


def test_tables_have_a_row_for_each_door_and_leave_out_what_the_core_has_not() -> None:
    costs = [COST, replace(COST, door="core alone", parsed=False, client_us=0.0, bytes_down=0.0)]
    assert [table.row_count for table in tables(costs)] == [2, 2, 2, 2, 2, 2]
    assert set(tables(costs)[1].columns[1].cells) == {"3.0", ""}
    assert summary(costs).row_count == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "carrier pigeon"], "no such door: carrier pigeon"),
        (["--lanes", "many"], "--lanes: expected numbers"),
        (["--lanes", "0"], "--lanes: expected 1 or more"),
        (["--runs", "0"], "--runs: expected 1 or more"),
        (["--tokens", "1"], "--tokens: expected 2 or more"),
    ],
    ids=["door", "words", "no-lanes", "no-runs", "one-token"],
)
def test_wrong_usage_is_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["doors", *arguments])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert said in capsys.readouterr().err
