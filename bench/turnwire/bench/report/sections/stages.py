"""Where the time of a turn goes: the API service, the engine, what cannot be avoided, and the rest.

Above it: `building`. Below it: rollouts, `metrics.stages`, and the plot of bars.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.bench.report.document import Made, Picture, Section, Table, Words
from turnwire.bench.report.playing import Played
from turnwire.bench.report.plots.bars import Bar, Panel, draw
from turnwire.bench.report.sections.missing import not_measured
from turnwire.bench.report.wording import number, source_of_runs
from turnwire.bench.summary import Headline

ANCHOR, TITLE = "stages", "Where the time of a turn goes"
_PREFERRED = "codex-fix"
_OVERHEAD = (("API service", "grpc"), ("engine late", "bridge"), ("rest: encoding, doors, network, client", "http"))
_WHOLE = (
    ("inference", "wait"),
    ("unavoidable round trip", "other"),
    ("tools and user", "calm"),
    ("overhead", "loss"),
)


def section(rollouts: Sequence[Played]) -> Section:
    """Returns the section, of one setting: that of the budget, or the first there is."""
    having = [played for played in rollouts if played.lines]
    if not having:
        return not_measured(ANCHOR, TITLE, "python -m turnwire.bench.run codex-fix --out bench-results/codex-fix.json")
    played = min(having, key=_preference)
    whole = [Bar(line.driver, _parts(line), f"{number(sum(_parts(line)))} ms") for line in played.lines]
    over = [Bar(line.driver, _overhead(line), _written(line)) for line in played.lines]
    title = f"Parts of a turn by driver: {played.setting}"
    panels = [
        Panel("A turn and what follows it", "ms, medians of each part", whole, _WHOLE),
        Panel("Its overhead alone", "ms, medians of each part", over, _OVERHEAD),
    ]
    return Section(
        ANCHOR,
        TITLE,
        [
            Words(
                f"{played.setting}. The server tells its own stages over gRPC and `turnwire.v1`; the public API's JSON "
                "has no field for them, so with HTTP and the official WebSocket they are part of the rest."
            ),
            Picture(ANCHOR, draw(ANCHOR, title, panels), title),
            Table(
                ("ms", "API service", "engine late", "rest", "inference", "round trip", "tools and user"),
                [(line.driver, *_cells(line)) for line in played.lines],
            ),
            Made([source_of_runs(played)]),
        ],
    )


def _preference(played: Played) -> tuple[bool, bool, int, str]:
    # Where sessions are idle, or many agents crowd the machine, a turn is not what is looked at.
    crowded = played.scenario.idle is not None or played.scenario.load.agents > 1
    return played.scenario.name != _PREFERRED, crowded, len(played.results.options.overrides), played.file


def _overhead(line: Headline) -> list[float]:
    parts = line.parts
    return [1000 * (each or 0.0) for each in (parts.api, parts.late, parts.rest)]


def _parts(line: Headline) -> list[float]:
    parts = line.parts
    return [*(1000 * each for each in (parts.inference, parts.network, parts.client)), sum(_overhead(line))]


def _written(line: Headline) -> str:
    told = "" if line.parts.api is None else f" (API {number(line.parts.api * 1000, 2)})"
    return f"{number(sum(_overhead(line)))} ms{told}"


def _cells(line: Headline) -> list[str]:
    parts = line.parts
    figures = (parts.api, parts.late, parts.rest, parts.inference, parts.network, parts.client)
    return ["not told" if each is None else number(each * 1000) for each in figures]
