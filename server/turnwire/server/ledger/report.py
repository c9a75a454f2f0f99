"""Sums of the ledger, by whatever somebody wants to see them by.

Above it: the command `turnwire usage`. Below it: the table, read beside a server that writes it.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import Final

KEYS: Final[dict[str, str]] = {
    "key": "principal",
    "model": "model",
    "day": "strftime('%Y-%m-%d', ended_at, 'unixepoch')",
    "month": "strftime('%Y-%m', ended_at, 'unixepoch')",
    "door": "door",
    "user": "end_user",
    "outcome": "outcome",
}
"""What sums can be by, besides `label:NAME` and `metadata:NAME`. Days and months are those of UTC."""
SUMS: Final = ("responses", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost", "currency")
"""The columns of a report after those that it is by. A response counts once, however often it paused."""
_NAMED: Final = re.compile(r"(label|metadata):(.{1,64})")
_MAX_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of sums."""

    columns: tuple[str, ...]
    rows: list[tuple[str | int | float | None, ...]]


def check_key(key: str) -> str:
    """Returns a key that sums can be by; raises ValueError that names those there are."""
    if key in KEYS or _NAMED.fullmatch(key):
        return key
    msg = f"expected one of {', '.join(KEYS)}, label:NAME, metadata:NAME, found '{key}'"
    raise ValueError(msg)


def report(connection: sqlite3.Connection, by: tuple[str, ...], since: float, until: float | None = None) -> Report:
    """Sums the ledger up.

    Args:
        connection: One that may read.
        by: Keys that `check_key` has let pass; none is one sum of everything. Sums of different currencies are apart.
        since: The moment from which lines count, in seconds since 1970-01-01 UTC.
        until: The moment from which they do not.
    """
    groups: list[str] = []
    values: list[object] = []
    for key in by:
        if key in KEYS:
            groups.append(KEYS[key])
        else:
            kind, _, name = key.partition(":")
            groups.append(f"coalesce(json_extract({'labels' if kind == 'label' else 'metadata'}, ?), '')")
            # In quotes, since a name may hold anything; a quote itself cannot be said in such a path.
            values.append('$."' + name.replace('"', "") + '"')
    chosen = [f"{group} as g{number}" for number, group in enumerate(groups)]
    names = [f"g{number}" for number in range(len(groups))]
    sums = (
        "count(distinct response_id), sum(input_tokens), sum(cached_tokens), sum(output_tokens),"
        " sum(reasoning_tokens), sum(price), currency"
    )
    statement = (
        f"select {', '.join([*chosen, sums])} from ledger where ended_at >= ? and ended_at < ?"
        f" group by {', '.join([*names, 'currency'])} order by {', '.join([*names, 'currency'])} limit {_MAX_ROWS}"
    )
    until = float("inf") if until is None else until
    rows = connection.execute(statement, (*values, since, until)).fetchall()
    return Report((*by, *SUMS), rows)
