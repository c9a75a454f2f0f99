"""What the operator says of the data directory, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Where responses and the ledger are kept, how safely, and for how long."""

    folder: Path
    """The data directory; made if it is missing."""
    fsync: bool = False
    """Whether each record is on the disk before its `done` leaves, so that it survives the machine. Without, it
    survives the process."""
    fail_closed: bool = True
    """Whether a response fails that cannot be recorded; else it is served, and alarmed about."""
    retention: float = 30 * DAY
    """Seconds for which responses are kept."""
    max_responses: int = 1_000_000
    """Responses that are kept; the oldest go first."""
    usage_retention: float = 400 * DAY
    """Seconds for which lines of the ledger are kept."""
    max_lag_bytes: int = 1024 * 1024 * 1024
    """Bytes of the journal that the database may be behind; then new responses are refused."""
    overlapped: bool = True
    """Whether the journal is consumed while the next turn runs; else before `done` leaves."""
