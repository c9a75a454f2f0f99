"""`turnwire events`: shows a session's raw events, records them, and replays a record.

Above it: the `turnwire` command. Below it: a raw session and transcripts.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

import click

from turnwire.client._body import build_input, build_verbosity
from turnwire.client._status import connect_error
from turnwire.client.commands.ending import EXIT_CODES, FAILED, OK, run
from turnwire.client.commands.outcomes import outcome_lines
from turnwire.client.commands.prompts import model_option, pick_model, read_prompt
from turnwire.client.commands.rawsession import RawSession
from turnwire.client.commands.replay import Replay
from turnwire.client.commands.target import Target, target_options, was_given
from turnwire.client.commands.transcript import (
    Entry,
    Recorder,
    Transcript,
    TranscriptError,
    compact,
    parse_request,
    read_requests,
    read_transcript,
    recording,
    to_dict,
)
from turnwire.client.exceptions import RpcFailedError
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import DoneReason, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionOpen

Verbosity = Literal["full", "deltas", "items", "done"]

_PATIENCE: Final = 30.0
_FILE: Final = click.Path(path_type=Path)

_EPILOG = f"""\b
Examples:
  turnwire events --prompt "Say hello"
  turnwire events --prompt "Say hello" --verbosity full --record hello.jsonl
  echo '{{"create": {{"model": "scripted", "input": {{"text": "Hi"}}}}}}' | turnwire events
  echo '{{"type": "response.create", "model": "scripted", "input": "Hi"}}' | turnwire events
  turnwire events --replay hello.jsonl --full-speed

\b
Events go in as JSON lines, in protobuf's JSON (as grpcurl has it) or in the
official one (which has a "type"), and come out as protobuf's JSON. Records hold
prompts and answers, but no keys; a file is replaced only once the server has
answered. A replay shows what came out otherwise.

{EXIT_CODES}
A request that is refused ends with 1, and so does a replay that came out
otherwise; one that came out the same ends with 0, failures included."""


@click.command(epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.option("--send", type=_FILE, help="File with the events to send.  [standard input]")
@click.option("--prompt", metavar="TEXT", help="Open a session and send one create with this prompt.")
@model_option
@click.option("--verbosity", type=click.Choice(["full", "deltas", "items", "done"]), help="Verbosity for --prompt.")
@click.option("--record", type=_FILE, help="Write both directions to a transcript.")
@click.option("--replay", type=_FILE, help="Send a transcript's requests again and compare.")
@click.option("--full-speed", is_flag=True, help="Replay as fast as the answers allow, not at the recorded times.")
@click.option("--no-credit", is_flag=True, help="Leave acknowledgements and credit to the events that are sent.")
@target_options
def events(
    send: Path | None,
    prompt: str | None,
    model: str | None,
    verbosity: Verbosity | None,
    record: Path | None,
    replay: Path | None,
    full_speed: bool,
    no_credit: bool,
    where: Target,
) -> None:
    """Show a session's raw events, record them, replay a record.

    Sends events from standard input and writes everything the server says, one event a line. Ends when the input has
    ended and everything asked is answered.
    """
    if sum(source is not None for source in (send, prompt, replay)) > 1:
        msg = "--send, --prompt and --replay exclude each other"
        raise click.UsageError(msg)
    if prompt is None and (verbosity or was_given("model")):
        msg = "--model and --verbosity are for --prompt"
        raise click.UsageError(msg)
    if record is not None and replay is not None and record.resolve() == replay.resolve():
        msg = "--record would replace the transcript that --replay reads; name another file"
        raise click.UsageError(msg)
    if replay is None and full_speed:
        msg = "--full-speed is for --replay"
        raise click.UsageError(msg)
    viewer = _Viewer(where, return_credit=not no_credit)
    try:
        with contextlib.ExitStack() as stack:
            if record is not None:
                secrets = [where.api_key or ""]
                viewer.recorder = stack.enter_context(recording(record, address=where.address, secrets=secrets))
            if replay is not None:
                work = viewer.replay(read_transcript(replay), full_speed=full_speed)
            elif prompt is not None:
                work = viewer.ask(read_prompt(prompt), model, verbosity)
            elif send is not None:
                # All before the first is sent, so that a slip of the pen costs nothing.
                work = viewer.pass_on(_each(read_requests(send)))
            else:
                work = viewer.pass_on(_input_requests())
            run(work)
    except TranscriptError as error:
        raise click.UsageError(str(error)) from error


class _Viewer:
    """One session whose events are shown."""

    def __init__(self, where: Target, *, return_credit: bool) -> None:
        self._where = where
        self._return_credit = return_credit
        self._failed = False
        self.recorder: Recorder | None = None

    async def pass_on(self, requests: AsyncIterator[ConnectRequest]) -> int:
        """Sends what is given and shows what comes."""
        await self._session(_show).run(requests)
        return FAILED if self._failed else OK

    async def ask(self, prompt: str, model: str | None, verbosity: Verbosity | None) -> int:
        """Sends a prompt and shows what comes."""
        opening = SessionOpen()
        if verbosity is not None:
            opening.verbosity = build_verbosity(verbosity)
        create = ResponseCreate(model=model or await self._first_model(), input=build_input(prompt))
        return await self.pass_on(
            _each(
                [
                    ConnectRequest(request_id="open", open=opening),
                    ConnectRequest(request_id="create", create=create),
                ]
            )
        )

    async def _first_model(self) -> str:
        async with self._where.client() as client:
            try:
                return await pick_model(client.rpc, None)
            except RpcFailedError as error:
                raise connect_error(self._where.address, error) from error

    async def replay(self, transcript: Transcript, *, full_speed: bool) -> int:
        """Sends a transcript's requests again and shows what came out otherwise."""
        clock = time.monotonic
        started = clock()
        entries: list[Entry] = []
        again = Replay(transcript, full_speed=full_speed, patience=_PATIENCE)

        def keep(message: ConnectRequest | ConnectResponse | str) -> None:
            entries.append(Entry(clock() - started, message))

        def heard(batch: ConnectResponse) -> None:
            again.now.read(batch)
            keep(batch)

        session = self._session(heard, on_sent=keep, on_end=keep)
        await session.run(again.requests(session.until_changed, lambda: session.idle, clock))
        then, now = outcome_lines(transcript.entries), outcome_lines(entries)
        if then == now:
            click.echo(
                f"the same outcome: {sum(1 for _ in transcript.requests())} messages sent, {len(now)} lines alike"
            )
            return OK
        for line in difflib.unified_diff(then, now, "recorded", "replayed", lineterm=""):
            click.echo(line)
        return FAILED

    def _session(
        self,
        on_batch: Callable[[ConnectResponse], None],
        *,
        on_sent: Callable[[ConnectRequest], None] | None = None,
        on_end: Callable[[str], None] | None = None,
    ) -> RawSession:
        recorder = self.recorder

        def sent(request: ConnectRequest) -> None:
            if recorder is not None:
                recorder.said(request)
            if on_sent is not None:
                on_sent(request)

        def heard(batch: ConnectResponse) -> None:
            if recorder is not None:
                recorder.said(batch)
            self._failed = self._failed or any(map(_tells_of_failure, batch.events))
            on_batch(batch)

        def ended(how: str) -> None:
            if recorder is not None:
                recorder.ended(how)
            if on_end is not None:
                on_end(how)

        return RawSession(
            self._where.transport(),
            self._where.address,
            on_sent=sent,
            on_batch=heard,
            on_end=ended,
            return_credit=self._return_credit,
        )


def _tells_of_failure(event: ServerEvent) -> bool:
    failed = event.done.reason == DoneReason.DONE_REASON_FAILED
    return failed or event.WhichOneof("event") in ("rejected", "steer_failed")


def _show(batch: ConnectResponse) -> None:
    for event in batch.events:
        click.echo(compact(to_dict(event)))


async def _each(requests: Iterable[ConnectRequest]) -> AsyncIterator[ConnectRequest]:
    for request in requests:
        yield request


async def _input_requests() -> AsyncIterator[ConnectRequest]:
    """Reads standard input while the session goes on, in a thread that nobody has to wait for."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone
            try:
                for piece in _input_pieces():
                    loop.call_soon_threadsafe(pieces.put_nowait, piece)
            finally:
                loop.call_soon_threadsafe(pieces.put_nowait, b"")

    threading.Thread(target=read, name="turnwire-stdin", daemon=True).start()
    number, rest = 0, b""
    while piece := await pieces.get():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            number += 1
            if line.strip():
                yield parse_request(line, f"standard input, line {number}")
    if rest.strip():
        yield parse_request(rest, f"standard input, line {number + 1}")


def _input_pieces() -> Iterator[bytes]:
    try:
        # Not through sys.stdin: a thread that is stuck in its buffer makes Python's shutdown fail.
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):
        yield sys.stdin.buffer.read()
        return
    while piece := os.read(descriptor, 65536):
        yield piece
