from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from turnwire.server.cli import scenario


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.toml"
    path.write_text('[[turn]]\ntext = "a"\n[[turn]]\ntext = "b"\n')
    return path


def test_a_good_file_is_ok(cli: CliRunner, good: Path) -> None:
    result = cli.invoke(scenario, ["check", str(good)])

    assert (result.exit_code, result.output) == (0, "ok: 2 turns\n")


def test_every_mistake_is_named_with_file_line_and_key(cli: CliRunner, good: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('on_end = "sometimes"\n[[turn]]\ntext = "a"\nfinnish = "stop"\n')

    result = cli.invoke(scenario, ["check", str(bad), str(good), str(tmp_path / "none.toml")])

    assert result.exit_code == 1
    lines = [line.replace(f"{tmp_path}/", "") for line in result.output.splitlines()]
    assert lines[0].startswith("bad.toml:1: key 'on_end': expected one of")
    assert lines[1].startswith("bad.toml:4: key 'turn[0].finnish': unknown key")
    assert lines[2:] == ["good.toml: ok: 2 turns", "none.toml: cannot be read: No such file or directory"]


def test_no_file_is_wrong_usage(cli: CliRunner) -> None:
    assert cli.invoke(scenario, ["check"]).exit_code == 2


def test_help_has_examples(cli: CliRunner) -> None:
    assert "turnwire scenario check my.toml" in cli.invoke(scenario, ["check", "--help"]).output
