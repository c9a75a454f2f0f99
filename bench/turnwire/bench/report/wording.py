"""Figures and their sources in words, the same way everywhere in the report.

Above it: the report's sections. Below it: intervals and result files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from turnwire.bench.folder import Found
from turnwire.bench.intervals import known
from turnwire.bench.measured import COMPLETE, Measured
from turnwire.bench.metrics.statistics import Interval
from turnwire.bench.report.document import Source
from turnwire.bench.report.playing import Played


def number(value: float, digits: int = 3) -> str:
    """Returns a number of so many digits that count, thousands parted."""
    if value == 0:
        return "0"
    if math.isinf(value):
        return "unlimited"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}".replace("-", "\u2212")


def interval(figure: Interval, scale: float = 1.0, digits: int = 3) -> str:
    """Returns a figure and its interval; the figure alone where one run gives no interval."""
    value = number(figure.value * scale, digits)
    if not known(figure):
        return value
    return f"{value} ({number(figure.low * scale, digits)} to {number(figure.high * scale, digits)})"


def percent(share: float) -> str:
    """Returns a share as percent, with one digit behind the point where it is small."""
    value = abs(share) * 100
    return f"{value:.0f}%" if value >= 9.95 else f"{value:.1f}%"


def percents(figure: Interval) -> str:
    """Returns a share and its interval as percent; the share alone where one run gives no interval."""
    value, low, high = map(_one_digit, (figure.value, figure.low, figure.high))
    return f"{value}% ({low} to {high})" if known(figure) else f"{value}%"


def _one_digit(share: float) -> str:
    # Adding 0 takes the sign of what is rounded to 0.
    return f"{round(share * 100, 1) + 0.0:.1f}".replace("-", "\u2212")


def machine(facts: Mapping[str, Any]) -> str:
    """Returns the machine and versions of a result file in one line."""
    known = (("processor", ""), ("cores", " cores"), ("system", ""), ("python", "Python "), ("grpc", "grpcio "))
    words = [
        f"{facts[key]}{unit}" if unit == " cores" else f"{unit}{facts[key]}" for key, unit in known if key in facts
    ]
    packages = {name: version for name, version in facts.get("packages", {}).items() if name != "grpcio"}
    words += [f"{name} {version}" for name, version in packages.items()]
    return ", ".join(words) or "not told"


def source(found: Found[Measured]) -> Source:
    """Returns where a measurement's figures came from."""
    content = found.content
    ended = "" if content.ended == COMPLETE else content.ended
    load = f"{content.load_before:.1f} before, {content.load_after:.1f} after"
    return Source(found.name, content.command, content.date, machine(content.machine), load, ended)


def source_of_runs(played: Played) -> Source:
    """Returns where rollouts' figures came from."""
    results = played.results
    loads = [run.record.load_before for run in results.runs]
    load = f"{min(loads):.1f} to {max(loads):.1f} before the runs" if loads else "not told"
    ended = "" if results.ended == COMPLETE else results.ended
    return Source(played.file, results.options.command, results.date, machine(results.machine), load, ended)
