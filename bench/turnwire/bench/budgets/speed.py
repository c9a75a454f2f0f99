"""P1 to P4: work of a turn, rollouts against HTTP and the floor, what the caches are good for, and pace.

Above it: `judging`. Below it: the figures of each kind, and rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from turnwire.bench.budgets.line import Line, Verdict, judged, missing
from turnwire.bench.folder import Found
from turnwire.bench.intervals import spread, taken
from turnwire.bench.metrics.statistics import Interval, bootstrap
from turnwire.bench.overrides import played
from turnwire.bench.report.figures import Ablation, Measurements, Pace, PaceLine, Turn, Turns
from turnwire.bench.report.playing import network
from turnwire.bench.results import Results
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.reading import ScenarioError, load, source_of
from turnwire.bench.scenario.values import Scenario
from turnwire.bench.summary import compare, least

RUN: Final = "make bench"
_KINDS: Final = {"items": "an engine that takes items", "harmony": "prompts rendered as harmony"}

_FLAT: Final = 1.2
_TURN_US: Final = 1000.0
_FASTER: Final = 0.40
_ABOVE_FLOOR: Final = 0.03
_BETTER: Final = 0.45
_RATE: Final = 0.99
"""What counts as no loss of rate: the clocks of two processes and the last token's tick are in it."""
_DELAY_MS: Final = 5.0
_OURS: Final = ("grpc-append", "grpc-create")
"""The first of them that was measured stands for gRPC."""
_PINNED: Final = "codex-fix"
_STATELESS: Final = "http-full"
_NEW: Final = "http-full-new"


def p1(found: Measurements) -> list[Line]:
    """Judges the server's work in a turn: flat whatever the history, and under a millisecond."""
    flat = ("P1", "server work of a continued turn, 1 KB to 10 MB of history", "at most 1.2 times the shortest's")
    brief = ("P1", "the same, at the median", "under 1 ms")
    turns = found.of(Turns)
    if turns is None or not (turns.figures.items and turns.figures.harmony):
        return [missing(*flat, RUN), missing(*brief, RUN)]
    raw = turns.found.content.figures
    ratios: list[tuple[str, Interval]] = []
    medians: list[tuple[str, Interval]] = []
    for kind, words in _KINDS.items():
        lines: dict[int, Turn] = getattr(turns.figures, kind)
        shortest = lines[min(lines)].median_us
        each = [taken(raw[kind][str(size)].get("ratio") or [line.median_us / shortest]) for size, line in lines.items()]
        ratios.append((words, max(each, key=lambda figure: figure.value)))
        longest = max(lines.values(), key=lambda line: line.median_us)
        medians.append((words, Interval(longest.median_us, longest.low_us, longest.high_us)))
    return [
        judged(*flat, _told(ratios, "", 2), _worst(ratios), _FLAT),
        judged(*brief, _told(medians, " µs", 0), _worst(medians), _TURN_US),
    ]


def _told(figures: Sequence[tuple[str, Interval]], unit: str, digits: int) -> str:
    return "; ".join(f"{words} {spread(figure, 1, digits)}{unit}" for words, figure in figures)


def _worst(figures: Sequence[tuple[str, Interval]]) -> Interval:
    return max((figure for _, figure in figures), key=lambda figure: figure.value)


def p2(rollouts: Sequence[Found[Results]]) -> list[Line]:
    """Judges the rollout of 30 tool calls: against stateless HTTP, and against the floor."""
    faster = (
        "P2",
        "30 tool calls at 1,000 tokens/s and 50 ms RTT, against stateless HTTP",
        "at least 40% faster",
    )
    near = ("P2", "the same, against inference, tools and unavoidable round trips", "within 3%")
    shipped = load(_PINNED)
    ours_too = [each for each in rollouts if _ours(each.content)]
    pinned = [each for each in ours_too if _played(each.content) == shipped]
    elsewhere = _elsewhere([each.content for each in ours_too], shipped)
    if not pinned:
        return [missing(*faster, RUN), missing(*near, RUN), *elsewhere]
    results = max(pinned, key=lambda each: each.content.date).content
    floor = least(compile_rollout(shipped), shipped.network.rtt)
    ours = _ours(results)
    lines: list[Line] = []
    kept, new = compare(results, ours, _STATELESS), compare(results, ours, _NEW)
    beside = "" if new is None else f"; than new connections each turn {spread(new, 100)}%"
    if kept is None:
        lines.append(missing(*faster, RUN))
    else:
        words = f"{ours}: {spread(kept, 100)}% than over kept connections{beside}"
        lines.append(judged(*faster, words, kept, _FASTER, least=True))
    end = bootstrap([[each.took for each in run.rollouts if not each.failure] for run in results.of(ours)])
    above = Interval(*(value / floor - 1 for value in (end.value, end.low, end.high)))
    words = f"{ours}: {spread(above, 100, 2)}% above {floor:.2f} s"
    return [*lines, judged(*near, words, above, _ABOVE_FLOOR), *elsewhere]


def _elsewhere(rollouts: Sequence[Results], shipped: Scenario) -> list[Line]:
    """Returns the same rollout over narrower and encrypted networks, for comparison: the latest of each."""
    lines: dict[str, Line] = {}
    for results in sorted(rollouts, key=lambda each: each.date):
        scenario = _played(results)
        if scenario is None or scenario == shipped or replace(scenario, network=shipped.network) != shipped:
            continue
        if scenario.network == replace(shipped.network, rtt=scenario.network.rtt):
            # Another round trip alone tells no more than the one that was set.
            continue
        ours = _ours(results)
        if (kept := compare(results, ours, _STATELESS)) is not None:
            over = network(scenario)
            words = f"{ours}: {spread(kept, 100)}% faster than over kept connections"
            lines[over] = Line("P2", f"the same over {over}", "for comparison", words, Verdict.NO_BUDGET)
    return list(lines.values())


def _played(results: Results) -> Scenario | None:
    """Returns what was played where it is a form of the pinned scenario; one from a file of the same name is not."""
    options = results.options
    if options.scenario != _PINNED or options.flags or options.source != source_of(_PINNED):
        return None
    try:
        return played(options)
    except (ScenarioError, ValueError):
        return None


def _ours(results: Results) -> str:
    """Returns the driver that stands for gRPC; empty where none has a rollout that ended well."""
    for driver in _OURS:
        if any(rollout.turns and not rollout.failure for run in results.of(driver) for rollout in run.rollouts):
            return driver
    return ""


def p3(found: Measurements) -> list[Line]:
    """Judges what all optimizations together do for the first token of a late turn."""
    what = ("P3", "TTFT of a late turn, everything cached against nothing", "at least 45% better")
    ablation = found.of(Ablation)
    if ablation is None or not ablation.figures.figures:
        return [missing(*what, RUN)]
    figures = [(each.model, taken(each.saved or [each.better])) for each in ablation.figures.figures]
    words = "; ".join(f"{model}: {spread(figure, 100, 0)}%" for model, figure in figures)
    return [judged(*what, words, min((f for _, f in figures), key=lambda f: f.value), _BETTER, least=True)]


def p4(found: Measurements) -> list[Line]:
    """Judges one response alone: whether the rate is held, and how late tokens are, sustained and in bursts."""
    lines: list[Line] = []
    pace = found.of(Pace)
    for words, wanted in (("1,000 tokens/s", _sustained), ("bursts of 4,000 tokens/s", _bursts)):
        rate = ("P4", f"one response, {words}", "no loss of rate")
        late = ("P4", "the same, delay a token added at p99, net of the engine's", "under 5 ms")
        line = None if pace is None else _line(pace.figures.lines, wanted)
        if line is None:
            lines += [missing(*rate, RUN), missing(*late, RUN)]
            continue
        share, added = Interval(line.rate, line.rate, line.rate), Interval(*(line.net_p99_ms,) * 3)
        lines.append(judged(*rate, f"{line.driver}: {line.rate:.1%} of it", share, _RATE, least=True))
        beside = f"{line.driver}: {line.net_p99_ms:.1f} ms, beside {line.engine_p99_ms:.1f} ms of the engine's"
        lines.append(judged(*late, beside, added, _DELAY_MS))
    return lines


def _sustained(line: PaceLine) -> bool:
    return line.tokens_per_second == 1000 and line.burst == 1


def _bursts(line: PaceLine) -> bool:
    return line.tokens_per_second >= 4000 and line.burst > 1


def _line(lines: Sequence[PaceLine], wanted: Callable[[PaceLine], bool]) -> PaceLine | None:
    """Returns the line that stands for gRPC at a speed."""
    by_driver = {line.driver: line for line in lines if wanted(line)}
    return next((by_driver[driver] for driver in _OURS if driver in by_driver), None)
