from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from turnwire.client.agent import workspace
from turnwire.client.agent.tools import ToolSet
from turnwire.client.agent.workspace import Workspace

PROJECT = Path(workspace.__file__).parents[1] / "demo" / "project"
STEPS = Path(__file__).with_name("sample_project_steps.json")
SUITE = json.dumps({"command": "python -m pytest -q --tb=no"})


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__")))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def failures(output: str) -> int:
    match = re.search(r"(\d+) failed", output)
    return int(match[1]) if match else 0


async def test_the_steps_turn_the_suite_from_red_to_green(copy: Path) -> None:
    tools = ToolSet(Workspace(copy).tools())
    untouched = contents(copy)
    before = (await tools.run("run_command", SUITE)).output
    assert before.startswith("exit code: 1\n")
    assert "10 failed, 16 passed" in before

    turns: list[dict[str, Any]] = json.loads(STEPS.read_text())
    calls = [call for turn in turns for call in turn["calls"]]
    whole_suite: list[int] = []
    for turn in turns:
        results = await asyncio.gather(
            *(tools.run(call["name"], json.dumps(call["arguments"])) for call in turn["calls"])
        )
        for call, result in zip(turn["calls"], results, strict=True):
            assert not result.failed, result.output
            command = call["arguments"].get("command", "")
            if command.startswith("python -m pytest -q") and "tests/" not in command:
                whole_suite.append(failures(result.output))

    after = (await tools.run("run_command", SUITE)).output
    assert after.startswith("exit code: 0\n")
    assert "26 passed" in after
    changed = {name for name, data in contents(copy).items() if untouched.get(name) != data and "cache" not in name}
    assert changed == {"tallybook/money.py", "tallybook/periods.py"}
    assert whole_suite == [10, 7, 0]
    assert len(turns) >= 12
    assert len(calls) >= 14
    assert turns[-1]["calls"] == []
    assert {call["name"] for call in calls} >= {"list_files", "search", "read_file", "edit_file", "apply_patch"}


async def test_either_fix_alone_is_not_enough(copy: Path) -> None:
    tools = ToolSet(Workspace(copy).tools())
    turns: list[dict[str, Any]] = json.loads(STEPS.read_text())
    edits = [call for turn in turns for call in turn["calls"] if call["name"] in ("edit_file", "apply_patch")]
    for call in edits:
        if "periods.py" in json.dumps(call):
            await tools.run(call["name"], json.dumps(call["arguments"]))
    assert "4 failed" in (await tools.run("run_command", SUITE)).output
