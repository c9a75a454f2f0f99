"""docs/operations.md says what is true."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from turnwire.server.config import ServerConfig
from turnwire.server.keys import KeyRing
from turnwire.server.ledger.budgets_file import parse_budgets
from turnwire.server.session.budget import Budget
from turnwire.server.session.conversations import Conversations
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.visits import STAGES as VISITED
from turnwire.server.session.visits import Visits
from turnwire.server.settings import SETTINGS, limit_reader
from turnwire.server.telemetry.carried import CarriedMetrics
from turnwire.server.telemetry.engine_metrics import EngineMetrics
from turnwire.server.telemetry.kept_metrics import KeptMetrics
from turnwire.server.telemetry.ledger_metrics import LedgerMetrics
from turnwire.server.telemetry.metrics import STAGES, Metrics
from turnwire.server.telemetry.safety_metrics import SafetyMetrics

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


def rows(header: str) -> list[list[str]]:
    """Returns the cells of the table with this header."""
    lines = PAGE[PAGE.index(header) :].splitlines()[2:]
    end = lines.index("")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def test_the_table_of_settings_is_complete() -> None:
    assert rows("| flag |") == [
        [
            code(setting.flag),
            code(setting.variable),
            code("" if setting.key == "config" else setting.key),
            code(setting.default),
            setting.help,
        ]
        for setting in SETTINGS
        if setting.help
    ]


def test_the_table_of_limits_is_complete() -> None:
    table = [(row[0].strip("`"), row[1].strip("`")) for row in rows("| key | default |")]

    assert [
        (name, limit_reader(name, field)(text)) for (name, text), field in zip(table, _defaults(), strict=True)
    ] == [(field.name, field.default) for field in dataclasses.fields(SessionLimits)]


def _defaults() -> list[object]:
    return [field.default for field in dataclasses.fields(SessionLimits)]


def told(families: Iterable[Metric]) -> list[list[str]]:
    return [
        [
            code(family.name + ("_total" if family.type == "counter" else "")),
            family.type,
            ", ".join(code(label) for label in vars(family)["_labelnames"]),
            family.documentation,
        ]
        for family in families
    ]


def test_the_tables_of_metrics_are_complete() -> None:
    assert rows("| metric |") == told(Metrics().describe())
    assert rows("| carried metric |") == told(CarriedMetrics(CollectorRegistry()).collect())
    assert rows("| safety metric |") == told(SafetyMetrics(CollectorRegistry()).collect())
    assert rows("| ledger metric |") == told(LedgerMetrics().collect())
    assert rows("| engine metric |") == told(EngineMetrics().collect())
    kept = KeptMetrics(CollectorRegistry(), Budget(), Conversations(bytes(32)), Visits())
    assert rows("| kept metric |") == told(kept.collect())
    named = PAGE[PAGE.index("The `stage` here is") :].split(". ")[0]
    assert set(re.findall(r"`(\w+)`", named)) == {"stage", *VISITED}
    assert [row[0] for row in rows("| stage |")] == [code(stage) for stage in STAGES]


def test_the_example_file_loads(load_toml: Callable[..., ServerConfig]) -> None:
    match = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None

    config = load_toml(match[1])

    assert config.batch_window == 0.004
    assert config.limits.hold_timeout == 1200
    assert config.engine.speed.burst == 4


def test_the_commented_lines_of_the_example_load_too(
    load_toml: Callable[..., ServerConfig], certificates: Path
) -> None:
    match = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    for name in ("keys.txt", "my.toml"):
        (certificates / name).write_text("x")

    config = load_toml(re.sub(r"(?m)^# ", "", match[1]))

    assert config.tls is not None
    assert config.tls.client_ca == certificates / "clients.pem"


def test_the_example_of_a_key_file_is_one(caplog: pytest.LogCaptureFixture) -> None:
    example = PAGE[PAGE.index("    # deployers") : PAGE.index("A principal is")]

    assert {"alice", "ci@example.org"} < KeyRing.parse(example).principals
    assert not caplog.records


def test_the_example_of_budgets_is_one() -> None:
    example = PAGE[PAGE.index("    [budget.alice]") : PAGE.index("## Metrics")]

    budgets = parse_budgets(textwrap.dedent(example))

    assert budgets["alice"].cost_per_month == 100
    assert budgets["*"].tokens_per_day == 200_000
