"""What stands where nothing was measured.

Above it: the sections. Below it: the document.
"""

from __future__ import annotations

from turnwire.bench.report.document import Section, Words


def not_measured(anchor: str, title: str, command: str) -> Section:
    """Returns a section that says so, and how to measure it."""
    return Section(anchor, title, [Words(f"Not measured: run `{command}`.")])
