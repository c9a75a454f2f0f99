"""P1 to P4: work of a turn, rollouts against HTTP and the floor, what the caches are good for, and pace.

Above it: `judging`. Below it: the figures of each kind, and rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from turnwire.bench.budgets.line import Line, judged, missing
from turnwire.bench.folder import Found
from turnwire.bench.intervals import spread, taken
from turnwire.bench.metrics.statistics import Interval, bootstrap
from turnwire.bench.overrides import played
from turnwire.bench.report.figures import Ablation, Measurements, Pace, PaceLine, Turn, Turns
from turnwire.bench.results import Results
from turnwire.bench.scenario.compiling import compile_rollout
from turnwire.bench.scenario.reading import ScenarioError, load
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
    pinned = [each for each in rollouts if _as_shipped(each.content) and _ours(each.content)]
    if not pinned:
        return [missing(*faster, RUN), missing(*near, RUN)]
    results = max(pinned, key=lambda each: each.content.date).content
    scenario = load("codex-fix")
    floor = least(compile_rollout(scenario), scenario.network.rtt)
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
    return [*lines, judged(*near, words, above, _ABOVE_FLOOR)]


def _as_shipped(results: Results) -> bool:
    options = results.options
    try:
        # A scenario that was taken from a file of the same name is not the pinned one.
        return options.scenario == "codex-fix" and not options.flags and played(options) == load("codex-fix")
    except (ScenarioError, ValueError):
        return False


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
