"""`turnwire create`: asks once and streams the answer.

Above it: the `turnwire` command. Below it: the client library.
"""

from __future__ import annotations

import click

from turnwire.client import ResponseStream
from turnwire.client._body import CreateFields
from turnwire.client.commands.ending import EXIT_CODES, FAILED, OK, complain, run
from turnwire.client.commands.prompts import checked_text, model_option, pick_model, read_prompt
from turnwire.client.commands.target import Target, target_options
from turnwire.v1.json import to_json
from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.server_event_pb2 import ResponseDone

_EPILOG = f"""\b
Examples:
  turnwire create "Say hello"
  turnwire create --show-reasoning "Why is the sky blue?"
  git diff | turnwire create --instructions "Write a commit message." -
  turnwire create --json "Say hello" | jq .usage

{EXIT_CODES}"""


@click.command(epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.argument("prompt")
@model_option
@click.option("--instructions", metavar="TEXT", callback=checked_text, help="What the model is told before the prompt.")
@click.option(
    "--effort", metavar="LEVEL", callback=checked_text, help="How much to reason, such as low, medium or high."
)
@click.option("--max-output-tokens", type=click.IntRange(min=16), help="Where to cut the answer.")
@click.option("--show-reasoning", is_flag=True, help="Write the model's reasoning to standard error, dimmed.")
@click.option("--json", "as_json", is_flag=True, help="Write the whole response at the end, in the official JSON.")
@target_options
def create(
    prompt: str,
    model: str | None,
    instructions: str | None,
    effort: str | None,
    max_output_tokens: int | None,
    show_reasoning: bool,
    as_json: bool,
    where: Target,
) -> None:
    """Ask once and stream the answer's text.

    PROMPT is the text, or - to read it from standard input. No tools are offered; `turnwire agent` has some.
    """
    fields: CreateFields = {
        "model": model,
        "input": read_prompt(prompt),
        "instructions": instructions,
        "max_output_tokens": max_output_tokens,
    }
    if effort is not None:
        fields["reasoning"] = {"effort": effort}
    run(_create(where, fields, show_reasoning=show_reasoning, as_json=as_json))


async def _create(where: Target, fields: CreateFields, *, show_reasoning: bool, as_json: bool) -> int:
    async with where.connect() as session:
        fields["model"] = await pick_model(session, fields.get("model"))
        async with await session.create(**fields) as stream:
            await write_stream(stream, show_reasoning=show_reasoning, show_text=not as_json)
            if as_json:
                response = await stream.get_final_response(raise_on_failure=False)
                click.echo(to_json(response, fill=True).decode())
            return _outcome(stream.done or ResponseDone())


async def write_stream(stream: ResponseStream, *, show_reasoning: bool, show_text: bool) -> None:
    """Writes what comes, each to its own stream, and ends lines where one gives way to the other, or breaks off.

    Cancelling it is safe: no event is lost.

    Raises:
        SessionLost: The session ended before the response.
    """
    writing_reasoning = False
    line_open = False
    try:
        async for event in stream:
            kind = event.kind
            if kind in ("output_text_delta", "refusal_delta") and show_text:
                if writing_reasoning:
                    click.echo(err=True)
                    writing_reasoning = False
                click.echo(event.delta, nl=False)
                line_open = not event.delta.endswith("\n")
            elif kind in ("reasoning_text_delta", "reasoning_summary_text_delta") and show_reasoning:
                writing_reasoning = True
                click.echo(click.style(event.delta, dim=True), nl=False, err=True)
            elif kind == "output_item_done" and event.item.HasField("function_call"):
                if line_open:
                    click.echo()
                    line_open = False
                call = event.item.function_call
                note = f"the model called {call.name}({call.arguments}), which `turnwire create` does not run"
                click.echo(click.style(note, dim=True), err=True)
    finally:
        if writing_reasoning:
            click.echo(err=True)
        if line_open:
            click.echo()


def _outcome(done: ResponseDone) -> int:
    if done.reason == DoneReason.DONE_REASON_COMPLETED:
        return OK
    if done.reason == DoneReason.DONE_REASON_FAILED:
        complain(f"the response failed: {done.error.code}: {done.error.message}")
    elif done.reason == DoneReason.DONE_REASON_INCOMPLETE:
        complain(f"the answer was cut off: {done.incomplete_details.reason}")
    else:
        complain("the response was cancelled")
    return FAILED
