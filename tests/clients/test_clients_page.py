"""Every snippet of the page about official clients works as it stands, but for the address."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from .harness.codex import Codex
from .harness.node import run_script
from .harness.proxy import Proxy
from .harness.server import Server

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
PINNED = (Path(__file__).parent / "node" / "package.json").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8080"
HELLO = "Hello! I play a scenario."


def snippets(heading: str, language: str) -> list[str]:
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def at(server: Server, text: str) -> str:
    """Returns a text with the server's address in place of the page's."""
    assert ADDRESS in text
    return text.replace(ADDRESS, server.base_url.removeprefix("http://").removesuffix("/v1"))


@pytest.mark.parametrize(
    ("heading", "number", "said"),
    [
        ("openai for Python", 0, [HELLO, HELLO, "completed"]),
        ("openai for Python", 1, [f"a {HELLO}", f"b {HELLO}"]),
        ("Agents SDK", 0, [HELLO]),
    ],
)
def test_a_python_snippet_says_hello(
    sdk_server: Server, capsys: pytest.CaptureFixture[str], heading: str, number: int, said: list[str]
) -> None:
    # `exec` is what a snippet of a page is for.
    exec(compile(at(sdk_server, snippets(heading, "python")[number]), "docs/clients.md", "exec"), {"__name__": "page"})
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(said)


@pytest.mark.clients
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("heading", "said"), [("openai for Node", f"{HELLO}\ncompleted"), ("Vercel AI SDK", HELLO)])
def test_a_node_snippet_says_hello(sdk_server: Server, tmp_path: Path, heading: str, said: str) -> None:
    (script,) = snippets(heading, "js")
    assert run_script(at(sdk_server, script), tmp_path).strip() == said


@pytest.mark.clients
@pytest.mark.timeout(120)
def test_without_its_fetch_the_ai_sdk_uses_http(sdk_server: Server, tmp_path: Path) -> None:
    (script,) = snippets("Vercel AI SDK", "js")
    over_http = "".join(line for line in script.splitlines(keepends=True) if "WebSocket" not in line)
    over_http = over_http.replace(", fetch }", " }").replace("fetch.close();\n", "")
    assert "fetch" not in over_http
    assert run_script(at(sdk_server, over_http), tmp_path).strip() == HELLO


@pytest.mark.clients
@pytest.mark.timeout(120)
async def test_codex_says_hello_with_the_configuration_of_the_page(codex_server: Server, tmp_path: Path) -> None:
    (config,) = snippets("Codex CLI", "toml")
    proxy = Proxy(codex_server.base_url)
    project = tmp_path / "project"
    project.mkdir()
    async with proxy.listening():
        told = config.replace(f"http://{ADDRESS}/v1", proxy.base_url)
        # What the page need not say: nothing is to leave this machine.
        quiet = "check_for_update_on_startup = false\nfeatures = { plugins = false, apps = false }\n"
        run = await Codex(tmp_path / "home").exec(proxy.base_url, project, _task(), config=quiet + told)
    assert run.answer == HELLO
    assert proxy.requests == ["GET /v1/responses upgrade"]


def _task() -> str:
    (line,) = re.findall(r"`TURNWIRE_API_KEY=none (codex exec .*?)`", PAGE)
    return shlex.split(line)[-1]


def test_the_page_names_the_versions_that_are_tested() -> None:
    pinned = dict(re.findall(r'"([@a-z/-]+)": "([0-9.]+)"', PINNED))
    rows = re.findall(r"^\| .* \|$", PAGE, re.MULTILINE)
    told = "\n".join(rows)
    for name in ("openai", "@openai/codex", "ai", "@vercel/ai-sdk-openai-websocket-fetch"):
        assert pinned[name] in told
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    for version in re.findall(r'"openai(?:\[realtime\]|-agents)==([0-9.]+)"', project):
        assert version in told
