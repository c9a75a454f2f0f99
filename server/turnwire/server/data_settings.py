"""Settings of the data directory and of budgets.

Above it: `settings`, which has them among all others. Below it: `sources`, which finds values, and the ledger's values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from turnwire.server import values
from turnwire.server.ledger.budgets import Budget
from turnwire.server.ledger.budgets_file import BudgetsFileError, load_budgets
from turnwire.server.ledger.config import DataConfig
from turnwire.server.session.limits import MIB
from turnwire.server.sources import Setting, Sources

DATA_SETTINGS: Final = (
    Setting("data.dir", "Keep responses and usage in this directory; else in memory only.", "", "--data-dir", "DIR"),
    Setting("data.fsync", "When records are flushed to the disk: never, done.", "never", "--fsync", "WHEN"),
    Setting(
        "data.unrecorded", "What responses do that cannot be recorded: fail, serve.", "fail", "--unrecorded", "WHAT"
    ),
    Setting("data.retention", "How long responses are kept.", "30d", "--retention", "DURATION"),
    Setting("data.max_responses", "Responses that are kept; the oldest go first.", "1000000"),
    Setting("data.usage_retention", "How long usage is kept.", "400d"),
    Setting("data.max_lag_bytes", "How much may wait to be written to the database.", "1GiB"),
    Setting("budgets", "Limit what principals may use, by this file.", "", "--budgets", "FILE"),
)
"""In the order of --help."""

_MAX_COUNT: Final = 2**31 - 1


def read_data(sources: Sources, *, overlapped: bool) -> DataConfig | None:
    """Reads what is said of the data directory; None where there is none. Mistakes are noted.

    Args:
        sources: Where settings come from.
        overlapped: Whether what was recorded is filed while the next turn runs.
    """
    get = sources.get
    folder = sources.get_in("data.dir", values.directory, None)
    base = DataConfig(folder or Path())
    config = DataConfig(
        folder=base.folder,
        fsync=get("data.fsync", values.one_of(("never", "done")), "never") == "done",
        fail_closed=get("data.unrecorded", values.one_of(("fail", "serve")), "fail") == "fail",
        retention=get("data.retention", values.duration(60), base.retention),
        max_responses=get("data.max_responses", values.integer(1, _MAX_COUNT), base.max_responses),
        usage_retention=get("data.usage_retention", values.duration(60), base.usage_retention),
        max_lag_bytes=get("data.max_lag_bytes", values.size(MIB, 2**63 - 1), base.max_lag_bytes),
        overlapped=overlapped,
    )
    if folder is not None:
        return config
    for name in ("fsync", "unrecorded", "retention", "max_responses", "usage_retention", "max_lag_bytes"):
        member = "fail_closed" if name == "unrecorded" else name
        if getattr(config, member) != getattr(base, member):
            sources.problems.append(f"{sources.place(f'data.{name}')}: needs --data-dir")
    return None


def read_budgets(sources: Sources) -> Mapping[str, Budget]:
    """Reads the file of budgets, if there is one. Mistakes are noted."""
    path = sources.get_in("budgets", values.file, None)
    if path is None:
        return {}
    try:
        return load_budgets(path)
    except BudgetsFileError as error:
        sources.problems += [str(problem) for problem in error.problems]
        return {}
