"""`turnwire bridge`.

Above it: the `turnwire` command, which finds it by its entry point. Below it: the configuration, and `app`.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path
from typing import Final

import click

from turnwire.bridge.config import OFF, BridgeConfig, find_fallback
from turnwire.client._channel import ChannelOptions
from turnwire.client._dial import check_address, uses_tls
from turnwire.client._transport import bearer
from turnwire.client.client import DEFAULT_ADDRESS
from turnwire.client.commands.target import read_pem
from turnwire.server.address import Address, parse_address
from turnwire.server.process import run_loop, say
from turnwire.server.telemetry.logs import configure_logging

# Here and not when a bridge starts, so that `turnwire --help` can say what to install.
if importlib.util.find_spec("aiohttp") is None:
    _missing = "No module named 'aiohttp'"
    raise ModuleNotFoundError(_missing, name="aiohttp")

OK: Final = 0
FAILED: Final = 1

_log: Final = logging.getLogger(__name__)

_EPILOG: Final = """\b
Examples:
  turnwire bridge --to grpc://models.internal:50051
  turnwire bridge --listen 127.0.0.1:9000 --to grpcs://models.example:443
  turnwire bridge --to grpc://10.0.0.5:50051 --fallback ws://10.0.0.5:80/v1/responses
  MY_KEY=... turnwire bridge --to grpcs://models.example:443 --api-key-env MY_KEY

\b
Then give clients the base URL http://127.0.0.1:8080/v1. Their keys are passed
on, unless --api-key-env names a variable with a key to show for all of them.

\b
Exit codes: 0 ended well, 1 failed at run time, 2 wrong usage.
SIGINT or SIGTERM lets running responses end; a second one stops at once."""


def _listen(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[Address, ...]:
    found: list[Address] = []
    for text in value:
        try:
            address = parse_address(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        if address is None:
            msg = "a bridge has to listen somewhere"
            raise click.BadParameter(msg)
        found.append(address)
    return tuple(found)


def _server(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        check_address(value)
    except (ValueError, ImportError) as error:
        raise click.BadParameter(str(error)) from error
    return value


@click.command(epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.option(
    "--listen",
    metavar="ADDRESS",
    multiple=True,
    default=("127.0.0.1:8080",),
    show_default=True,
    callback=_listen,
    help="Serve HTTP and WebSocket here: HOST:PORT (port 0 picks a free one) or unix:PATH. Repeatable.",
)
@click.option(
    "--to",
    "server",
    metavar="ADDRESS",
    default=DEFAULT_ADDRESS,
    envvar="TURNWIRE_ADDRESS",
    show_default=True,
    show_envvar=True,
    callback=_server,
    help="The server: grpc://HOST:PORT, grpcs://HOST:PORT for TLS, unix:PATH, or ws:// and wss:// for WebSocket.",
)
@click.option(
    "--fallback",
    metavar="ADDRESS",
    help=f"Where to go over WebSocket while gRPC does not get through, or {OFF}.  [of grpcs://HOST:PORT wss://HOST, of"
    " grpc://HOST:PORT ws://HOST:8080]",
)
@click.option("--api-key-env", metavar="NAME", help="Variable that holds a key to show for all clients.")
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path),
    envvar="TURNWIRE_CA_FILE",
    show_envvar=True,
    help="Authorities to trust with grpcs: and wss:, PEM.  [those of the system]",
)
@click.option(
    "--connect-timeout",
    type=click.FloatRange(0.1, 300.0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a way to the server may take to open.",
)
@click.option(
    "--drain-grace",
    type=click.FloatRange(0.0, 3600.0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for running responses at shut-down.",
)
@click.option(
    "--allow-public", is_flag=True, help="Listen where others can reach it: the bridge itself asks nobody for a key."
)
@click.option(
    "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info", show_default=True
)
@click.option("--log-format", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.pass_context
def bridge(
    context: click.Context,
    /,
    *,
    listen: tuple[Address, ...],
    server: str,
    fallback: str | None,
    api_key_env: str | None,
    ca_file: Path | None,
    connect_timeout: float,
    drain_grace: float,
    allow_public: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Serve the official HTTP and WebSocket API on this machine, and pass everything on over gRPC.

    Codex and whatever else speaks the Responses API so rides over gRPC by its base URL. Writes one line to standard
    output per address, once it listens; logs go to standard error, and say when a fallback is taken.
    """
    public = [address for address in listen if address.public]
    if public and not allow_public:
        why = f"others can reach {public[0]}, and a bridge asks nobody for a key"
        msg = f"{why}: listen at 127.0.0.1, or say --allow-public"
        raise click.UsageError(msg)
    try:
        fallback = find_fallback(server, fallback, listen)
    except (ValueError, ImportError) as error:
        raise click.BadParameter(str(error), param_hint="--fallback") from error
    config = BridgeConfig(
        listen=listen,
        server=server,
        fallback=fallback,
        authorization=_authorization(api_key_env),
        channel=ChannelOptions(connect_timeout=connect_timeout, root_certificates=_authorities(ca_file, server)),
        drain_grace=drain_grace,
    )
    configure_logging(log_level, log_format)
    context.exit(_run(config))


def _authorization(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        msg = f"the variable {variable} is empty or not set"
        raise click.BadParameter(msg, param_hint="--api-key-env")
    try:
        ((_, authorization),) = bearer(key)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--api-key-env") from error
    return authorization


def _authorities(file: Path | None, server: str) -> bytes | None:
    if file is None:
        return None
    if not uses_tls(server):
        msg = f"{server} does without TLS: give grpcs://HOST:PORT or wss://HOST:PORT, or leave out --ca-file"
        raise click.UsageError(msg)
    return read_pem(file)


def _run(config: BridgeConfig) -> int:
    from turnwire.bridge.app import CannotListen, run_bridge

    try:
        return run_loop(run_bridge(config, say))
    except CannotListen as error:
        click.echo(f"Error: {error}", err=True)
        return FAILED
    except KeyboardInterrupt:
        # A signal before the bridge had its own handlers, or one that it did not wait for.
        return FAILED
    except Exception:
        _log.exception("the bridge failed")
        return FAILED
