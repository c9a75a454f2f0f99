"""A measurement's file: what it says, and that it is there whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.bench.measured import FORMAT, Measured, ResultsError, measuring, read, write


def test_a_file_says_by_what_command_when_and_on_which_machine_it_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "turns.json"
    with measuring("turns", "python -m turnwire.bench.turns", path) as measured:
        measured.figures["µs"] = [1.5]
    found = read(path, Measured, FORMAT)
    assert (found.kind, found.command, found.ended) == ("turns", "python -m turnwire.bench.turns", "complete")
    assert found.figures == {"µs": [1.5]}
    assert found.date.endswith("+00:00")
    assert found.machine["packages"]["grpcio"] == found.machine["grpc"]


def test_a_measurement_that_fails_leaves_its_reason_and_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "turns.json"

    def interrupted() -> None:
        with measuring("turns", "…", path) as measured:
            measured.figures["first"] = 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    found = read(path, Measured, FORMAT)
    assert (found.ended, found.figures) == ("KeyboardInterrupt", {"first": 1})


@pytest.mark.parametrize("text", ["", "{}", "[1]"], ids=["empty", "no-fields", "no-object"])
def test_what_is_no_result_file_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "else.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"else\.json"):
        read(path, Measured, FORMAT)


def test_another_format_is_refused_and_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    write(Measured("turns", "…", {}, "", 0.0, format=FORMAT + 1), path)
    with pytest.raises(ResultsError, match="expected format"):
        read(path, Measured, FORMAT)
