"""The lines as tables for terminals, and what they say, in words.

Above it: the command. Below it: `lines`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table


def human(size: int) -> str:
    """Returns bytes with a unit."""
    for unit, name in ((1024**2, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def _spread(figure: Sequence[float]) -> str:
    value, low, high = figure
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def figures(lines: Sequence[Mapping[str, Any]], floors: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Returns a table for each history: what each gateway took, mode by mode, and the upstream's own times first."""
    tables: list[Table] = []
    for history in sorted({line["history"] for line in (*floors, *lines)}):
        table = Table(title=f"{human(history)} of history", title_justify="left")
        for column in ("mode", "gateway", "over"):
            table.add_column(column, no_wrap=True)
        for column in ("TTFT\nms", "added TTFT\nms", "total\nms", "CPU\nms", "MB", "failed"):
            table.add_column(column, justify="right", no_wrap=True)
        for mode in ("direct", "unseen", "full", "chained"):
            for line in (*floors, *lines):
                if line["history"] == history and line["mode"] == mode:
                    table.add_row(mode, line["gateway"], line["transport"], *_cells(line))
            table.add_section()
        tables.append(table)
    return tables


def _cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{line['ttft_ms'][0]:.2f}" if "ttft_ms" in line else "",
        _spread(line["added_ttft_ms"]) if "added_ttft_ms" in line else "",
        f"{line['total_ms'][0]:.2f}" if "total_ms" in line else "",
        f"{line['cpu_ms']:.2f}" if "cpu_ms" in line else "",
        f"{line['memory_mb']:.0f}" if "memory_mb" in line else "",
        f"{line['failed']}/{line['requests']}" if line["failed"] else "",
    )


def verdicts(ahead: Sequence[Mapping[str, Any]], growths: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns what the figures say of chained turns, a sentence each."""
    said = [
        f"{human(each['history'])} chained over {each['transport']}: we add {_spread(each['added_ttft_ms'])} ms, "
        f"the best other, {each['best']}, {_spread(each['best_added_ttft_ms'])} ms: {each['verdict']}"
        for each in sorted(ahead, key=lambda each: each["history"])
    ]
    said += [
        f"{each['gateway']} over {each['transport']} adds {_spread(each['growth_ms'])} ms more to "
        f"{human(each['to'])} than to {human(each['from'])}, chained"
        for each in growths
        if each["mode"] == "chained"
    ]
    return said


def chains(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns how long chains went, a sentence each."""
    said: list[str] = []
    for each in found:
        who = f"{each['gateway']} over {each['transport']}"
        if "wrong_from" in each:
            got = f"the upstream got {each['messages']} of {each['expected']} messages"
            words = f"drops history from turn {each['wrong_from']} on, without a word: at turn {each['turns']} {got}"
        elif "refused" in each:
            words = f"stops at turn {each['turns']}: {each['refused']}"
        else:
            words = f"kept all {each['expected']} messages of {each['turns']} turns"
        said.append(f"{who} {words}")
    return said
