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
from turnwire.client._channel import ChannelOptions
from turnwire.client._rpc import Rpc
from turnwire.client._status import connect_error
from turnwire.client._transport import GrpcTransport
from turnwire.client.commands.connection import (
    EXIT_CODES,
    FAILED,
    OK,
    Target,
    read_prompt,
    run,
    target,
    target_options,
)
from turnwire.client.commands.outcomes import outcome_lines
from turnwire.client.commands.rawsession import RawSession
from turnwire.client.commands.replay import Replay
from turnwire.client.commands.transcript import (
    Entry,
    Recorder,
    Transcript,
    TranscriptError,
    compact,
    parse_request,
    read_lines,
    read_transcript,
    to_dict,
)
from turnwire.client.exceptions import RpcFailedError
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.session_pb2 import SessionOpen

Verbosity = Literal["full", "deltas", "items", "done"]

_PATIENCE: Final = 30.0

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
prompts and answers, but no keys. A replay shows what came out otherwise.

{EXIT_CODES}
A replay that came out otherwise ends with 1."""


@click.command(epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.option("--send", type=click.Path(path_type=Path), help="File with the events to send.  [standard input]")
@click.option("--prompt", metavar="TEXT", help="Open a session and send one create with this prompt.")
@click.option("--model", metavar="NAME", envvar="TURNWIRE_MODEL", show_envvar=True, help="Model for --prompt.")
@click.option("--verbosity", type=click.Choice(["full", "deltas", "items", "done"]), help="Verbosity for --prompt.")
@click.option("--record", type=click.Path(path_type=Path), help="Write both directions to a transcript.")
@click.option("--replay", type=click.Path(path_type=Path), help="Send a transcript's requests again and compare.")
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
    address: str,
    api_key: str | None,
    api_key_file: Path | None,
) -> None:
    """Show a session's raw events, record them, replay a record.

    Sends events from standard input and writes everything the server says, one event a line. Ends when the input has
    ended and everything asked is answered.
    """
    if sum(source is not None for source in (send, prompt, replay)) > 1:
        msg = "--send, --prompt and --replay exclude each other"
        raise click.UsageError(msg)
    if prompt is not None:
        prompt = read_prompt(prompt)
    where = target(address, api_key, api_key_file)
    with contextlib.ExitStack() as stack:
        viewer = _Viewer(where, return_credit=not no_credit)
        if record is not None:
            try:
                file = stack.enter_context(record.open("w", encoding="utf-8"))
            except OSError as error:
                msg = f"{record}: cannot be written: {error.strerror}"
                raise click.UsageError(msg) from error
            viewer.recorder = Recorder(file, address=address, secrets=[where.api_key or ""])
        try:
            if replay is not None:
                run(viewer.replay(read_transcript(replay), full_speed=full_speed))
            if prompt is not None:
                run(viewer.ask(prompt, model, verbosity))
            run(viewer.pass_on(_file_requests(send) if send is not None else _input_requests()))
        except TranscriptError as error:
            raise click.UsageError(str(error)) from error


class _Viewer:
    """One session whose events are shown."""

    def __init__(self, where: Target, *, return_credit: bool) -> None:
        self._where = where
        self._return_credit = return_credit
        self.recorder: Recorder | None = None

    async def pass_on(self, requests: AsyncIterator[ConnectRequest]) -> int:
        """Sends what is given and shows what comes."""
        session = self._session(GrpcTransport(self._where.address, self._where.api_key, ChannelOptions()), _show)
        await session.run(requests)
        return OK

    async def ask(self, prompt: str, model: str | None, verbosity: Verbosity | None) -> int:
        """Sends a prompt and shows what comes."""
        transport = GrpcTransport(self._where.address, self._where.api_key, ChannelOptions())
        if model is None:
            try:
                model = await self._first_model(transport)
            except BaseException:
                await transport.close()
                raise
        opening = SessionOpen()
        if verbosity is not None:
            opening.verbosity = build_verbosity(verbosity)
        create = ResponseCreate(model=model, input=build_input(prompt))
        requests = [
            ConnectRequest(request_id="open", open=opening),
            ConnectRequest(request_id="create", create=create),
        ]
        await self._session(transport, _show).run(_each(requests))
        return OK

    async def _first_model(self, transport: GrpcTransport) -> str:
        try:
            models = await Rpc(transport.channel, transport.metadata).list_models()
        except RpcFailedError as error:
            raise connect_error(self._where.address, error) from error
        if not models:
            msg = "the server lists no models; name one with --model"
            raise click.UsageError(msg)
        return models[0].id

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

        transport = GrpcTransport(self._where.address, self._where.api_key, ChannelOptions())
        session = self._session(transport, heard, on_sent=keep, on_end=keep)
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
        transport: GrpcTransport,
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
            on_batch(batch)

        def ended(how: str) -> None:
            if recorder is not None:
                recorder.ended(how)
            if on_end is not None:
                on_end(how)

        return RawSession(
            transport,
            self._where.address,
            on_sent=sent,
            on_batch=heard,
            on_end=ended,
            return_credit=self._return_credit,
        )


def _show(batch: ConnectResponse) -> None:
    for event in batch.events:
        click.echo(compact(to_dict(event)))


async def _each(requests: Iterable[ConnectRequest]) -> AsyncIterator[ConnectRequest]:
    for request in requests:
        yield request


async def _file_requests(path: Path) -> AsyncIterator[ConnectRequest]:
    lines = await asyncio.to_thread(read_lines, path)
    # All before the first is sent, so that a slip of the pen costs nothing.
    requests = [parse_request(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    for request in requests:
        yield request


async def _input_requests() -> AsyncIterator[ConnectRequest]:
    """Reads standard input while the session goes on, in a thread that nobody has to wait for."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone
            for piece in _input_pieces():
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            loop.call_soon_threadsafe(pieces.put_nowait, b"")

    threading.Thread(target=read, name="turnwire-stdin", daemon=True).start()
    number, rest = 0, b""
    while piece := await pieces.get():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            number += 1
            if line.strip():
                yield parse_request(line.decode(errors="replace"), f"standard input, line {number}")
    if rest.strip():
        yield parse_request(rest.decode(errors="replace"), f"standard input, line {number + 1}")


def _input_pieces() -> Iterator[bytes]:
    try:
        # Not through sys.stdin: a thread that is stuck in its buffer makes Python's shutdown fail.
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):
        yield sys.stdin.read().encode()
        return
    while piece := os.read(descriptor, 65536):
        yield piece
