"""A folder of result files: what is found in it by content, and what is told of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.bench.folder import read_folder, unusable
from turnwire.bench.measured import Measured, write
from turnwire.bench.results import Options, Results

OPTIONS = Options("…", "small", "[[turn]]\ntext = 5", {}, [], 1, [])


def measured(kind: str, date: str = "2026-01-01T00:00:00+00:00", **more: object) -> Measured:
    made = Measured(kind, "…", {}, date, 0.0, ended="complete")
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_files_are_found_by_their_content_whatever_their_names(tmp_path: Path) -> None:
    write(Results(OPTIONS, {}), tmp_path / "turns.json")
    write(measured("turns"), tmp_path / "rollouts.json")
    (tmp_path / "notes.txt").write_text("{}")
    (tmp_path / ".turns.json.new.json").write_text("{")
    folder = read_folder(tmp_path)
    assert [each.name for each in folder.rollouts] == ["turns.json"]
    assert [each.name for each in folder.measured] == ["rollouts.json"]
    assert not folder.broken


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "truncated"),
        ("{}", "missing required field `kind`"),
        ('{"kind": "recipe"}', "found a file of kind recipe"),
        ('{"kind": "turns"}', "missing required field"),
        ('{"kind": "rollouts"}', "missing required field"),
    ],
    ids=["cut-off", "no-kind", "foreign", "half-measured", "half-rollouts"],
)
def test_a_file_that_cannot_be_read_is_named_with_its_reason_and_the_rest_is_read(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "a.json").write_text(text)
    write(measured("turns"), tmp_path / "b.json")
    folder = read_folder(tmp_path)
    assert [each.name for each in folder.broken] == ["a.json"]
    assert reason in folder.broken[0].reason
    assert len(folder.of("turns")) == 1


def test_of_several_measurements_of_a_kind_the_latest_that_ended_comes_first(tmp_path: Path) -> None:
    write(measured("turns", "2026-01-01T00:00:00+00:00"), tmp_path / "a.json")
    write(measured("turns", "2026-01-02T00:00:00+00:00"), tmp_path / "b.json")
    write(measured("turns", "2026-01-03T00:00:00+00:00", ended="KeyboardInterrupt"), tmp_path / "c.json")
    write(measured("doors"), tmp_path / "d.json")
    folder = read_folder(tmp_path)
    assert [each.name for each in folder.of("turns")] == ["b.json", "a.json"]
    assert len(folder.measured) == 4


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_folder(tmp_path / "nowhere")


def test_a_folder_that_is_not_there_is_named_with_the_reason_and_where_results_come_from(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        read_folder(tmp_path / "nowhere")
    assert unusable(caught.value) == (
        f"{tmp_path / 'nowhere'}: No such file or directory. Measurements such as `make bench` write result files."
    )
