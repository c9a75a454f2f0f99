"""Every driver on a real server behind the proxy: the same words and calls, over whatever transport."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from turnwire.bench.campaign import hurried
from turnwire.bench.drivers.play import run
from turnwire.bench.drivers.registry import DRIVERS
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.reading import read
from turnwire.bench.scenario.values import Idle, Load, Output
from turnwire.bench.stand import Stand, standing

SOURCE = """
[request]
tools = "2KiB"
history = "9KiB"

[limits]
max_seconds = 20

[fork]
after = 3
lanes = 2

[[turn]]
reasoning = 5
[[turn.call]]
name = "look"
output = { size = "1KiB" }
[[turn.call]]
name = "look"
output = { size = "2KiB" }

[[turn]]
text = 5
[[turn.call]]
name = "look"

[[turn]]
text = 7

[[turn]]
[[turn.call]]
name = "look"

[[turn]]
text = 9
"""
SCENARIO = hurried(read(SOURCE, "small.toml"))


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def stand(request: pytest.FixtureRequest) -> Generator[Stand, None, None]:
    network = replace(SCENARIO.network, tls=request.param)
    with standing(compile_rollout(SCENARIO).script, network, bridge=True) as running:
        yield running


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_driver_plays_what_the_scenario_says(stand: Stand, driver: str) -> None:
    if reason := DRIVERS[driver].refusal(SCENARIO):
        pytest.skip(reason)
    two_at_once = replace(SCENARIO, load=Load(3, 2, 0.0))
    record = await run(stand.job(driver, two_at_once, 0))
    assert (record.failure, [rollout.failure for rollout in record.rollouts]) == ("", [""] * 3)
    # Three turns, then two in each of two lanes.
    assert [len(rollout.turns) for rollout in record.rollouts] == [7] * 3
    assert record.turns == 21
    assert record.tokens == 3 * sum(
        turn.tokens * lanes for turn, lanes in zip(compile_rollout(SCENARIO).turns, (1, 1, 1, 2, 2), strict=True)
    )
    assert (record.bytes_up == 0) is DRIVERS[driver].direct
    assert set(record.cpu) == {"server", "proxy", "bridge", "client"}


@pytest.mark.parametrize(
    ("driver", "told"),
    [("grpc-append", True), ("grpc-streams", True), ("native-append", True), ("null", True), ("http-full", False)],
)
async def test_the_stages_of_the_server_are_told_where_the_transport_tells_them(
    stand: Stand, driver: str, told: bool
) -> None:
    record = await run(stand.job(driver, SCENARIO, 0))
    [rollout] = record.rollouts
    for turn in rollout.turns:
        figures = (turn.pre_inference, turn.inference_measured, turn.post_inference)
        # The time between two moments that were measured; none is 0, appends least of all.
        assert all(figure is not None and figure > 0 for figure in figures) if told else figures == (None,) * 3


async def test_each_piece_of_text_is_noted_where_it_is_asked_for() -> None:
    texts = replace(SCENARIO, turns=SCENARIO.turns[2:3], fork=None)
    rollout = compile_rollout(texts)
    with standing(rollout.script, texts.network, bridge=False) as running:
        for driver in ("grpc-append", "http-chained", "null", "ws-append"):
            record = await run(replace(running.job(driver, texts, 0), pieces=True))
            [played] = record.rollouts
            assert (driver, played.failure) == (driver, "")
            [pieces] = played.pieces
            assert sum(size for _, size in pieces) == len(rollout.turns[0].text)
            moments = [moment for moment, _ in pieces]
            assert moments == sorted(moments)
            assert moments[0] > 0


DONE_ONLY = replace(SCENARIO, output=Output(done_only=True, token_ids=True, logprobs=True))


@pytest.mark.parametrize(
    "driver",
    ["null", "grpc-create", "grpc-append", "grpc-streams", "grpc-node", "native-append", "http-full", "http-chained"],
)
async def test_a_trainer_gets_everything_with_the_end_and_nothing_before(stand: Stand, driver: str) -> None:
    if reason := DRIVERS[driver].refusal(DONE_ONLY):
        pytest.skip(reason)
    record = await run(stand.job(driver, DONE_ONLY, 0))
    [rollout] = record.rollouts
    assert (record.failure, rollout.failure) == ("", "")
    assert [turn.ttft for turn in rollout.turns] == [turn.took for turn in rollout.turns]


@pytest.mark.parametrize("driver", ["ws-append", "bridge"])
async def test_where_all_is_streamed_a_trainer_gets_it_streamed(stand: Stand, driver: str) -> None:
    [rollout] = (await run(stand.job(driver, DONE_ONLY, 0))).rollouts
    assert rollout.failure == ""
    assert any(turn.ttft < turn.took for turn in rollout.turns)


@pytest.mark.parametrize("driver", ["grpc-create", "http-full"])
async def test_what_is_not_streamed_costs_fewer_bytes_down(stand: Stand, driver: str) -> None:
    scenario = replace(SCENARIO, output=Output(done_only=True))
    sizes = [(await run(stand.job(driver, each, 0))).bytes_down for each in (scenario, SCENARIO)]
    assert 0 < sizes[0] < sizes[1]


async def test_rollouts_that_begin_at_random_are_all_played(stand: Stand) -> None:
    record = await run(stand.job("grpc-append", replace(SCENARIO, load=Load(5, 1, 500.0)), 1))
    assert [rollout.failure for rollout in record.rollouts] == [""] * 5


@pytest.mark.parametrize("driver", ["grpc-create", "ws-create", "http-chained"])
async def test_idle_sessions_stand_beside_what_is_measured(stand: Stand, driver: str) -> None:
    record = await run(stand.job(driver, replace(SCENARIO, idle=Idle(60, 0.0)), 0))
    assert (record.failure, record.rollouts[0].failure) == ("", "")
    assert record.memory["server_idle"] > record.memory["server_before"] / 2 > 0


@pytest.mark.parametrize(("driver", "connections"), [("ws-each", 34), ("ws-create", 3), ("ws-one", 1)])
async def test_agents_share_as_many_sockets_as_a_driver_says(
    stand: Stand, driver: str, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    connect: Any = aiohttp.ClientSession.ws_connect

    def counted(session: aiohttp.ClientSession, url: str, **options: Any) -> Any:
        opened.append(url)
        return connect(session, url, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "ws_connect", counted)
    short = replace(SCENARIO, load=Load(68, 34, 0.0), turns=SCENARIO.turns[:3], fork=None)
    record = await run(stand.job(driver, short, 0))
    assert {rollout.failure for rollout in record.rollouts} == {""}
    assert len(opened) == connections


async def test_whole_histories_cost_more_bytes_than_what_is_new(stand: Stand) -> None:
    sizes = {
        driver: (await run(stand.job(driver, SCENARIO, 0))).bytes_up
        for driver in ("http-full", "http-chained", "grpc-create")
    }
    assert sizes["http-full"] > sizes["http-chained"] > sizes["grpc-create"]


@pytest.mark.parametrize("driver", ["grpc-create", "grpc-node", "http-full", "ws-append"])
async def test_a_model_that_says_something_else_is_found_out(stand: Stand, driver: str) -> None:
    if reason := DRIVERS[driver].refusal(SCENARIO):
        pytest.skip(reason)
    other = replace(SCENARIO, turns=(*SCENARIO.turns[:-1], replace(SCENARIO.turns[-1], text=4)))
    record = await run(stand.job(driver, other, 0))
    [rollout] = record.rollouts
    assert rollout.failure.startswith("turn 5: text: expected ")
    assert record.turns == 0


async def test_a_run_that_takes_too_long_is_stopped_and_keeps_what_there_is(stand: Stand) -> None:
    patient = replace(SCENARIO, turns=tuple(replace(turn, think=50.0) for turn in SCENARIO.turns), max_seconds=1.0)
    record = await run(stand.job("grpc-create", patient, 0))
    assert record.failure == "stopped after 1 s, the scenario's limit"
    assert len(record.rollouts[0].turns) == 3


async def test_a_server_that_is_gone_is_told() -> None:
    with standing(compile_rollout(SCENARIO).script, SCENARIO.network, bridge=False) as running:
        job = running.job("ws-create", SCENARIO, 0)
        assert not running.dead()
        ended = os.pidfd_open(running.server.pid)
        os.kill(running.server.pid, signal.SIGKILL)
        try:
            assert select.select([ended], [], [], 20)[0], "the server was killed"
        finally:
            os.close(ended)
        record = await run(job)
        assert record.failure
        assert running.dead() == "server"
