from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from turnwire.client.commands.agent import agent
from turnwire.client.testing import FakeServer, function_call, message

Invoke = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("milk\n")
    return tmp_path


@pytest.mark.parametrize("shape", ["append", "create"])
def test_an_agent_works_on_its_workspace_and_says_where_the_time_went(
    shape: str, fake: FakeServer, invoke: Invoke, folder: Path
) -> None:
    fake.answer(function_call("read_file", {"path": "notes.txt"}, call_id="call_1"))
    fake.answer(function_call("edit_file", {"path": "notes.txt", "old": "milk", "new": "tea"}, call_id="call_2"))
    fake.answer(message("It is tea now."))
    result = invoke(agent, "--model", "m", "--shape", shape, "--workspace", str(folder), "Buy tea.")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "It is tea now.\n"
    assert (folder / "notes.txt").read_text() == "tea\n"
    assert "turn 1: read_file" in result.stderr
    assert "3 turns, 2 tool calls" in result.stderr
    assert "inference" in result.stderr
    assert len(fake.creates) == (1 if shape == "append" else 3)


def test_a_quiet_agent_only_answers(fake: FakeServer, invoke: Invoke, folder: Path) -> None:
    fake.answer(message("Done."))
    result = invoke(agent, "--model", "m", "--quiet", "--workspace", str(folder), "-", stdin="Do nothing.")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Done.\n", "")


def test_too_many_turns_end_with_1_and_show_what_there_was(fake: FakeServer, invoke: Invoke, folder: Path) -> None:
    fake.answer(function_call("list_files", {}, call_id="call_1"))
    fake.answer(function_call("list_files", {}, call_id="call_2"))
    result = invoke(agent, "--model", "m", "--max-turns", "2", "--workspace", str(folder), "Go on.")
    assert result.exit_code == 1
    assert "turn 1: list_files" in result.stderr
    assert "turn 2: calls not run" in result.stderr
    assert result.stderr.endswith("Error: the model was not done within --max-turns 2; raise it to let it go on\n")
    assert len(fake.cancels) == 1


def test_a_run_that_fails_has_not_answered(fake: FakeServer, invoke: Invoke, folder: Path) -> None:
    fake.answer(function_call("list_files", {}, call_id="call_1"))
    fake.fail("server_shutting_down", "good night")
    result = invoke(agent, "--model", "m", "--workspace", str(folder), "Go on.")
    assert result.exit_code == 1
    assert "turn 2: failed" in result.stderr
    assert "answer" not in result.stderr


def test_an_empty_task_is_called_by_its_name(invoke: Invoke) -> None:
    result = invoke(agent, "")
    assert result.exit_code == 2
    assert "the task is empty" in result.stderr


def test_a_workspace_that_is_not_there_is_wrong_usage(invoke: Invoke) -> None:
    result = invoke(agent, "--workspace", "no-such-folder", "Go.")
    assert result.exit_code == 2
    assert "no-such-folder" in result.stderr
