"""`turnwire agent`: lets a model work on a folder with local tools.

Above it: the `turnwire` command. Below it: the agent loop and its workspace tools.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from turnwire.client.agent import Agent, AgentError, AgentResult, Shape, TurnLimitError, Workspace
from turnwire.client.agent.loop import DEFAULT_MAX_TURNS
from turnwire.client.commands.ending import EXIT_CODES, FAILED, OK, complain, run
from turnwire.client.commands.progress import Progress, Watch
from turnwire.client.commands.prompts import checked_text, model_option, pick_model, read_prompt
from turnwire.client.commands.target import Target, target_options
from turnwire.client.commands.waterfall import make_console, totals_lines, waterfall
from turnwire.v1.response_pb2 import ResponseStatus

INSTRUCTIONS: Final = (
    "You work on the project in the current folder with the tools you have. Look before you change something, make "
    "small changes, run the tests after each, and end with a short account of what was wrong and what you did."
)
"""What the model is told unless told otherwise."""

_EPILOG = f"""\b
Examples:
  turnwire agent "Make the failing tests pass." --workspace ./project
  turnwire agent "Add a --verbose flag." --model gpt-oss-20b --shape create
  turnwire agent --quiet - < task.md > report.md

\b
The tools list, search, read, edit and patch files of the workspace only, but
run_command may do whatever you may do: use a container where that matters.
The answer goes to standard output, progress and timings to standard error.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.argument("task")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder to work in.  [the current one]",
)
@model_option
@click.option(
    "--shape",
    type=click.Choice(["append", "create"]),
    default="append",
    show_default=True,
    help="How the run travels: one held response, or one response per turn.",
)
@click.option(
    "--instructions",
    metavar="TEXT",
    callback=checked_text,
    default=INSTRUCTIONS,
    help="What the model is told before the task.",
)
@click.option(
    "--max-turns",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX_TURNS,
    show_default=True,
    help="How often the model may be asked.",
)
@click.option("--quiet", is_flag=True, help="Show neither progress nor timings.")
@target_options
def agent(
    task: str,
    workspace: Path,
    model: str | None,
    shape: Shape,
    instructions: str,
    max_turns: int,
    quiet: bool,
    where: Target,
) -> None:
    """Let a model work on a folder with local tools.

    TASK is what to do, or - to read it from standard input.
    """
    prompt = read_prompt(task, what="task")
    run(_agent(where, prompt, Workspace(workspace), model, shape, instructions, max_turns, quiet=quiet))


async def _agent(
    where: Target,
    prompt: str,
    workspace: Workspace,
    model: str | None,
    shape: Shape,
    instructions: str,
    max_turns: int,
    *,
    quiet: bool,
) -> int:
    console = make_console(stderr=True)
    console.quiet = quiet
    watch = Watch("agent")
    async with where.connect() as session:
        worker = Agent(
            session,
            model=await pick_model(session, model),
            tools=workspace.tools(),
            instructions=instructions,
            shape=shape,
            max_turns=max_turns,
            on_event=watch.on_event,
        )
        try:
            with Progress(console, [watch]):
                result = await worker.run(prompt)
        except TurnLimitError as error:
            msg = f"the model was not done within --max-turns {error.max_turns}; raise it to let it go on"
            raise AgentError(msg) from error
        finally:
            # Also where the run failed: until then it took time as well.
            if watch.reports:
                console.print(waterfall(watch.reports, console))
    for line in totals_lines(result.totals):
        console.print(line)
    if result.text:
        click.echo(result.text)
    return _outcome(result)


def _outcome(result: AgentResult) -> int:
    if result.completed:
        return OK
    why = result.response.incomplete_details.reason or ResponseStatus.Name(result.response.status)
    complain(f"the run ended early: {why.removeprefix('RESPONSE_STATUS_').lower()}")
    return FAILED
