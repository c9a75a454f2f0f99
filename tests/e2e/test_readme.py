"""What the README shows was really run: its grpcurl session and its client, against a real server process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "localhost:50051"
ELLIPSIS = "…"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def session() -> list[tuple[str, list[str]]]:
    """Splits the console block into commands and the lines that are shown as their output."""
    (block,) = blocks("console")
    steps: list[tuple[str, list[str]]] = []
    lines = iter(block.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            steps[-1][1].append(line)
            continue
        command = [line.removeprefix("$ ")]
        if "<<" in line:
            end = line.rsplit("<<", 1)[1].strip().strip("'")
            for more in lines:
                command.append(more)
                if more == end:
                    break
        steps.append(("\n".join(command), []))
    return steps


class Addresses(NamedTuple):
    grpc: str
    http: str


@pytest.fixture(scope="module")
def server() -> Iterator[Addresses]:
    command = [
        sys.executable,
        "-m",
        "turnwire.client.cli",
        "serve",
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--metrics",
        "off",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        try:
            yield Addresses(*(line.rpartition(" ")[2].strip() for line in lines))
        finally:
            process.terminate()


def same_but_ids(text: str) -> list[str]:
    """Returns the lines without indentation, ids cut to their prefix."""
    return [re.sub(r"_[0-9a-f]{24,}", "_" + ELLIPSIS, line.strip()) for line in text.splitlines()]


def test_the_grpcurl_session_answers_as_shown(server: Addresses) -> None:
    steps = session()
    assert len(steps) == 2
    for command, shown in steps:
        assert command.startswith("grpcurl ")
        program = Path(sys.executable).with_name("grpcurl")
        script = command.replace("grpcurl", str(program), 1).replace(ADDRESS, server.grpc)
        ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
        answered = iter(same_but_ids(ran.stdout))
        for line in same_but_ids("\n".join(shown)):
            # Shown lines must come in this order; an ellipsis leaves any number of others out.
            assert line == ELLIPSIS or line in answered, line


def test_the_ten_lines_of_client_run(server: Addresses) -> None:
    (block,) = [block for block in blocks("python") if "from turnwire.client import connect" in block]
    program = block.replace(ADDRESS, server.grpc)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip(), "it streams what the model says after the tools"


def test_the_official_sdk_rides_over_grpc_as_shown(server: Addresses) -> None:
    (block,) = [block for block in blocks("python") if "from openai import OpenAI" in block]
    program = block.replace(ADDRESS, server.grpc)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip()


def test_the_curl_line_answers(server: Addresses) -> None:
    (command,) = [block for block in blocks("sh") if block.startswith("curl ")]
    script = command.replace("http://127.0.0.1:8080", server.http).replace("curl ", "curl -sf ", 1)
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(ran.stdout)["status"] == "completed"


def test_the_targets_it_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_pages_it_links_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link
