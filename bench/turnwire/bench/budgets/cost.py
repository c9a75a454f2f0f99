"""P5 to P8: what a streamed token costs over each door, its bytes, memory, and other gateways.

Above it: `judging`. Below it: the figures of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from turnwire.bench.budgets.line import Line, Verdict, judged, missing
from turnwire.bench.doors_core import NAME as CORE
from turnwire.bench.doors_cost import Cost
from turnwire.bench.intervals import spread, taken
from turnwire.bench.metrics.statistics import Interval, paired_bootstrap
from turnwire.bench.report.figures import Doors, Measurements, Memory, PeerLine, Peers, Read
from turnwire.bench.report.playing import size as size_words

RUN: Final = "make bench"
GRPC: Final = "gRPC, one stream"
EACH: Final = "WebSocket, a socket each"
SIXTEEN: Final = "WebSocket, 16 lanes a socket"
ONE: Final = "WebSocket, one socket"
DEFLATE: Final = "WebSocket, 16 lanes, deflate"
OURS: Final = "turnwire"

_KB: Final = 1024
_MANY: Final = 200
_SERVER: Final = 1 / 2
_CLIENT: Final = 1 / 4
_PARITY: Final = 1.05
"""Even is what is at most so much dearer: that much is noise."""
_BATCHED: Final = 1 / 8
_ALONE: Final = 1 / 5
_IDLE: Final = 50 * _KB
_OBJECTS: Final = 8 * _KB
_BESIDE: Final = 1024 * _KB
_GROWTH_MS: Final = 1.0


class _Rounds:
    """The rounds of a measurement of the doors, with some number of lanes."""

    def __init__(self, read: Read[Doors], lanes: int) -> None:
        raw = read.found.content.figures.get("rounds")
        rounds = [read.figures.costs] if raw is None else msgspec.convert(raw, list[list[Cost]])
        self._rounds = [[cost for cost in costs if cost.lanes == lanes] for costs in rounds]

    def ratio(self, one: str, other: str, figure: Callable[[Cost], float], *, net: bool = False) -> Interval | None:
        """Returns the ratio of two doors, round by round: of what clients cost that parse events, where there are.

        With `net` the core's figure is taken off both. None where a door was not measured, or where nothing of the
        other's is left then.
        """
        pairs: list[tuple[float, float]] = []
        for costs in self._rounds:
            # Sorted so that clients that parse come last and stay.
            by_door = {cost.door: cost for cost in sorted(costs, key=lambda cost: cost.parsed)}
            if not by_door.keys() >= {one, other, *([CORE] if net else [])}:
                continue
            shared = figure(by_door[CORE]) if net else 0.0
            left, right = figure(by_door[one]) - shared, figure(by_door[other]) - shared
            if right > 0:
                pairs.append((left, right))
        return paired_bootstrap(pairs, lambda left, right: left / right) if pairs else None


def p5(found: Measurements) -> list[Line]:
    """Judges CPU a token over one gRPC stream against WebSockets, net of the core that doors share."""
    doors = found.of(Doors)
    rounds = None if doors is None else _Rounds(doors, _MANY)
    lines: list[Line] = []
    for door, name, server, client in (
        (EACH, "200x1", _SERVER, _CLIENT),
        (SIXTEEN, "13x16", _PARITY, _PARITY),
        (ONE, "1x200", None, None),
    ):
        what = f"200 responses, one gRPC stream against WebSocket {name}: CPU a token of"
        both = ("P5", f"{what} server, net of the core", _asked(server)), ("P5", f"{what} client", _asked(client))
        net = None if rounds is None else rounds.ratio(GRPC, door, _server, net=True)
        whole = None if rounds is None else rounds.ratio(GRPC, door, _server)
        own = None if rounds is None else rounds.ratio(GRPC, door, _client)
        for head, ratio, limit in zip(both, (net, own), (server, client), strict=True):
            if ratio is None:
                lines.append(missing(*head, RUN))
                continue
            words = f"{spread(ratio, 1, 2)} times"
            if ratio is net and whole is not None:
                words += f"; {spread(whole, 1, 2)} with the core"
            if limit is None:
                lines.append(Line(*head, words, Verdict.NO_BUDGET))
            else:
                lines.append(judged(*head, words, ratio, limit))
    return lines


def _asked(limit: float | None) -> str:
    if limit is None:
        return "for comparison"
    return "parity or better" if limit == _PARITY else f"at most 1/{1 / limit:.0f}"


def _server(cost: Cost) -> float:
    return cost.server_us


def _client(cost: Cost) -> float:
    return cost.client_us


def _bytes(cost: Cost) -> float:
    return cost.bytes_down


def p6(found: Measurements) -> list[Line]:
    """Judges bytes a streamed token against the official WebSocket, uncompressed."""
    doors = found.of(Doors)
    lines: list[Line] = []
    for words, count, limit in (("200 responses, in batches", _MANY, _BATCHED), ("one response alone", 1, _ALONE)):
        head = ("P6", f"bytes a streamed token against official WebSocket, {words}", f"at most 1/{1 / limit:.0f}")
        rounds = None if doors is None else _Rounds(doors, count)
        ratio = None if rounds is None else rounds.ratio(GRPC, SIXTEEN, _bytes)
        if doors is None or rounds is None or ratio is None:
            lines.append(missing(*head, RUN))
            continue
        each = {cost.door: cost.bytes_down for cost in doors.figures.costs if cost.lanes == count}
        told = f"1/{1 / ratio.value:.1f}: {each[GRPC]:.0f} against {each[SIXTEEN]:.0f}"
        told += f", {each[DEFLATE]:.0f} with deflate" if DEFLATE in each else ""
        lines.append(judged(*head, told, ratio, limit))
    return lines


def p7(found: Measurements) -> list[Line]:
    """Judges memory: of an idle session, and beside the items of a long history."""
    heads = (
        ("P7", "memory of an idle stream with its connection", "at most 50 KB"),
        ("P7", "of it, the session's own objects", "at most 8 KB"),
        ("P7", "memory for 100,000 tokens of history beside one copy of the items", "at most 1 MB"),
    )
    memory = found.of(Memory)
    if memory is None or not memory.figures.conversations:
        return [missing(*head, RUN) for head in heads]
    idle, kept = memory.figures.idle, memory.figures.conversations
    shared = f"{idle.own_connection / _KB:.1f} KB; {idle.shared_connection / _KB:.1f} KB on a shared connection"
    beside = "; ".join(f"{name}: {each.beside / _KB:.0f} KB" for name, each in kept.items())
    worst = max(each.beside for each in kept.values())
    figures = (
        (shared, idle.own_connection, _IDLE),
        (f"{idle.objects / _KB:.1f} KB", idle.objects, _OBJECTS),
        (beside, worst, _BESIDE),
    )
    return [
        judged(*head, words, Interval(value, value, value), limit)
        for head, (words, value, limit) in zip(heads, figures, strict=True)
    ]


def p8(found: Measurements) -> list[Line]:
    """Judges what we add to the first token of a chained turn, against other gateways."""
    ahead = ("P8", "added TTFT of a chained turn against other gateways", "ahead of every one at every size")
    grown = ("P8", "its growth from the shortest to the longest history", "under 1 ms")
    run = "make bench-peers"
    peers = found.of(Peers)
    chained = _chained(peers.figures.lines) if peers is not None else {}
    ours = chained.pop(OURS, {})
    if not ours:
        return [missing(*ahead, run), missing(*grown, run)]
    added = {size: taken(line.added_ttft_ms) for size, line in ours.items()}
    growth = added[max(added)].value - added[min(added)].value
    between = f"{size_words(min(added))} to {size_words(max(added))}"
    second = judged(*grown, f"{growth:+.1f} ms from {between}", Interval(growth, growth, growth), _GROWTH_MS)
    if not any(size in lines for lines in chained.values() for size in ours):
        return [missing(*ahead, run), second]
    words: list[str] = []
    met = sure = True
    for size, figure in sorted(added.items()):
        others = {name: taken(lines[size].added_ttft_ms) for name, lines in chained.items() if size in lines}
        met = met and all(figure.value < other.value for other in others.values())
        sure = sure and all(figure.high < other.low or figure.low > other.high for other in others.values())
        against = ", ".join(f"{name} {spread(other)}" for name, other in others.items())
        words.append(f"{size_words(size)}: {spread(figure)} ms against {against or 'nobody'}")
    return [Line(*ahead, "; ".join(words), Verdict.MET if met else Verdict.MISSED, sure), second]


def _chained(lines: Sequence[PeerLine]) -> dict[str, dict[float, PeerLine]]:
    """Returns by gateway and size the line that stands for it: of several transports the one that adds least."""
    found: dict[str, dict[float, PeerLine]] = {}
    for line in lines:
        if line.mode != "chained" or not line.added_ttft_ms:
            continue
        sizes = found.setdefault(line.gateway, {})
        before = sizes.get(line.history)
        if before is None or line.added_ttft_ms[0] < before.added_ttft_ms[0]:
            sizes[line.history] = line
    return found
