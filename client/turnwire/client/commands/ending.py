"""How the commands that talk to a server end: a sentence about what went wrong, and an exit code.

Above it: the commands. Below it: the client's exceptions.

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
from collections.abc import Coroutine
from typing import Any, Final, NoReturn

import click

from turnwire.client import AuthenticationError, ConnectError, TurnwireError

OK: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
NO_CONNECTION: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143

EXIT_CODES: Final = """\b
Exit codes: 0 ended well, 1 the server, a response or a tool failed,
2 wrong usage, 3 cannot connect or no access."""


def run(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Runs a command's work and exits with the code it returns; says what went wrong in a sentence."""
    try:
        code = asyncio.run(_until_terminated(work))
    except AuthenticationError as error:
        # The first sentence says what is wrong; what a server advises then is about headers.
        reason = str(error).partition(". ")[0].rstrip(".")
        complain(f"no access: {reason}; give the key by --api-key-file, --api-key or TURNWIRE_API_KEY")
        code = NO_CONNECTION
    except ConnectError as error:
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
