"""The ledger's table: one line per response and `done`, whatever is told twice.

Above it: the consumer of the journal, which writes lines, and whoever sums them up. Below it: the schema and records.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Final

from turnwire.server.ledger.budgets import Used
from turnwire.server.store.records import SpentRecord

_COLUMNS: Final = (
    "response_id",
    "pass",
    "created_at",
    "ended_at",
    "door",
    "principal",
    "model",
    "outcome",
    "error_code",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "estimated",
    "price",
    "currency",
    "end_user",
    "labels",
    "metadata",
    "queued",
    "pre_inference",
    "first_token",
    "inference",
    "hosted_tools",
    "client_wait",
    "post_inference",
    "stalled",
)
# The end of a response that comes after a pause has the pause's pass and cost nothing more: it says how all ended.
_INSERT: Final = (
    f"insert into ledger ({', '.join(_COLUMNS)}) values ({', '.join('?' * len(_COLUMNS))})"
    " on conflict (response_id, pass) do update set outcome = excluded.outcome, error_code = excluded.error_code,"
    " ended_at = excluded.ended_at"
)


def add_line(connection: sqlite3.Connection, line: SpentRecord) -> None:
    """Adds a line, or says how a response ended whose cost is known. Doing it twice is doing it once."""
    connection.execute(
        _INSERT,
        (
            line.response_id,
            line.passes,
            line.created_at,
            line.ended_at,
            line.door,
            line.principal,
            line.model,
            line.outcome,
            line.code,
            line.input_tokens,
            line.cached_tokens,
            line.output_tokens,
            line.reasoning_tokens,
            line.estimated,
            line.price,
            line.currency,
            line.end_user,
            json.dumps(line.labels, ensure_ascii=False),
            json.dumps(line.metadata, ensure_ascii=False),
            *line.times,
        ),
    )


def used_since(connection: sqlite3.Connection, moment: float) -> Iterable[Used]:
    """Sums up what every principal used since a moment, in seconds since 1970-01-01 UTC."""
    rows = connection.execute(
        "select principal, currency, sum(input_tokens + output_tokens), coalesce(sum(price), 0.0) from ledger"
        " where ended_at >= ? group by principal, currency",
        (moment,),
    )
    return [Used(principal, currency, tokens, cost) for principal, currency, tokens, cost in rows]


def forget_before(connection: sqlite3.Connection, moment: float, at_most: int) -> int:
    """Removes lines that are older than a moment; returns how many, at most `at_most`."""
    return connection.execute(
        "delete from ledger where rowid in (select rowid from ledger where ended_at < ? limit ?)", (moment, at_most)
    ).rowcount
