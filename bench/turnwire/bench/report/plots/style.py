"""How every plot looks, and how it becomes an SVG that stands in a page, by day and by night, the same every time.

Above it: the plots. Below it: matplotlib.

Colours tell transports apart, lines and markers the shapes within one, and every line has its name at its end, so that
nobody depends on colours. A colour is a CSS variable with the day's colour to fall back on: a page may set others for
the night, and a file alone shows the day's.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any, Final, cast
from xml.etree import ElementTree

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

WIDTH: Final = 7.2
"""Inches: at 700 pixels the smallest type is 11 pixels high."""
SVG: Final = "http://www.w3.org/2000/svg"
COLOURS: Final = {
    "ink": ("#1d2025", "#e7e9ec"),
    "quiet": ("#5c636d", "#a3abb5"),
    "grid": ("#d9dce1", "#3a4048"),
    "paper": ("#ffffff", "#16191d"),
    "grpc": ("#0a62b8", "#62b0ff"),
    "http": ("#b04a00", "#ff9a4d"),
    "websocket": ("#00775c", "#3fcfa6"),
    "native": ("#8a3a94", "#dd8fe6"),
    "bridge": ("#7a6a00", "#d6c23f"),
    "other": ("#6a7280", "#98a1ad"),
    "wait": ("#c3c9d2", "#4d5661"),
    "calm": ("#8fb0c4", "#5f8299"),
    "gain": ("#23845a", "#4fc08d"),
    "loss": ("#bd3b2b", "#ff8a78"),
}
"""By name: by day, and by night."""
INK, QUIET, GRID, PAPER = (COLOURS[name][0] for name in ("ink", "quiet", "grid", "paper"))
_SETTINGS: Final[Any] = {
    # Texts stay texts, and nothing in the file depends on the day.
    "svg.fonttype": "none",
    "svg.hashsalt": "turnwire",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
}
_FAMILIES: Final = (
    ("grpc", ("grpc", "turnwire")),
    ("native", ("native", "websocket `turnwire")),
    ("websocket", ("ws", "websocket", "aiohttp, 16", "aiohttp, a socket")),
    ("http", ("http", "sse", "aiohttp, sse")),
    ("bridge", ("bridge",)),
)
"""Transports' colours, and how names of them begin."""
_FONTS: Final = "'DejaVu Sans', Verdana, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Look:
    """How one line or row is drawn."""

    colour: str
    line: str
    marker: str


def look(name: str) -> Look:
    """Returns the look of a driver, door or gateway, by its name: the transport's colour, the shape's line."""
    low = name.lower()
    bare = low.removeprefix("bare ")
    family = next((family for family, starts in _FAMILIES if bare.startswith(starts)), "other")
    dotted = low.startswith("bare ") or any(word in low for word in ("new", "each", "streams", "deflate"))
    line = ":" if dotted else "--" if any(word in low for word in ("create", "chained", "16 lanes")) else "-"
    return Look(COLOURS[family][0], line, {"-": "o", "--": "s", ":": "^"}[line])


def _settings() -> AbstractContextManager[None]:
    # The type of its argument names every setting there is, and is more than a checker shows.
    return cast("Any", mpl).rc_context(_SETTINGS)  # type: ignore[no-any-return]


@contextmanager
def canvas(rows: int, columns: int, height: float, **options: Any) -> Generator[tuple[Any, Any]]:
    """Yields a figure of that height in inches, and its axes in an array of rows and columns."""
    with _settings():
        made: Any = plt.subplots(rows, columns, figsize=(WIDTH, height), layout="constrained", squeeze=False, **options)
        figure, axes = made
        try:
            yield figure, axes
        finally:
            plt.close(figure)


def svg_of(figure: Any, name: str, title: str) -> str:
    """Returns the figure as an SVG element that can stand in a page or a file, scaled by its width.

    Args:
        figure: Of matplotlib.
        name: Unique in the page; all ids begin with it.
        title: What is seen, for those who do not see it.
    """
    out = StringIO()
    with _settings():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return prepared(out.getvalue(), name, title)


def prepared(source: str, name: str, title: str) -> str:
    """Makes matplotlib's SVG fit for a page: ids of its own, no references outside, colours that follow the page."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(source)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    root.set("width", "100%")
    root.attrib.pop("height", None)
    root.set("role", "img")
    root.set("aria-label", title)
    for element in root.iter():
        if link := element.attrib.pop("{http://www.w3.org/1999/xlink}href", None):
            element.set("href", link)
        for key, value in list(element.attrib.items()):
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif value.startswith("#"):
                element.set(key, f"#{name}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))
            elif key == "style":
                element.set(key, _styled(value))
    text = ElementTree.tostring(root, encoding="unicode")
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


_VARIABLES: Final = {day: f"var(--{name}, {day})" for name, (day, _) in COLOURS.items()}


def _styled(style: str) -> str:
    style = re.sub(r"'DejaVu Sans'.*?sans-serif", _FONTS, style)
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLES.get(found[0], found[0]), style)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Returns places for labels: as near as they can be to where they belong, in its order, and a gap apart.

    Args:
        places: Where they belong.
        gap: The least distance between two; smaller where there is no room for it.
        low: The lowest place.
        high: The highest.
    """
    if len(places) > 1:
        gap = min(gap, (high - low) / (len(places) - 1))
    order = sorted(range(len(places)), key=lambda at: places[at])
    groups: list[list[float]] = []
    """Of labels that touch: the place of the lowest, and how many."""
    for at in order:
        groups.append([min(max(places[at], low), high), 1])
        while len(groups) > 1 and groups[-2][0] + groups[-2][1] * gap > groups[-1][0]:
            upper, count = groups.pop()
            below, before = groups[-1]
            # Both move to where their members are off by the same on average.
            start = (below * before + (upper - before * gap) * count) / (before + count)
            groups[-1] = [min(max(start, low), high - (before + count - 1) * gap), before + count]
    placed = [start + step * gap for start, count in groups for step in range(int(count))]
    result = [0.0] * len(places)
    for at, place in zip(order, placed, strict=True):
        result[at] = place
    return result


def end_labels(axis: Any, ends: Sequence[tuple[float, float, str, str]], points: float = 11.5) -> None:
    """Writes each line's name behind its end, without overlaps, a thin line leading there.

    Args:
        axis: Whose limits are final; room for the names is at its right.
        ends: Of each line x and y, its name and its colour.
        points: The height of a label, in points.
    """
    axis.figure.canvas.draw()
    to_points = 72 / axis.figure.dpi
    box = axis.get_window_extent()
    height = box.height * to_points
    own = [(axis.transData.transform((x, y))[1] - box.y0) * to_points for x, y, _, _ in ends]
    placed = spread(own, points, points / 2, height - points / 2)
    for (x, y, name, colour), at in zip(ends, placed, strict=True):
        axis.annotate(
            name.replace("`", ""),
            (x, y),
            xytext=(1.03, at / height),
            textcoords="axes fraction",
            va="center",
            color=colour,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2},
        )
