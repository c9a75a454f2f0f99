"""Memory over the rollouts of a soak, from zero, so that a little growth looks like a little.

Above it: the report's sections. Below it: `style`.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.bench.report.plots.style import COLOURS, canvas, svg_of


def draw(name: str, title: str, samples: Sequence[tuple[float, float, float]]) -> str:
    """Returns an SVG of resident megabytes over rollouts.

    Args:
        name: Unique in the page.
        title: What is seen.
        samples: Seconds, rollouts, resident bytes; in order.
    """
    with canvas(1, 1, 2.8) as (figure, axes):
        axis = axes[0, 0]
        megabytes = [resident / 1024**2 for _, _, resident in samples]
        axis.plot([rollouts for _, rollouts, _ in samples], megabytes, color=COLOURS["grpc"][0], linewidth=1.4)
        axis.set_ylim(0, max(megabytes) * 1.15)
        axis.set_xlim(left=0)
        axis.set_xlabel("rollouts played")
        axis.set_ylabel("resident, MB")
        axis.set_title(title)
        return svg_of(figure, name, title)
