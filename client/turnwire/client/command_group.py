"""The root of the command line: commands found by entry point and imported only when they are needed.

Above it: `cli`. Below it: whoever declares an entry point in `turnwire.commands`. That is how `turnwire serve` lives
beside the client's commands although the client never imports the server, and how other packages can add commands.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from typing import Any, Final

import click

GROUP: Final = "turnwire.commands"

# Longest first: which extra brings what a module of ours imports.
_EXTRAS: Final = (
    ("turnwire.client.commands.agent", "agent"),
    ("turnwire.client.commands.demo", "server,agent"),
    ("turnwire.client", "cli"),
    ("turnwire.bridge", "bridge"),
    ("turnwire.server", "server"),
    ("turnwire.bench", "bench"),
)


def find_commands() -> Iterable[EntryPoint]:
    """Returns the entry points of all installed commands."""
    return importlib.metadata.entry_points(group=GROUP)


class Unavailable(click.Command):
    """Stands for a command that cannot be imported, so that --help still lists it and says why."""

    def __init__(self, name: str, reason: str) -> None:
        """Takes the reason as a sentence without its end."""
        super().__init__(
            name,
            short_help=f"({reason})",
            help=f"Not available: {reason}.",
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )
        self.reason = reason

    def invoke(self, ctx: click.Context) -> None:
        """Exits with 2, saying why."""
        click.echo(f"Error: turnwire {self.name} {self.reason}", err=True)
        ctx.exit(2)


class EntryPointGroup(click.Group):
    """A group whose commands are entry points."""

    def __init__(self, *args: Any, find: Callable[[], Iterable[EntryPoint]] = find_commands, **kwargs: Any) -> None:
        """Takes where entry points come from, and whatever a group takes."""
        super().__init__(*args, **kwargs)
        self.find = find

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names all commands."""
        return sorted({point.name for point in self.find()} | set(super().list_commands(ctx)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one command."""
        for point in self.find():
            if point.name == cmd_name:
                return _load(point)
        return super().get_command(ctx, cmd_name)


def _load(point: EntryPoint) -> click.Command:
    try:
        command = point.load()
    except ImportError as error:
        return Unavailable(point.name, _reason(point, error))
    except AttributeError:
        return Unavailable(point.name, f"cannot be loaded: there is no {point.value}")
    if not isinstance(command, click.Command):
        return Unavailable(point.name, f"cannot be loaded: {point.value} is not a click command")
    return command


def _reason(point: EntryPoint, error: ImportError) -> str:
    missing = (error.name or "").partition(".")[0]
    if missing and missing != "turnwire":
        for module, extra in _EXTRAS:
            if f"{point.module}.".startswith(f"{module}."):
                return f"needs: pip install 'turnwire[{extra}]'"
        return f"needs the module {missing}"
    return f"cannot be loaded: {error}"


def _version() -> str:
    try:
        return importlib.metadata.version("turnwire")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@click.group(
    cls=EntryPointGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  turnwire serve
  turnwire create "Say hello"
  turnwire COMMAND --help""",
)
@click.version_option(_version(), message="turnwire %(version)s")
def turnwire() -> None:
    """An agent's turns over one wire: the Responses API on gRPC bidirectional streams."""
