"""The file of seal keys is read at the start, and one that cannot be used stops it, without showing a key."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from click.testing import CliRunner

from turnwire.server.cli import serve
from turnwire.server.settings import load_config


def test_the_flag_and_its_variable_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "seal.key"
    path.write_text(base64.b64encode(bytes(32)).decode())
    assert load_config({"seal_key_file": str(path)}, {}).seal_key_file == path
    assert load_config({}, {"TURNWIRE_SEAL_KEY_FILE": str(path)}).seal_key_file == path
    assert load_config({}, {}).seal_key_file is None


def leave_logging(level: str, form: str) -> None:
    """Leaves logging as the tests have it."""


@pytest.mark.parametrize(("text", "says"), [("c2hvcnQ=", ":1: expected a key of 32 bytes"), ("", ": holds no keys")])
def test_a_file_that_cannot_be_used_stops_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, says: str
) -> None:
    monkeypatch.setattr("turnwire.server.cli.configure_logging", leave_logging)
    path = tmp_path / "seal.key"
    path.write_text(text)
    result = CliRunner().invoke(
        serve, ["--seal-key-file", str(path), "--grpc", "127.0.0.1:0", "--http", "off", "--metrics", "off"]
    )
    assert result.exit_code == 2
    assert f"Error: {path}{says}" in result.output
    assert not text or text not in result.output
