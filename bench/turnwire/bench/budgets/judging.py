"""All budgets in order, from what lies in a folder.

Above it: the suites and the report. Below it: the modules of the single budgets.
"""

from __future__ import annotations

from turnwire.bench.budgets import cost, speed
from turnwire.bench.budgets.line import Line
from turnwire.bench.folder import Folder
from turnwire.bench.report.figures import measurements


def budgets(folder: Folder) -> list[Line]:
    """Returns the lines P1 to P8; of several files of one kind the latest that came to its end counts."""
    found = measurements(folder)
    return [
        *speed.p1(found),
        *speed.p2(folder.rollouts),
        *speed.p3(found),
        *speed.p4(found),
        *cost.p5(found),
        *cost.p6(found),
        *cost.p7(found),
        *cost.p8(found),
    ]
