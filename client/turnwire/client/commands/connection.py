"""What the commands that talk to a server share: how they are told where it is, and how they end.

Above it: the commands. Below it: the client library.

    0   all went well
    1   the server, a response or a tool failed
    2   wrong usage
    3   no connection, or no access
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click

from turnwire.client import AuthenticationError, Connect, ConnectError, Session, TurnwireError, connect
from turnwire.client._channel import parse_address
from turnwire.client.client import DEFAULT_ADDRESS

OK: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
NO_CONNECTION: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143

EXIT_CODES: Final = """\b
Exit codes: 0 ended well, 1 the server, a response or a tool failed,
2 wrong usage, 3 cannot connect or no access."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """A server, as the flags name it."""

    address: str
    api_key: str | None

    def connect(self) -> Connect:
        """Opens a session there."""
        return connect(self.address, api_key=self.api_key)


def target_options(command: _Command) -> _Command:
    """Gives a command the flags that `target` reads."""
    for option in (
        click.option(
            "--api-key-file",
            type=click.Path(path_type=Path),
            help="File with the key in its first line; safer than --api-key, which others may see.",
        ),
        click.option(
            "--api-key", metavar="KEY", envvar="TURNWIRE_API_KEY", show_envvar=True, help="Key the server asks for."
        ),
        click.option(
            "--address",
            metavar="ADDRESS",
            default=DEFAULT_ADDRESS,
            envvar="TURNWIRE_ADDRESS",
            show_default=True,
            show_envvar=True,
            callback=_checked_address,
            help="HOST:PORT, grpcs://HOST:PORT for TLS, or unix:PATH.",
        ),
    ):
        command = option(command)
    return command


def target(address: str, api_key: str | None, api_key_file: Path | None) -> Target:
    """Puts the flags together.

    Raises:
        click.UsageError: The key file cannot be used.
    """
    if api_key_file is not None:
        try:
            lines = api_key_file.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            msg = f"{api_key_file}: cannot be read: {reason}"
            raise click.UsageError(msg) from error
        if not lines:
            msg = f"{api_key_file}: there is no key in it"
            raise click.UsageError(msg)
        api_key = lines[0]
    return Target(address, api_key or None)


async def pick_model(session: Session, wanted: str | None) -> str:
    """Returns the model to ask: the one that was named, else the first the server lists. Cancelling it is safe.

    Raises:
        click.UsageError: The server lists none.
    """
    if wanted:
        return wanted
    models = await session.list_models()
    if not models:
        msg = "the server lists no models; name one with --model"
        raise click.UsageError(msg)
    return models[0].id


def read_prompt(prompt: str) -> str:
    """Returns the prompt, from standard input where it is `-`.

    Raises:
        click.UsageError: It is empty.
    """
    if prompt == "-":
        prompt = sys.stdin.read()
    if not prompt.strip():
        msg = "the prompt is empty"
        raise click.UsageError(msg)
    return prompt


def run(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Runs a command's work and exits with the code it returns; says what went wrong in a sentence."""
    try:
        code = asyncio.run(_until_terminated(work))
    except (ConnectError, AuthenticationError) as error:
        complain(str(error))
        code = NO_CONNECTION
    except TurnwireError as error:
        complain(str(error))
        code = FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except asyncio.CancelledError:
        code = TERMINATED
    sys.exit(code)


async def _until_terminated(work: Coroutine[Any, Any, int]) -> int:
    """Lets SIGTERM end work as Ctrl-C does: whatever it started is ended with it."""
    task = asyncio.current_task()
    if task is not None:
        # Elsewhere than in the main thread of a POSIX process there is no such handler.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


def complain(message: str) -> None:
    """Writes what went wrong to standard error."""
    click.echo(f"Error: {message}", err=True)


def _checked_address(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value
