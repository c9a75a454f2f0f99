"""The demo as people run it: real processes, a real port, real tests of a real project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnwire.server.engine.scripted.scenario import packaged_scenario

STEPS = Path(__file__).parents[1] / "client" / "agent" / "sample_project_steps.json"
COMMAND = [sys.executable, "-m", "turnwire.client.cli", "demo"]


def run(*arguments: str, temporary: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TURNWIRE_", "COLUMNS"))}
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**environment, "TMPDIR": str(temporary), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.timeout(150)
def test_an_agent_repairs_the_sample_project_over_one_stream(tmp_path: Path) -> None:
    result = run("--shape", "append", "--lanes", "2", temporary=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    text = result.stdout
    assert "The model is simulated" in text
    assert re.findall(r"tests before: 10 failed, 16 passed", text)
    assert re.findall(r"tests after: 26 passed", text)
    in_all = re.search(r"In all (\d+) turns, (\d+) tool calls and ([\d,]+) sampled tokens over one gRPC stream", text)
    assert in_all is not None
    # Alone, and then twice in lanes.
    assert int(in_all[1]) == 3 * 16
    assert int(in_all[2]) == 3 * 26
    assert "16 answer" in text
    assert re.search(r"API \d+\.\d\d s \(.*inference .*client ", text)
    assert result.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(60)
def test_a_server_that_cannot_start_is_said_in_a_sentence(tmp_path: Path) -> None:
    # Every Python looks for this module when it starts; this one ends those that are to serve.
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import os, sys\nif 'serve' in sys.orig_argv:\n    os.write(2, b'a bad day')\n    os._exit(1)\n"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    result = run("--lanes", "0", temporary=temporary, PYTHONPATH=str(broken))
    assert result.returncode == 1
    assert result.stderr == "Error: the demo's server ended with code 1: a bad day\n"
    assert list(temporary.iterdir()) == []


def test_the_scenario_plays_the_repair_that_was_proven_step_by_step() -> None:
    steps = json.loads(STEPS.read_text())
    played = [turn for turn in packaged_scenario("demo").turns if turn.when is None]
    assert [turn.text for turn in played] == [step["text"] for step in steps]
    assert [turn.reasoning for turn in played] == [step["reasoning"] for step in steps]
    assert [[(call.name, json.loads(call.arguments)) for call in turn.calls] for turn in played] == [
        [(call["name"], call["arguments"]) for call in step["calls"]] for step in steps
    ]
