"""The server's commands: `turnwire serve` and `turnwire scenario check`.

Above it: the `turnwire` command, which finds them by their entry points. Below it: the configuration, and `app`, which
is imported only when a server really starts.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

_NEEDED: Final = (
    "aiohttp",
    "cryptography",
    "grpc_health",
    "grpc_reflection",
    "jsonschema",
    "prometheus_client",
    "tiktoken",
)

# Here and not when a server starts, so that `turnwire --help` can say what to install.
for _module in _NEEDED:
    if importlib.util.find_spec(_module) is None:
        _missing = f"No module named '{_module}'"
        raise ModuleNotFoundError(_missing, name=_module)

from turnwire.server.config import ConfigError, ServerConfig, StartError  # noqa: E402
from turnwire.server.engine.scripted.scenario import ScenarioError, load_scenario  # noqa: E402
from turnwire.server.keys import KeyFileError  # noqa: E402
from turnwire.server.process import run_loop, say  # noqa: E402
from turnwire.server.settings import SETTINGS, load_config  # noqa: E402
from turnwire.server.sources import Setting  # noqa: E402
from turnwire.server.telemetry.logs import configure_logging  # noqa: E402

OK: Final = 0
FAILED: Final = 1
MISUSED: Final = 2

_log: Final = logging.getLogger(__name__)
_Command = TypeVar("_Command", bound=Callable[..., Any])

_SERVE_EPILOG: Final = """\b
Examples:
  turnwire serve
  turnwire serve --scenario my.toml --tokens-per-second 1000
  turnwire serve --grpc 127.0.0.1:0 --grpc unix:/run/turnwire.sock
  turnwire serve --http 127.0.0.1:0 --grpc off
  turnwire serve --grpc 0.0.0.0:50051 --api-key-file keys.txt --metrics off
  turnwire serve --config turnwire.toml --log-format json

\b
ADDRESS is HOST:PORT (port 0 picks a free one), [IPV6]:PORT, unix:PATH or off.
DURATION is such as 250ms, 30s, 5m or 2h.
Every flag has an environment variable, TURNWIRE_GRPC for --grpc, and a key in
the TOML file; flags win over variables, variables over the file.

\b
Exit codes: 0 ended well, 1 failed at run time, 2 wrong usage or configuration.
SIGINT or SIGTERM lets running responses end; a second one stops at once."""

_CHECK_EPILOG: Final = """\b
Examples:
  turnwire scenario check my.toml
  turnwire scenario check scenarios/*.toml

\b
Exit codes: 0 all can be played, 1 at least one cannot, 2 wrong usage."""


def _options(command: _Command) -> _Command:
    """Gives a command the flag of every setting that has one."""
    for setting in reversed(SETTINGS):
        if setting.flag:
            command = _option(setting)(command)
    return command


def _option(setting: Setting) -> Callable[[_Command], _Command]:
    note = f"  [{setting.default}]" if setting.default and setting.metavar else ""
    name = setting.key.replace(".", "_")
    text = setting.help.removesuffix(".") + note
    if not setting.metavar:
        return click.option(setting.flag, name, is_flag=True, default=None, help=text)
    return click.option(setting.flag, name, metavar=setting.metavar, multiple=setting.repeatable, help=text)


@click.command(epilog=_SERVE_EPILOG, context_settings={"max_content_width": 100})
@_options
@click.pass_context
def serve(context: click.Context, /, **given: object) -> None:
    """Serve the Responses API over gRPC, HTTP and WebSocket.

    Writes one line to standard output per address, once it listens; logs go to standard error.
    """
    flags = {setting.key: given.get(setting.key.replace(".", "_")) for setting in SETTINGS if setting.flag}
    try:
        config = load_config(flags, os.environ)
    except ConfigError as error:
        context.exit(_refuse(error))
    configure_logging(config.log.level, config.log.format)
    context.exit(_run(config))


def _run(config: ServerConfig) -> int:
    from turnwire.server.app import run_server

    try:
        return run_loop(run_server(config, say))
    except (ConfigError, KeyFileError, ScenarioError) as error:
        return _refuse(error)
    except (StartError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        return FAILED
    except KeyboardInterrupt:
        # A signal before the server had its own handlers, or one that it did not wait for.
        return FAILED
    except Exception:
        _log.exception("the server failed")
        return FAILED


def _refuse(error: Exception) -> int:
    for line in str(error).splitlines():
        click.echo(f"Error: {line}", err=True)
    return MISUSED


@click.group()
def scenario() -> None:
    """Work with scenario files of the scripted engine."""


@scenario.command(epilog=_CHECK_EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.pass_context
def check(context: click.Context, files: tuple[Path, ...]) -> None:
    """Check that scenario files can be played.

    Names every mistake with its file, line and key.
    """
    code = OK
    for file in files:
        place = f"{file}: " if len(files) > 1 else ""
        try:
            turns = len(load_scenario(file).turns)
        except ScenarioError as error:
            click.echo(str(error))
            code = FAILED
        else:
            click.echo(f"{place}ok: {turns} turn{'' if turns == 1 else 's'}")
    context.exit(code)
