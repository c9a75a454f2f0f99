"""The command `turnwire usage`: what was used, from the ledger of a data directory.

Above it: the `turnwire` command, which finds it by its entry point. Below it: reports.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import sqlite3
import time
from pathlib import Path
from typing import Final

import click

from turnwire.server import values
from turnwire.server.ledger.report import Report, check_key, report
from turnwire.server.store.schema import DatabaseError, open_reader

_AGO: Final = values.duration(0)

_EPILOG: Final = """\b
Examples:
  turnwire usage --data-dir data
  turnwire usage --data-dir data --by key,model --since 7d
  turnwire usage --data-dir data --by day --since 2026-11-01 --csv
  turnwire usage --data-dir data --by label:team --json

\b
It reads beside a running server; a response is there some milliseconds after
its end. Exit codes: 0 ended well, 1 the directory cannot be read, 2 wrong usage."""


@click.command(epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.option(
    "--data-dir", "folder", required=True, metavar="DIR", type=click.Path(path_type=Path), help="The server's."
)
@click.option(
    "--by", "by", default="key", metavar="KEYS", help="key, model, day, month, door, user, outcome, label:NAME, "
    "metadata:NAME; several with commas; all for one sum  [key]",
)  # fmt: skip
@click.option("--since", metavar="WHEN", help="A date such as 2026-11-01 (UTC), or so long ago, such as 7d.")
@click.option("--until", metavar="WHEN", help="The same, not included.")
@click.option("--json", "form", flag_value="json", help="One JSON object a line.")
@click.option("--csv", "form", flag_value="csv", help="Comma-separated values with a header.")
@click.pass_context
def usage(
    context: click.Context, folder: Path, by: str, since: str | None, until: str | None, form: str | None
) -> None:
    """Print what responses used, and what that cost."""
    try:
        keys = () if by == "all" else tuple(check_key(key.strip()) for key in by.split(","))
        first, last = _moment(since, "--since"), _moment(until, "--until")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        connection = open_reader(folder)
        try:
            found = report(connection, keys, first or 0.0, last)
        finally:
            connection.close()
    except (DatabaseError, sqlite3.Error) as error:
        click.echo(f"Error: {error}", err=True)
        context.exit(1)
    click.echo(_written(found, form), nl=False)


def _moment(text: str | None, flag: str) -> float | None:
    if text is None:
        return None
    try:
        day = datetime.date.fromisoformat(text)
    except ValueError:
        try:
            return time.time() - _AGO(text)
        except ValueError as error:
            msg = f'{flag}: expected a date such as "2026-11-01" or a duration such as "7d", found "{text}"'
            raise ValueError(msg) from error
    return datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp()


def _written(found: Report, form: str | None) -> str:
    out = io.StringIO()
    if form == "json":
        for row in found.rows:
            out.write(json.dumps(dict(zip(found.columns, row, strict=True)), ensure_ascii=False) + "\n")
    elif form == "csv":
        writer = csv.writer(out)
        writer.writerow(found.columns)
        writer.writerows(found.rows)
    else:
        lines: list[list[str]] = [list(found.columns), *([_cell(value) for value in row] for row in found.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(found.columns))]
        numbers = range(len(found.columns) - 7, len(found.columns) - 1)
        for line in lines:
            cells = [
                cell.rjust(width) if column in numbers else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            out.write("  ".join(cells).rstrip() + "\n")
    return out.getvalue()


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value) or "-"
