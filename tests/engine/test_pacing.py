from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from turnwire.server.engine.scripted.pacing import SLICE, Ticker
from turnwire.server.engine.scripted.script import Script
from turnwire.server.engine.scripted.turns import Speed
from turnwire.server.session.chunks import Channel, EngineFailure, Finish, TextChunk

if TYPE_CHECKING:
    from tests.engine.conftest import MakeStage, RecordingSink

SPEEDS = [65, 1000, 4000]


def toml(rate: float | str, *, tokens: int, ttft_ms: int = 100, burst: int = 1) -> str:
    rate = f'"{rate}"' if isinstance(rate, str) else rate
    return (
        f"[speed]\nttft_ms = {ttft_ms}\ntokens_per_second = {rate}\nburst = {burst}\n"
        f"[[turn]]\ntext = {{ tokens = {tokens} }}"
    )


def script(tokens: int) -> Script:
    chunks = [TextChunk(Channel.TEXT, "x")] * tokens
    return Script(chunks, range(tokens + 1), Finish())


@pytest.mark.parametrize("rate", SPEEDS)
def test_exactly_the_tokens_due_are_out_at_any_time(make_stage: MakeStage, rate: int) -> None:
    stage = make_stage(toml(rate, tokens=3 * rate))
    sink, _ = stage.start()
    start = stage.clock.now()
    stage.clock.run_to(start + 0.0999)
    assert sink.tokens == 0
    stage.clock.run_to(start + 0.1)
    assert sink.tokens == 1
    for tenths in range(1, 30):
        # Half a millisecond later: on a schedule finer than the ticker's resolution nothing is due in between.
        stage.clock.run_to(start + 0.1 + tenths / 10 + 0.0015)
        due = int((tenths / 10 + 0.0015) * rate) + 1
        behind = due - sink.tokens
        assert 0 <= behind <= rate * 0.001
    stage.clock.run_to(start + 0.1 + (3 * rate - 1) / rate + 0.001)
    assert sink.tokens == 3 * rate
    assert len(sink.outcomes) == 1
    assert stage.clock.pending == 0


@pytest.mark.parametrize("rate", SPEEDS)
def test_no_token_is_ever_early(make_stage: MakeStage, rate: int) -> None:
    stage = make_stage(toml(rate, tokens=rate))
    sink, _ = stage.start()
    start = stage.clock.now() + 0.1
    seen: list[tuple[float, int]] = []
    sink.on_output = lambda: seen.append((stage.clock.now() - start, sink.tokens))
    stage.clock.run(5)
    assert sink.tokens == rate
    for at, tokens in seen:
        assert tokens - 1 <= at * rate + 0.001


@pytest.mark.parametrize("rate", SPEEDS)
@pytest.mark.parametrize("burst", [4, 10, 64])
def test_bursts_leave_together_and_keep_the_rate(make_stage: MakeStage, rate: int, burst: int) -> None:
    stage = make_stage(toml(rate, tokens=burst * 20, burst=burst))
    sink, _ = stage.start()
    start = stage.clock.now() + 0.1
    for number in range(20):
        stage.clock.run_to(start + number * burst / rate + 1e-6 + 0.001 * (burst / rate < 0.001))
        assert sink.tokens == (number + 1) * burst
    assert len(sink.outcomes) == 1
    assert sink.deliveries == [burst] * 20


@pytest.mark.parametrize("rate", SPEEDS)
def test_a_late_wake_catches_up_and_nothing_drifts(make_stage: MakeStage, rate: int) -> None:
    stage = make_stage(toml(rate, tokens=10 * rate, ttft_ms=0))
    sink, _ = stage.start()
    start = stage.clock.now()
    for _ in range(37):
        stage.clock.run(0.0731)
        stage.clock.oversleep(0.0517)
    elapsed = stage.clock.now() - start
    assert sink.tokens == int(elapsed * rate + 1e-6) + 1
    stage.clock.run_to(start + 10 + 0.001)
    assert sink.tokens == 10 * rate


@pytest.mark.parametrize("rate", SPEEDS)
def test_a_pause_stops_the_clock_and_resume_shifts_the_schedule(make_stage: MakeStage, rate: int) -> None:
    stage = make_stage(toml(rate, tokens=2 * rate))
    sink, generation = stage.start()
    start = stage.clock.now() + 0.1
    stage.clock.run_to(start + 0.5)
    generation.pause()
    generation.pause()
    before = sink.tokens
    assert stage.clock.pending == 0
    stage.clock.run(100)
    assert sink.tokens == before
    generation.resume()
    generation.resume()
    assert sink.tokens == before
    stage.clock.run_to(start + 100 + 1.5)
    assert abs(sink.tokens - (1.5 * rate + 1)) <= max(1, rate * 0.001)
    stage.clock.run_to(start + 100 + 2 + 0.001)
    assert sink.tokens == 2 * rate
    assert len(sink.outcomes) == 1


def test_a_pause_before_the_first_token_delays_it(make_stage: MakeStage) -> None:
    stage = make_stage(toml(1000, tokens=10, ttft_ms=200))
    sink, generation = stage.start()
    start = stage.clock.now()
    stage.clock.run(0.15)
    generation.pause()
    stage.clock.run(10)
    generation.resume()
    stage.clock.run_to(start + 10 + 0.199)
    assert sink.tokens == 0
    stage.clock.run_to(start + 10 + 0.2001)
    assert sink.tokens == 1


def test_tokens_due_before_a_pause_but_not_handed_over_wait_for_resume(make_stage: MakeStage) -> None:
    stage = make_stage(toml(1000, tokens=100, ttft_ms=0))
    sink, generation = stage.start()
    stage.clock.time += 0.0505
    generation.pause()
    stage.clock.run(1)
    assert sink.tokens == 0
    generation.resume()
    stage.clock.run(0)
    assert sink.tokens == 51


def test_an_abort_leaves_nothing_scheduled_and_says_nothing(make_stage: MakeStage) -> None:
    stage = make_stage(toml(1000, tokens=1000))
    sink, generation = stage.start()
    stage.clock.run(0.5)
    before = sink.tokens
    generation.abort()
    generation.abort()
    generation.pause()
    generation.resume()
    assert stage.clock.pending == 0
    assert stage.engine.running == 0
    stage.clock.run(10)
    assert sink.tokens == before
    assert sink.outcomes == []


def test_an_abort_of_one_leaves_the_timer_for_the_other(make_stage: MakeStage) -> None:
    stage = make_stage(toml(1000, tokens=100))
    gone, generation = stage.start()
    other, _ = stage.start()
    generation.abort()
    assert stage.clock.pending == 1
    stage.clock.run(1)
    assert gone.chunks == []
    assert other.tokens == 100


def test_an_abort_while_paused_or_after_the_end_is_harmless(make_stage: MakeStage) -> None:
    stage = make_stage(toml(1000, tokens=10))
    _, paused = stage.start()
    paused.pause()
    paused.abort()
    sink, ended = stage.start()
    stage.clock.run(1)
    ended.abort()
    assert len(sink.outcomes) == 1
    assert stage.clock.pending == 0
    assert stage.engine.running == 0


def test_start_never_calls_the_sink_itself(make_stage: MakeStage) -> None:
    stage = make_stage(toml("unlimited", tokens=10, ttft_ms=0))
    sink, _ = stage.start()
    assert (sink.chunks, sink.outcomes) == ([], [])
    stage.clock.run(0)
    assert sink.tokens == 10


def test_an_unlimited_generation_delivers_in_slices_and_can_be_paused_between(make_stage: MakeStage) -> None:
    stage = make_stage(toml("unlimited", tokens=3 * SLICE + 1))
    sink, generation = stage.start()
    sink.on_output = lambda: generation.pause() if len(sink.deliveries) == 2 else None
    stage.clock.run(0.1)
    assert sink.deliveries == [SLICE, SLICE]
    assert stage.clock.pending == 0
    generation.resume()
    stage.clock.run(0.001)
    assert sink.deliveries == [SLICE, SLICE, SLICE, 1]
    assert len(sink.outcomes) == 1


def test_unlimited_generations_take_turns(make_stage: MakeStage) -> None:
    stage = make_stage(toml("unlimited", tokens=4 * SLICE))
    order: list[str] = []
    for name in "abc":
        sink, _ = stage.start()
        sink.on_output = lambda name=name: order.append(name)
    stage.clock.run(1)
    assert "".join(order) == "abc" * 4


def test_a_sink_may_pause_abort_and_start_from_within_an_output(make_stage: MakeStage) -> None:
    stage = make_stage(toml(1000, tokens=100))
    first, generation = stage.start()
    victim, aborted = stage.start()
    late: list[RecordingSink] = []

    def meddle() -> None:
        if first.tokens == 10:
            aborted.abort()
            generation.pause()
            generation.resume()
            late.append(stage.start()[0])

    first.on_output = meddle
    stage.clock.run(2)
    assert first.tokens == 100
    assert victim.tokens == 9
    assert victim.outcomes == []
    assert late[0].tokens == 100
    assert stage.clock.pending == 0


@pytest.mark.parametrize("rate", [1000, "unlimited"])
def test_an_abort_from_within_the_last_output_leaves_no_end(make_stage: MakeStage, rate: int | str) -> None:
    stage = make_stage(toml(rate, tokens=3))
    sink, generation = stage.start()
    sink.on_output = lambda: generation.abort() if sink.tokens == 3 else None
    stage.clock.run(1)
    assert sink.tokens == 3
    assert sink.outcomes == []
    assert stage.engine.running == 0


def test_a_pause_from_within_the_last_output_does_not_hide_the_end(make_stage: MakeStage) -> None:
    stage = make_stage(toml(1000, tokens=3))
    sink, generation = stage.start()
    sink.on_output = lambda: generation.pause() if sink.tokens == 3 else None
    stage.clock.run(1)
    assert len(sink.outcomes) == 1
    assert stage.engine.running == 0
    assert stage.clock.pending == 0


def test_a_failing_sink_loses_its_own_generation_only(make_stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    stage = make_stage(toml(1000, tokens=100))
    bad, _ = stage.start()
    good, _ = stage.start()

    def fail() -> None:
        msg = "boom"
        raise ValueError(msg)

    bad.on_output = fail
    stage.clock.run(1)
    assert bad.deliveries == [1]
    assert good.tokens == 100
    assert len(good.outcomes) == 1
    assert stage.engine.running == 0
    assert "boom" in caplog.text


def test_one_timer_serves_all_generations_and_each_gets_one_call_a_tick(make_stage: MakeStage) -> None:
    stage = make_stage(toml(4000, tokens=4000))
    sinks = [stage.start()[0] for _ in range(50)]
    stage.clock.run(0.5)
    assert stage.clock.pending == 1
    stage.clock.run(1)
    for sink in sinks:
        assert sink.tokens == 4000
        assert len(sink.deliveries) <= 1001


def test_many_paused_and_aborted_generations_do_not_pile_up(make_stage: MakeStage) -> None:
    stage = make_stage(toml(1000, tokens=10, ttft_ms=1_000_000))
    survivor, _ = stage.start()
    for _ in range(1000):
        _, generation = stage.start()
        generation.pause()
        generation.resume()
        generation.abort()
    assert stage.engine.running == 1
    assert stage.engine.ticker.scheduled <= 200
    stage.clock.run(1001)
    assert survivor.tokens == 10


def test_a_script_without_tokens_ends_at_its_first_token_time(make_stage: MakeStage) -> None:
    stage = make_stage('[speed]\nttft_ms = 50\n[[turn]]\nerror = { code = "server_error" }')
    sink, _ = stage.start()
    stage.clock.run(0.049)
    assert sink.outcomes == []
    stage.clock.run(0.002)
    assert isinstance(sink.outcomes[0], EngineFailure)
    assert sink.chunks == []


async def test_it_runs_on_the_event_loops_own_clock(sink: RecordingSink) -> None:
    ticker = Ticker()
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    began = loop.time()
    times: list[float] = []

    def note() -> None:
        times.append(loop.time() - began)
        if sink.tokens == 50:
            done.set()

    sink.on_output = note
    ticker.start(script(50), Speed(0.01, 1000, 1), sink)
    async with asyncio.timeout(5):
        await done.wait()
    assert times[0] >= 0.01 - 0.002
    assert times[-1] >= 0.01 + 0.049 - 0.002
    assert ticker.running == 0


async def test_unlimited_output_does_not_starve_the_loop(sink: RecordingSink) -> None:
    ticker = Ticker()
    ticker.start(script(100 * SLICE), Speed(), sink)
    turns = 0
    async with asyncio.timeout(5):
        while not sink.outcomes:
            await asyncio.sleep(0)
            turns += 1
    assert turns >= 100
