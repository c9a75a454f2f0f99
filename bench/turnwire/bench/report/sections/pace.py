"""Whether a stream keeps the model's pace: rate and added delay of each token (P4).

Above it: `building`. Below it: measurements of kind `pace`.
"""

from __future__ import annotations

from turnwire.bench.report.document import Made, Section, Table, Words
from turnwire.bench.report.figures import Measurements, Pace, PaceLine
from turnwire.bench.report.sections.missing import not_measured
from turnwire.bench.report.wording import number, source

ANCHOR, TITLE = "pace", "Keeping a fast model's pace"


def section(measured: Measurements) -> Section:
    """Returns the section."""
    read = measured.of(Pace)
    if read is None:
        return not_measured(ANCHOR, TITLE, "python -m turnwire.bench.pace --out bench-results/pace.json")
    rows = [
        (
            _setting(line),
            f"{line.rate:.1%}",
            number(line.delay_p50_ms),
            number(line.delay_p99_ms),
            number(line.engine_p99_ms),
            number(line.net_p99_ms),
        )
        for line in read.figures.lines
    ]
    head = ("one response", "rate achieved", "delay p50, ms", "delay p99, ms", "engine's own p99, ms", "net p99, ms")
    words = (
        "How late each token is in the client's hands against the moment that the set speed promises. The simulated "
        "engine's own lateness is measured beside it and taken off."
    )
    return Section(ANCHOR, TITLE, [Words(words), Table(head, rows), Made([source(read.found)])])


def _setting(line: PaceLine) -> str:
    bursts = f", {line.burst} at once" if line.burst > 1 else ""
    return f"{line.driver}, {line.tokens_per_second:,g} tokens/s{bursts}"
