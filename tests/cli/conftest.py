from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from click.testing import CliRunner


@pytest.fixture
def cli() -> CliRunner:
    return CliRunner()


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hides the settings of whoever runs the tests, and puts logging back."""
    for name in list(os.environ):
        if name.startswith("TURNWIRE_"):
            monkeypatch.delenv(name)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
