from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from turnwire.client import cli as cli_module
from turnwire.client.command_group import GROUP, EntryPointGroup, turnwire

ROOT = Path(__file__).parents[2]
Group = Callable[..., EntryPointGroup]


@click.command()
@click.argument("who")
def hello(who: str) -> None:
    """Say hello."""
    click.echo(f"hello {who}")


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    """Makes a group of entry points; `good:hello` is a command there."""
    module = ModuleType("good")
    vars(module).update(hello=hello, number=3)
    monkeypatch.setitem(sys.modules, "good", module)

    def make(**points: str) -> EntryPointGroup:
        entry_points = [EntryPoint(name, value, GROUP) for name, value in points.items()]
        return EntryPointGroup("turnwire", find=lambda: entry_points)

    return make


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a module unimportable, and those that import it to be imported anew."""

    def hide(missing: str, *importers: str) -> None:
        monkeypatch.setitem(sys.modules, missing, None)
        for importer in importers:
            monkeypatch.delitem(sys.modules, importer, raising=False)

    return hide


def test_a_command_is_found_by_its_entry_point(cli: CliRunner, group: Group) -> None:
    commands = group(hello="good:hello")

    assert cli.invoke(commands, ["hello", "you"]).output == "hello you\n"
    assert "hello  Say hello." in cli.invoke(commands, ["--help"]).output
    assert cli.invoke(commands, ["nothing"]).exit_code == 2


def test_only_the_command_that_runs_is_imported(cli: CliRunner, group: Group) -> None:
    commands = group(hello="good:hello", broken="turnwire.server.no_such_module:x")

    assert cli.invoke(commands, ["hello", "you"]).exit_code == 0


def test_a_command_without_its_extra_is_listed_and_says_what_to_install(
    cli: CliRunner, group: Group, without: Callable[..., None]
) -> None:
    commands = group(serve="turnwire.server.cli:serve")
    without("grpc_health", "turnwire.server.cli")

    listed = cli.invoke(commands, ["--help"])
    ran = cli.invoke(commands, ["serve", "--grpc", "off", "x"])

    assert "serve  (needs: pip install 'turnwire[server]')" in listed.output
    assert (ran.exit_code, ran.stderr) == (2, "Error: turnwire serve needs: pip install 'turnwire[server]'\n")
    assert "Not available: needs: pip install" in cli.invoke(commands, ["serve", "--help"]).output


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("turnwire.server.no_such_module:x", "cannot be loaded: No module named 'turnwire.server.no_such_module'"),
        ("no_such_distribution.cli:x", "needs the module no_such_distribution"),
        ("good:missing", "cannot be loaded: there is no good:missing"),
        ("good:number", "cannot be loaded: good:number is not a click command"),
    ],
)
def test_a_broken_command_does_not_break_the_others(cli: CliRunner, group: Group, value: str, reason: str) -> None:
    commands = group(bad=value, hello="good:hello")

    result = cli.invoke(commands, ["bad"])

    assert (result.exit_code, result.stderr) == (2, f"Error: turnwire bad {reason}\n")
    assert "hello  Say hello." in cli.invoke(commands, ["--help"]).output


def test_the_servers_commands_are_where_the_project_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["scripts"]["turnwire"] == "turnwire.client.cli:main"
    for name in ("serve", "scenario"):
        assert isinstance(EntryPoint(name, project["entry-points"][GROUP][name], GROUP).load(), click.Command)


def test_help_and_version_are_there(cli: CliRunner) -> None:
    help_text = cli.invoke(turnwire, ["-h"]).output

    assert "Examples:\n    turnwire serve" in help_text
    assert cli.invoke(turnwire, ["--version"]).output.startswith("turnwire ")


def test_without_click_the_command_says_what_to_install(
    without: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    without("click", "turnwire.client.command_group")

    with pytest.raises(SystemExit) as caught:
        cli_module.main()

    assert caught.value.code == 2
    assert capsys.readouterr().err == "Error: the command line needs: pip install 'turnwire[cli]'\n"


def test_the_command_line_does_not_import_the_server() -> None:
    code = (
        "import sys, turnwire.client.cli, turnwire.client.command_group as g\nprint('turnwire.server' in sys.modules)"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "False\n"
