"""`turnwire usage`: sums of the ledger, by whatever one asks for, beside a server that writes it."""

from __future__ import annotations

import calendar
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from turnwire.server.ledger.command import usage
from turnwire.server.ledger.table import add_line, forget_before
from turnwire.server.store.records import SpentRecord
from turnwire.server.store.schema import open_writer

from .scene import shop

Run = Callable[..., Result]


def line(response: str, passes: int = 1, *, at: tuple[int, ...] = (2026, 11, 1), **changes: Any) -> SpentRecord:
    moment = float(calendar.timegm((*at, 0, 0, 0)))
    facts: dict[str, Any] = {
        "response_id": response,
        "passes": passes,
        "door": "grpc",
        "principal": "alice",
        "model": "big",
        "created_at": moment,
        "ended_at": moment,
        "outcome": "completed",
        "code": "",
        "input_tokens": 100,
        "cached_tokens": 40,
        "output_tokens": 10,
        "reasoning_tokens": 3,
        "estimated": False,
        "price": 0.25,
        "currency": "USD",
        "end_user": "",
        "labels": {},
        "metadata": {},
        "times": (0.0, 0.0, None, 0.0, 0.0, 0.0, 0.0, 0.0),
    }
    return SpentRecord(**(facts | changes))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    db = open_writer(tmp_path, durable=False)
    for each in (
        line("resp_1", labels={"team": "red"}),
        line("resp_2", outcome="paused", at=(2026, 11, 2)),
        line("resp_2", 2, at=(2026, 11, 2)),
        line("resp_3", principal="bob", model="small", price=None, currency="", at=(2026, 12, 1), outcome="failed"),
        line("resp_4", currency="EUR", metadata={'a"b': "x"}, end_user="u1"),
    ):
        add_line(db, each)
    db.close()
    return lambda *arguments: CliRunner().invoke(usage, ["--data-dir", str(tmp_path), *arguments])


def read(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(text) for text in result.output.splitlines()]


def test_sums_are_by_key_unless_said_otherwise(run: Run) -> None:
    assert run().output == (
        "key    responses  input_tokens  cached_tokens  output_tokens  reasoning_tokens  cost  currency\n"
        "alice          1           100             40             10                 3  0.25  EUR\n"
        "alice          2           300            120             30                 9  0.75  USD\n"
        "bob            1           100             40             10                 3     -  -\n"
    )


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("model", {("big",): 4, ("small",): 1}),
        ("day", {("2026-11-01",): 2, ("2026-11-02",): 2, ("2026-12-01",): 1}),
        ("month,key", {("2026-11", "alice"): 4, ("2026-12", "bob"): 1}),
        ("door", {("grpc",): 5}),
        ("user", {("",): 4, ("u1",): 1}),
        ("outcome", {("completed",): 3, ("failed",): 1, ("paused",): 1}),
        ("label:team", {("",): 4, ("red",): 1}),
        ("metadata:ab", {("",): 5}),
        ("all", {(): 5}),
    ],
)
def test_sums_are_by_what_is_asked_for(run: Run, by: str, expected: dict[tuple[str, ...], int]) -> None:
    keys = () if by == "all" else tuple(by.split(","))
    lines: dict[tuple[str, ...], int] = {}
    for row in read(run("--by", by, "--json")):
        group = tuple(row[key] for key in keys)
        lines[group] = lines.get(group, 0) + row["input_tokens"] // 100

    assert lines == expected


def test_moments_bound_what_is_summed(run: Run) -> None:
    counts = [
        sum(row["input_tokens"] for row in read(run("--json", *bounds))) // 100
        for bounds in (
            ("--since", "2026-11-02"),
            ("--since", "2026-11-02", "--until", "2026-12-01"),
            ("--until", "2026-11-01"),
            ("--since", "3000d"),
            ("--until", "3000d"),
        )
    ]

    assert counts == [3, 2, 0, 5, 0]


def test_csv_has_a_header(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("--by", "key", "--csv").output)))

    assert [(row["key"], row["responses"], row["cost"]) for row in rows] == [
        ("alice", "1", "0.25"),
        ("alice", "2", "0.75"),
        ("bob", "1", ""),
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--by", "colour"), "expected one of key, model, day, month, door, user, outcome, label:NAME, metadata:NAME"),
        (("--since", "yesterday"), '--since: expected a date such as "2026-11-01" or a duration such as "7d"'),
    ],
)
def test_wrong_usage_is_told(run: Run, arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert complaint in result.stderr.replace("\n", " ")


def test_a_directory_without_a_database_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(usage, ["--data-dir", str(tmp_path)])

    assert (result.exit_code, result.stderr) == (1, f"Error: {tmp_path}/turnwire.db: there is no database here\n")


async def test_it_reads_beside_a_server(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        response = await scene.completed(principal="alice")
        await scene.data.caught_up()
        result = CliRunner().invoke(usage, ["--data-dir", str(tmp_path), "--json"])

    (row,) = read(result)
    assert (row["key"], row["responses"], row["output_tokens"]) == ("alice", 1, response.usage.output_tokens)


def test_a_line_that_is_told_twice_counts_once_and_the_last_word_is_how_it_ended(tmp_path: Path) -> None:
    db = open_writer(tmp_path, durable=False)
    paused = line("resp_1", outcome="paused")
    end = line("resp_1", outcome="failed", code="hold_timeout", input_tokens=0, output_tokens=0, at=(2026, 11, 3))
    for each in (paused, end, paused, end):
        add_line(db, each)

    rows = db.execute("select outcome, error_code, input_tokens, output_tokens from ledger").fetchall()
    assert rows == [("failed", "hold_timeout", 100, 10)]
    assert forget_before(db, end.ended_at, 10) == 0
    assert forget_before(db, end.ended_at + 1, 10) == 1
    db.close()
