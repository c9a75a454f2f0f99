"""Other gateways on the same upstream: what each adds to the time to the first token (P8).

Above it: `building`. Below it: measurements of kind `peers`, and the plot of lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.bench.intervals import taken
from turnwire.bench.report.document import Block, Made, Picture, Section, Table, Words
from turnwire.bench.report.figures import Chain, Measurements, PeerLine, Peers
from turnwire.bench.report.playing import size
from turnwire.bench.report.plots.lines import Line, Panel, draw
from turnwire.bench.report.plots.style import COLOURS, Look
from turnwire.bench.report.sections.missing import not_measured
from turnwire.bench.report.wording import interval, number, source

ANCHOR, TITLE = "peers", "Against other gateways"
_OURS = "turnwire"
_COLOURS = ("http", "native", "websocket", "bridge", "other", "loss")
_LINES = {"grpc": ("-", "o"), "ws": ("--", "s"), "sse": (":", "^")}
_HEAD = ("gateway", "history", "added TTFT, ms", "TTFT, ms", "total, ms", "CPU, ms a request", "memory, MB", "failed")
_MODES = {"full": "whole history in every request", "chained": "chained: only what is new"}


def section(measured: Measurements) -> Section:
    """Returns the section."""
    read = measured.of(Peers)
    if read is None:
        return not_measured(ANCHOR, TITLE, "make bench-peers")
    lines = read.figures.lines
    panels = [panel for mode in _MODES if (panel := _panel(lines, mode)) is not None]
    title = "Added time to the first token by gateway and history"
    blocks: list[Block] = [
        Words(
            "Each gateway stands in front of the same simulated upstream, gets the same requests, and takes turns with "
            "the others. Added TTFT is the time to the first token less what the upstream alone takes."
        )
    ]
    if panels:
        blocks.append(Picture(ANCHOR, draw(ANCHOR, title, panels, size), title))
    blocks.append(
        Table(
            _HEAD,
            [_row(line) for line in sorted(lines, key=lambda each: (each.mode, each.history))],
        )
    )
    if read.figures.chains:
        head = ("long chains of stored turns", "turns played", "messages that the upstream got", "history kept")
        words = "Whether the upstream still gets the whole conversation, turn after turn:"
        blocks += [Words(words), Table(head, [_chain(chain) for chain in read.figures.chains], words=True)]
    if read.figures.skipped:
        skipped = "\n".join(f"- {name}: {reason}" for name, reason in read.figures.skipped.items())
        blocks.append(Words(f"Not measured, and why:\n\n{skipped}"))
    return Section(ANCHOR, TITLE, [*blocks, Made([source(read.found)])])


def name_of(line: PeerLine) -> str:
    """Returns a gateway's name with the transport that it was asked over."""
    return f"{line.gateway}, {line.transport}"


def _chain(chain: Chain) -> tuple[str, ...]:
    kept = "yes" if chain.wrong_from is None else f"**no, from turn {chain.wrong_from:,} on**"
    if chain.refused:
        kept = f"{kept}; no more answer: {chain.refused}"
    return (chain.gateway, f"{chain.turns:,}", f"{chain.messages:,} of {chain.expected:,}", kept)


def _panel(lines: Sequence[PeerLine], mode: str) -> Panel | None:
    chosen = sorted((line for line in lines if line.mode == mode), key=lambda line: line.history)
    drawn: list[Line] = []
    others = [name for name in dict.fromkeys(line.gateway for line in lines) if not name.startswith(_OURS)]
    for name in dict.fromkeys(name_of(line) for line in chosen):
        figures = [(line.history, taken(line.added_ttft_ms)) for line in chosen if name_of(line) == name]
        # A logarithmic axis cannot show what is not above 0; the table has it.
        points = [(history, figure) for history, figure in figures if figure.value > 0]
        if points:
            drawn.append(Line(name, points, look=_look(name, others)))
    return Panel(_MODES[mode], "history", "added TTFT, ms", drawn) if drawn else None


def _look(name: str, others: Sequence[str]) -> Look:
    """Returns blue for us, another colour for each of the others, and a line for each transport."""
    gateway, _, transport = name.rpartition(", ")
    line, marker = _LINES.get(transport, ("-", "o"))
    colour = "grpc" if gateway.startswith(_OURS) else _COLOURS[others.index(gateway) % len(_COLOURS)]
    return Look(COLOURS[colour][0], line, marker)


def _row(line: PeerLine) -> tuple[str, ...]:
    figures = (interval(taken(each)) for each in (line.added_ttft_ms, line.ttft_ms, line.total_ms))
    failed = f"{line.failed}/{line.requests}"
    name = f"{name_of(line)} {line.version}, {line.mode}"
    costs = ("" if line.cpu_ms is None else number(line.cpu_ms), number(line.memory_mb))
    return (name, size(line.history), *figures, *costs, failed)
