"""`turnwire demo`: agents repair a small project over one stream.

Above it: the `turnwire` command. Below it: `turnwire.client.demo`.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Final, Literal

import click
from rich.console import Console

from turnwire.client.agent import Shape
from turnwire.client.commands.ending import FAILED, MISUSED, OK, complain, run
from turnwire.client.commands.waterfall import make_console
from turnwire.client.demo.sample import plain_pytest
from turnwire.client.demo.show import Plan, run_demo

_SHAPES: Final[dict[str, tuple[Shape, ...]]] = {
    "append": ("append",),
    "create": ("create",),
    "both": ("append", "create"),
}

_EPILOG = """\b
Examples:
  turnwire demo
  turnwire demo --shape append --lanes 0
  turnwire demo --lanes 32

\b
Exit codes: 0 the tests of every copy failed before and pass after, 1 they do
not or something failed, 2 wrong usage or something is not installed."""


@click.command(epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.option(
    "--shape",
    type=click.Choice(list(_SHAPES)),
    default="both",
    show_default=True,
    help="How one agent alone travels: in one held response, in one response per turn, or first so, then so.",
)
@click.option(
    "--lanes",
    type=click.IntRange(min=0, max=64),
    default=8,
    show_default=True,
    help="How many agents then work at once, each in a lane of its own; 0 for none.",
)
def demo(shape: Literal["append", "create", "both"], lanes: int) -> None:
    """Watch agents repair a small project over one stream.

    Starts a server, copies a sample project whose tests fail, lets an agent repair it with real tools, and shows where
    the time went, turn by turn. The model is simulated: the scripted engine plays a scenario at 1,000 tokens a second.
    """
    for module in ("pytest", "turnwire.server"):
        if importlib.util.find_spec(module) is None:
            package = "turnwire[server]" if module == "turnwire.server" else module
            complain(f"the demo needs {module}: pip install '{package}'")
            raise SystemExit(MISUSED)
    run(_demo(make_console(), Plan(_SHAPES[shape], lanes)))


async def _demo(console: Console, plan: Plan) -> int:
    console.print("turnwire demo", style="bold")
    console.print(
        "The model is simulated: the scripted engine plays a scenario file at 1,000 tokens a second. "
        "The server, the stream, the tools, the edits and the tests are real."
    )
    with tempfile.TemporaryDirectory(prefix="turnwire-demo-") as folder, plain_pytest():
        repaired = await run_demo(console, plan, Path(folder))
    return OK if repaired else FAILED
