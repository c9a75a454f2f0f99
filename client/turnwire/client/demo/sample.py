"""The sample project: copies of it, and runs of its tests.

Above it: `show`. Below it: the packaged project, and the agent's way to run commands.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turnwire.client.agent.process import run_shell

PROJECT: Final = Path(__file__).parent / "project"
"""The project, as it is shipped: with two bugs in it."""

_TEST_COMMAND: Final = "python -m pytest -q --tb=no"
_TEST_SECONDS: Final = 120.0
_PASSED: Final = 0
_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class TestRun:
    """What the tests of a copy said."""

    __test__ = False

    exit_code: int | None
    """pytest's; None where it did not end in time."""
    summary: str
    """Its last line, such as `10 failed, 16 passed in 0.08s`."""

    @property
    def passed(self) -> bool:
        """Whether all tests passed."""
        return self.exit_code == _PASSED

    @property
    def failed(self) -> bool:
        """Whether tests ran and some failed; neither this nor `passed` means that they could not be run."""
        return self.exit_code == _FAILED


def copy_project(folder: Path) -> Path:
    """Copies the project to a new folder and returns it."""
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    return Path(shutil.copytree(PROJECT, folder, ignore=ignored))


async def run_tests(folder: Path) -> TestRun:
    """Runs the tests of a copy. Cancelling it is safe: they are ended."""
    result = await run_shell(_TEST_COMMAND, folder=folder, timeout_seconds=_TEST_SECONDS)
    lines = result.output.strip().splitlines()
    return TestRun(result.exit_code, lines[-1] if lines else "no output")


@contextlib.contextmanager
def plain_pytest() -> Generator[None, None, None]:
    """Keeps pytest, wherever it runs meanwhile, from loading whatever plugins happen to be installed.

    They are none of the project's, and loading them takes several times as long as its tests.
    """
    changed: dict[str, str | None] = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": None}
    before = {name: os.environ.get(name) for name in changed}
    _set(changed)
    try:
        yield
    finally:
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
