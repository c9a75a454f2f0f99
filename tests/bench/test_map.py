"""Does it matter: what is fitted, predicted, judged and said, against a machine whose costs are known."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.map_samples import GRPC, KEPT, MACHINE, grid, measured

from turnwire.bench.map.__main__ import main
from turnwire.bench.map.cells import Cell, Grid, Judged, Place, Verdict
from turnwire.bench.map.checks import check, check_savings
from turnwire.bench.map.crossing import Crossing, extras
from turnwire.bench.map.model import TooLittle, fit
from turnwire.bench.map.observed import Played, observe
from turnwire.bench.map.reading import Map, NoMap, maps
from turnwire.bench.map.section import default_profile, map_section
from turnwire.bench.map.sent import Content, Counted, sent
from turnwire.bench.map.words import by_history, losing, tally
from turnwire.bench.map.workload import Profile, Step
from turnwire.bench.measured import write
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.network.link import INITIAL_WINDOW
from turnwire.bench.network.link import Path as Way
from turnwire.bench.report.document import Picture, Words
from turnwire.bench.results import Results
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.reading import load

PROFILE = Profile(settings=0, message=0, growth=0, tokens=101, pause=0.05, ttft=0.03)
SMALL = Grid(speeds=(100.0, 4000.0), rtts=(0.0, 0.1), histories=(1024, 1024**2), turns=(5, 30))


def observed(results: Sequence[Results]) -> list[Played]:
    found = [observe(each) for each in results]
    played = [each for each in found if isinstance(each, Played)]
    assert len(played) == len(found)
    return played


def the_map(results: Sequence[Results], profile: Profile = PROFILE, small: Grid = SMALL) -> Map:
    (made,) = maps(results, profile, small)
    assert isinstance(made, Map)
    return made


CHECKS = [measured("codex-fix", rtt="50ms", tps="250"), measured("chat-short", rtt="50ms")]


def test_the_fit_finds_what_turns_cost() -> None:
    files = observed(grid())
    model = fit(files, files, draws=20)
    later, first = model.costs["http-full-new"].later[0], model.costs["http-full-new"].first[0]
    assert later == pytest.approx([0.004, 0.02, 1.0], abs=1e-6)
    assert first == pytest.approx([0.004, 0.02, 1.0], abs=1e-6)
    assert model.costs["http-full-new"].anew
    assert model.costs["grpc-append"].later[0] == pytest.approx([0.003, 0, 0], abs=1e-6)


def test_a_turn_is_not_taken_to_be_shorter_for_a_longer_way() -> None:
    # The nearer ones were slowed down by something else.
    files = observed([*grid()[:1], *grid({name: replace(each, each=0.002) for name, each in MACHINE.items()})[1:]])
    model = fit(files, files, draws=20)
    for cost in model.costs.values():
        assert (cost.later >= 0).all()
        assert (cost.first >= 0).all()


def test_a_rollout_takes_what_was_worked_out_by_hand() -> None:
    files = observed(grid())
    model = fit(files, files, draws=20)
    # Two turns of 101 tokens at 1,000 a second, 30 ms to the first: 130 ms each; 50 ms of tools between; 100 ms RTT.
    steps = PROFILE.steps(1000.0, 2, 1_000_000)
    least = 0.130 * 2 + 0.050 + 0.100 * 2
    # The second turn holds the 404 bytes more that the model said.
    assert model.predict("http-full", steps, 0.1)[0] == pytest.approx(least + 2 * 0.004 + 0.02 * 2.000404)
    assert model.predict("grpc-append", steps, 0.1)[0] == pytest.approx(least + 2 * 0.003)
    assert model.predict("http-full-new", steps, 0.1)[0] == pytest.approx(least + 2 * 0.104 + 0.02 * 2.000404)
    gain = model.gain("grpc-append", "http-full-new", steps, 0.1).value
    assert gain == pytest.approx(1 - (least + 0.006) / (least + 0.208 + 0.04000808))


def test_a_prediction_that_is_right_has_no_error() -> None:
    made = the_map([*grid(), *CHECKS])
    assert len(made.checks) == 2 * len(MACHINE)
    for each in made.checks:
        assert each.error == pytest.approx(0, abs=1e-6)


def test_the_error_is_what_savings_are_off_by_in_what_was_not_fitted() -> None:
    files = observed(grid())
    model = fit(files, files, draws=20)
    # Each turn over HTTP took 100 ms longer there than it should.
    slower = observed([measured("codex-fix", {"grpc-append": GRPC, "http-full": replace(KEPT, each=0.104)}, rtt="0ms")])
    (found,) = check_savings(model, slower, "grpc-append", "http-full")
    assert found.measured == pytest.approx(found.predicted + 0.1)
    assert found.error == pytest.approx(0.1)
    assert [each.error < -0.3 for each in check(model, slower)] == [False, True]


def test_an_error_weighs_less_where_turns_are_long() -> None:
    wrong = {name: replace(each, each=each.each + 0.01 * (name == "http-full")) for name, each in MACHINE.items()}
    made = the_map([*grid(), measured("codex-fix", wrong, rtt="50ms")])
    assert made.errors["grpc-append"] == pytest.approx(0.01)
    for each in made.cells:
        steps = PROFILE.steps(each.place.speed, each.place.turns, each.place.history)
        took = made.model.predict("http-full", steps, each.place.rtt)[0]
        assert each.over_baseline["grpc-append"].error == pytest.approx(0.01 * each.place.turns / took)


@pytest.mark.parametrize(
    ("gain", "error", "verdict"),
    [
        (Interval(0.08, 0.06, 0.10), 0.0, Verdict.GAINS),
        (Interval(0.04, 0.03, 0.049), 0.0, Verdict.NEITHER),
        (Interval(0.08, 0.04, 0.12), 0.0, Verdict.UNSURE),
        (Interval(0.08, 0.06, 0.10), 0.02, Verdict.UNSURE),
        (Interval(0.08, 0.06, 0.10), None, Verdict.UNSURE),
        (Interval(0.0, 0.0, 0.0), None, Verdict.UNSURE),
        (Interval(0.5, -math.inf, math.inf), 0.0, Verdict.UNSURE),
        (Interval(-0.08, -0.10, -0.06), 0.0, Verdict.LOSES),
        (Interval(-0.04, -0.045, -0.03), 0.0, Verdict.NEITHER),
        (Interval(-0.06, -0.10, -0.04), 0.0, Verdict.UNSURE),
    ],
    ids=[
        "gains",
        "below-5%",
        "straddles",
        "straddles-by-the-error",
        "not-checked",
        "nothing-not-checked",
        "one-run",
        "loses",
        "loses-less",
        "loses-perhaps",
    ],
)
def test_a_verdict_needs_the_whole_interval(gain: Interval, error: float | None, verdict: Verdict) -> None:
    assert Judged(gain, error).verdict is verdict


def test_slower_for_certain_is_told_however_little() -> None:
    assert Judged(Interval(-0.002, -0.003, -0.001), 0.0).slower
    assert not Judged(Interval(-0.002, -0.003, -0.001), 0.002).slower
    assert not Judged(Interval(-0.002, -0.003, 0.001), 0.0).slower


def cell(speed: float = 1000.0, **gains: tuple[float, float]) -> Cell:
    judged = {name.replace("_", "-"): Judged(Interval(sum(ends) / 2, *ends), 0.0) for name, ends in gains.items()}
    return Cell(Place(speed, 0.02, 1024, 30), judged, judged)


def test_the_least_change_that_gains_is_what_a_cell_says() -> None:
    assert cell(http_chained=(0.06, 0.07), grpc_append=(0.2, 0.3)).step == 0
    assert cell(http_chained=(0.01, 0.02), ws_append=(0.06, 0.07), grpc_append=(0.2, 0.3)).step == 2
    assert cell(http_chained=(0.04, 0.07), grpc_append=(0.2, 0.3)).step == 3
    assert cell(http_chained=(0.06, 0.07), grpc_append=(0.2, 0.3)).best == "grpc-append"


def test_where_none_gains_for_certain_it_is_none_or_unsure() -> None:
    none, perhaps = cell(http_chained=(0.01, 0.02)), cell(http_chained=(0.01, 0.06))
    assert (none.step, none.unsure) == (None, False)
    assert (perhaps.step, perhaps.unsure) == (None, True)
    # A new connection for each turn is no choice that one would make instead.
    assert not cell(http_chained=(0.01, 0.02), http_full_new=(0.01, 0.06)).unsure


def test_intervals_come_from_repetitions_that_differ() -> None:
    noisy = dict(MACHINE) | {"http-full": replace(KEPT, noise=(0.0, 0.01, 0.03))}
    files = observed(grid(noisy))
    gain = fit(files, files).gain("grpc-append", "http-full", PROFILE.steps(4000.0, 30, 1024), 0.0)
    assert gain.low < gain.value < gain.high
    files = observed(grid())
    gain = fit(files, files).gain("grpc-append", "http-full", PROFILE.steps(4000.0, 30, 1024), 0.0)
    assert gain.high - gain.low < 1e-6


def test_what_slows_down_both_is_no_difference() -> None:
    slowed = (0.0, 0.005, 0.02)
    files = observed(grid({name: replace(each, noise=slowed) for name, each in MACHINE.items()}))
    model = fit(files, files)
    steps = PROFILE.steps(1000.0, 30, 1024)
    times = model.predict("grpc-append", steps, 0.0)
    assert times.max() - times.min() > 0.05
    saved = model.predict("http-chained", steps, 0.0) - times
    assert saved.max() - saved.min() < 1e-6


def test_one_repetition_gives_no_interval_and_colours_nothing() -> None:
    once = {name: replace(each, noise=(0.0,)) for name, each in MACHINE.items()}
    made = the_map([*grid(once), *CHECKS])
    assert all(each.unsure for each in made.cells)


def test_a_map_has_a_cell_for_each_place_and_says_what_matters() -> None:
    made = the_map([*grid(), *CHECKS])
    assert len({each.place for each in made.cells}) == len(made.cells) == 16
    found = {each.place: each for each in made.cells}
    slow, fast = Place(100.0, 0.1, 1024, 30), Place(4000.0, 0.0, 1024**2, 30)
    assert (found[slow].step, found[slow].unsure) == (None, False)
    # 20 ms and more of some 0.13 s are saved by chaining already.
    assert found[fast].step == 0
    assert found[fast].over_baseline["http-chained"].gain.value > 0.1
    assert found[slow].of_ours["http-full-new"].verdict is Verdict.GAINS
    none = sum(each.step is None for each in made.cells)
    assert 0 < none < 16
    assert f"in **{none}** of 16 cells nothing gains 5% end to end, in 0 it is unsure" in tally(made.cells)
    assert f"HTTP, chained in {16 - none}" in tally(made.cells)
    assert "Not measured, so a lesser change may do: WebSocket, create, WebSocket, append." in tally(made.cells)


def test_where_nothing_was_held_against_it_everything_is_unsure() -> None:
    made = the_map(grid())
    assert all(each.unsure for each in made.cells)
    text = words_of(map_section(grid(), PROFILE, SMALL))
    assert "not checked and every cell is unsure" in text
    assert "nothing matters" not in text


def test_where_grpc_loses_it_is_said_with_place_and_size() -> None:
    slow = dict(MACHINE) | {"grpc-append": replace(GRPC, each=0.030)}
    checks = [measured("codex-fix", slow, rtt="50ms"), measured("chat-short", slow, rtt="50ms")]
    made = the_map([*grid(slow), *checks])
    said = losing(made.cells)
    assert any("**loses more than 5%** against HTTP, chained" in each for each in said)
    assert any("**is slower for certain**" in each and "100 tokens/s" in each for each in said)
    assert losing([replace(each, of_ours={}) for each in made.cells])[0].startswith("Whether gRPC loses is not known")


def test_where_grpc_loses_nowhere_that_is_said() -> None:
    assert losing(the_map([*grid(), *CHECKS]).cells) == ["gRPC is slower for certain in no cell, against none of them."]


def test_up_to_which_speed_nothing_matters_is_read_from_the_cells() -> None:
    quiet, loud = cell(65.0, http_chained=(0.0, 0.01)), cell(250.0, http_chained=(0.06, 0.08))
    (said,) = by_history([quiet, loud])
    assert "up to 65 tokens/s nothing matters" in said
    assert "from 250 tokens/s on something gains, in 1 of 2 cells" in said
    assert "nothing matters up to 65 tokens/s, the fastest of the map" in by_history([quiet])[0]
    assert "even at 250 tokens/s something gains 5%, or may" in by_history([loud])[0]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], "no rollouts of long-history at its own speed"),
        (CHECKS, "no rollouts of long-history at its own speed"),
        ([measured("long-history", history="1024", tps="4000")], "no rollouts of long-history at its own speed"),
        ([measured("long-history", history="1024", rtt="0ms")], "found 1 KiB at 0 ms"),
        (grid()[:3], "expected two histories and two round trips"),
        (grid({"grpc-append": GRPC, "ws-create": GRPC}), "expected http-full and one of http-chained"),
        (grid({"http-full": KEPT}), "expected http-full and one of http-chained"),
    ],
    ids=["nothing", "checks-only", "another-speed", "one-corner", "one-history", "no-baseline", "baseline-only"],
)
def test_missing_files_give_a_reason_and_a_command(files: list[Results], reason: str) -> None:
    (made,) = maps(files, PROFILE, SMALL)
    assert isinstance(made, NoMap)
    assert reason in made.reason
    text = words_of(map_section(files, PROFILE, SMALL))
    assert reason in text
    assert "python -m turnwire.bench.run long-history" in text


def test_files_that_the_map_cannot_use_are_left_out_with_their_reason() -> None:
    good = measured("codex-fix")
    flagged, unfinished = measured("codex-fix"), replace(good, ended="interrupted")
    flagged.options.flags.append("--disable")
    assert observe(flagged) == "a server with --disable"
    assert observe(unfinished) == "it did not come to its end: interrupted"
    assert observe(measured("fleet")) == "more than one agent at once"
    failed = measured("chat-short")
    for run in failed.runs:
        run.record.rollouts[0].failure = "the socket ended"
    assert observe(failed) == "no rollout ended well"


def test_a_driver_is_fitted_to_the_files_that_have_it() -> None:
    files = [measured("long-history", dict(list(MACHINE.items())[:3]), history="1024", rtt="0ms"), *grid()[1:]]
    made = the_map([*files, *CHECKS])
    assert made.model.costs["http-full-new"].later[0] == pytest.approx([0.004, 0.02, 1.0], abs=1e-6)
    files = [measured("long-history", dict(list(MACHINE.items())[:3]), history="1024", rtt="0ms"), *grid()[:2]]
    files.append(measured("long-history", dict(list(MACHINE.items())[:3]), history="102400", rtt="0ms"))
    assert "http-full-new" not in the_map([*files, *CHECKS]).model.costs


def test_fitting_nothing_is_refused() -> None:
    with pytest.raises(TooLittle, match="found nothing"):
        fit([], [])


def test_what_a_driver_sends_is_found_from_bytes() -> None:
    files = observed([*grid(), *CHECKS])
    contents = {
        name: sent([Counted(each.steps, each.runs[name][0].up, each.runs[name][0].down) for each in files]).content
        for name in MACHINE
    }
    assert contents == {
        "grpc-append": Content.NEW,
        "http-chained": Content.SETTINGS,
        "http-full": Content.WHOLE,
        "http-full-new": Content.WHOLE,
    }


def test_what_a_driver_sends_of_a_turn_follows_from_its_size() -> None:
    files = observed([*grid(), *CHECKS])
    found = sent([Counted(each.steps, each.runs["http-full"][0].up, each.runs["http-full"][0].down) for each in files])
    first, second = found.crossings([Step(1000, 0, 5000, 10, 0.1, 0.0), Step(1000, 5040, 100, 10, 0.1, 0.0)])
    assert first.up == pytest.approx(100 + 6000, rel=1e-3)
    assert second.up == pytest.approx(100 + 6140, rel=1e-3)
    assert first.echoed + first.paced == pytest.approx(300, rel=1e-3)


def step(inference: float = 0.1, pause: float = 0.0) -> Step:
    return Step(0, 0, 0, 10, inference, pause)


def test_a_way_without_limits_adds_nothing() -> None:
    assert extras(Way(0.05), [step()] * 2, [Crossing(1e6, 1e6, 1e6)] * 2, anew=False) == [0.0, 0.0]


def test_bytes_wait_for_bandwidth() -> None:
    # 100,000 bytes up at 8 Mbit/s: 100 ms. Down, the last piece of 16 of 16,000 bytes: 1 ms.
    (added,) = extras(Way(0.02, 8e6), [step()], [Crossing(100_000, 0, 16_000)], anew=False)
    # A byte is the least that is sent, here of the echo before and after.
    assert added == pytest.approx(0.101, abs=3e-6)


def test_a_conversation_waits_for_tcp_to_open_its_window_again_after_quiet() -> None:
    way = Way(0.1, slow_start=True)
    sends = [Crossing(3 * INITIAL_WINDOW, 0, 10)] * 3
    added = extras(way, [step(0.05), step(10.0), step(0.05)], sends, anew=False)
    # It was opened by the turn before the first; ten seconds of quiet close it: 1 and 2 windows, a round trip more.
    assert added == pytest.approx([0.0, 0.0, 0.1], abs=1e-6)


def test_each_new_connection_begins_with_a_small_window() -> None:
    way = Way(0.1, slow_start=True)
    added = extras(way, [step(0.05)] * 2, [Crossing(3 * INITIAL_WINDOW, 0, 10)] * 2, anew=True)
    assert added == pytest.approx([0.1, 0.1], abs=1e-6)


@pytest.mark.parametrize(("name", "value"), [("slow_start", "True"), ("bandwidth_mbit", "20")])
def test_what_a_way_adds_is_worked_out_and_not_fitted(name: str, value: str) -> None:
    # A slow model, whose turns are long enough for the window to close, and a fast one; the fit knows neither.
    others = [measured("codex-fix", MACHINE, rtt="50ms", tps=tps, **{name: value}) for tps in ("65", "4000")]
    made = the_map([*grid(MACHINE, **{name: value}), *others])
    assert len(made.checks) == 2 * len(MACHINE)
    for each in made.checks:
        assert each.error == pytest.approx(0, abs=0.002)
    kept = made.model.costs["http-full"].later[0]
    assert kept == pytest.approx([0.004, 0.02, 0.0], abs=0.001)
    # What the window costs is in the cells: more than on a way without limits.
    place = Place(100.0, 0.1, 1024**2, 30)
    gains = {each.place: each.of_ours["http-full"].gain.value for each in made.cells}
    plain = {each.place: each.of_ours["http-full"].gain.value for each in the_map([*grid(), *CHECKS]).cells}
    assert gains[place] > plain[place] + 0.01


def test_the_profile_is_that_of_codex_fix() -> None:
    profile, scenario = default_profile(), load("codex-fix")
    assert (profile.ttft, profile.message) == (0.03, 1024)
    steps = profile.steps(1000.0, len(scenario.turns), 0)
    rollout = compile_rollout(scenario)
    assert sum(each.inference for each in steps) == pytest.approx(
        sum(each.inference for each in rollout.turns), rel=0.01
    )
    assert sum(each.pause for each in steps) == pytest.approx(sum(each.pause for each in rollout.turns))


def words_of(section: object) -> str:
    blocks = getattr(section, "blocks", [])
    return "\n".join(each.text for each in blocks if isinstance(each, Words))


def test_the_section_has_pictures_in_which_every_cell_has_its_figure() -> None:
    section = map_section([*grid(), *CHECKS], PROFILE, SMALL)
    pictures = [each for each in section.blocks if isinstance(each, Picture)]
    assert [each.name for each in pictures] == ["map", "map-grpc"]
    assert all(each.svg.count("%<") >= 16 for each in pictures)
    assert map_section([*grid(), *CHECKS], PROFILE, SMALL) == section


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["map", *arguments])
    try:
        return main()
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else -1


def test_the_command_writes_the_map_of_a_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number, each in enumerate([*grid(), *CHECKS]):
        write(each, tmp_path / f"{number}.json")
    (tmp_path / "broken.json").write_text("{")
    out = tmp_path / "out"
    cells_of = ("--speeds", "100,4000", "--rtts", "0ms,100ms", "--histories", "1KiB", "--turns", "5", "--tokens", "50")
    assert run(monkeypatch, str(tmp_path), "--out", str(out), *cells_of) == 0
    assert "of 4 cells" in (out / "map.md").read_text()
    assert "50 tokens a turn" in (out / "map.md").read_text()
    assert (out / "map.svg").read_text().startswith("<svg")
    assert "broken.json could not be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("/nowhere",), (".", "--turns", "one"), (".", "--rtts", "soon"), (".", "--tokens", "0")]
)
def test_wrong_usage_of_the_command_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err
