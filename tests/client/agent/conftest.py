from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.client.agent.workspace import Workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a secret beside it."""
    (tmp_path / "secret.txt").write_text("secret\n")
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def space(root: Path) -> Workspace:
    return Workspace(root)
