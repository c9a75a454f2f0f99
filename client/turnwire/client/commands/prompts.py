"""What a command asks, and whom: texts from the command line or standard input, and the model.

Above it: the commands. Below it: the one-shot methods of the client library.
"""

from __future__ import annotations

import sys
from typing import Final, Protocol

import click

from turnwire.client import TurnwireError
from turnwire.v1.responses_service_pb2 import Model

_SIMULATION: Final = "scripted"


def checked_text(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Lets a flag's text pass if it can travel: arguments of a process may be any bytes. A callback for click.

    Raises:
        click.BadParameter: It cannot.
    """
    if value is not None and not _is_utf8(value):
        msg = "not UTF-8 text"
        raise click.BadParameter(msg)
    return value


model_option: Final = click.option(
    "--model",
    metavar="NAME",
    envvar="TURNWIRE_MODEL",
    show_envvar=True,
    callback=checked_text,
    help="Model to ask.  [the server's first]",
)


def read_prompt(prompt: str, *, what: str = "prompt") -> str:
    """Returns the prompt, from standard input where it is `-`.

    Args:
        prompt: As the command line has it.
        what: What to call it where it is wrong.

    Raises:
        click.UsageError: It is empty, or not UTF-8 text.
    """
    if prompt == "-":
        # Bytes, because what Python makes of others than UTF-8 here depends on the locale.
        prompt = sys.stdin.buffer.read().decode(errors="surrogateescape")
    if not _is_utf8(prompt):
        msg = f"the {what} is not UTF-8 text"
        raise click.UsageError(msg)
    if not prompt.strip():
        msg = f"the {what} is empty"
        raise click.UsageError(msg)
    return prompt


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Models(Protocol):
    """Knows the models of a server: a session, or the one-shot methods."""

    async def list_models(self) -> list[Model]:
        """Lists the models that can be named. Cancelling it is safe."""
        ...


async def pick_model(service: Models, wanted: str | None) -> str:
    """Returns the model to ask: the one that was named, else the first the server lists. Cancelling it is safe.

    Says so on standard error where that model is a simulation, whose answers have nothing to do with the prompt.

    Raises:
        click.UsageError: The server lists none.
        TurnwireError: The server could not be asked, and none was named.
    """
    try:
        models = await service.list_models()
    except TurnwireError:
        # A named one may be asked all the same; what is wrong shows then.
        if wanted:
            return wanted
        raise
    model = next((one for one in models if one.id == wanted), Model(id=wanted)) if wanted else _first(models)
    if model.engine == _SIMULATION:
        click.echo("note: the model is a scripted simulation", err=True)
    return model.id


def _first(models: list[Model]) -> Model:
    if not models:
        msg = "the server lists no models; name one with --model"
        raise click.UsageError(msg)
    return models[0]
