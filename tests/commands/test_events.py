from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from click.testing import Result

from turnwire.client._channel import ChannelOptions
from turnwire.client._transport import GrpcTransport
from turnwire.client.commands.events import events
from turnwire.client.commands.outcomes import outcome_lines
from turnwire.client.commands.rawsession import RawSession
from turnwire.client.commands.replay import Replay
from turnwire.client.commands.transcript import Entry, Transcript, read_transcript
from turnwire.client.items import function_call_output
from turnwire.client.testing import FakeServer, function_call, message
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.session.chunks import CallEnd, CallStart, Channel, TextChunk
from turnwire.server.testing import make_services, serving
from turnwire.v1.client_event_pb2 import ConnectRequest, ResponseAppend
from turnwire.v1.response_pb2 import Input, ResponseCreate, Verbosity
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ResponseCreated, ServerEvent
from turnwire.v1.session_pb2 import SessionOpen

Invoke = Callable[..., Result]
CREATE = '{"request_id": "r1", "create": {"model": "m", "input": {"text": "hi"}}}\n'


def shown(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_every_event_of_a_prompt_is_shown_as_a_line_of_json(fake: FakeServer, invoke: Invoke) -> None:
    fake.answer(message("Hello you"))
    result = invoke(events, "--prompt", "Hi", "--model", "m", "--verbosity", "items")
    assert result.exit_code == 0, result.output
    kinds = [next(name for name in line if name not in ("response", "sequence_number")) for line in shown(result)]
    assert kinds == ["opened", "created", "output_item_added", "output_item_done", "done"]
    assert fake.requests[0].open.verbosity == Verbosity.VERBOSITY_ITEMS
    assert fake.requests[-1].HasField("close")


def test_events_from_standard_input_go_out_as_they_are(fake: FakeServer, invoke: Invoke) -> None:
    fake.answer(message("Hello"))
    result = invoke(events, stdin=f"{CREATE}\n")
    assert result.exit_code == 0, result.output
    assert [request.WhichOneof("event") for request in fake.requests] == ["create", "close"]
    assert fake.requests[0].request_id == "r1"


def test_events_from_a_file_are_all_read_before_one_is_sent(fake: FakeServer, invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(f"{CREATE}oops\n")
    result = invoke(events, "--send", str(path))
    assert result.exit_code == 2
    assert "events.jsonl:2: not an event" in result.stderr
    assert fake.requests == []


def test_a_refused_event_is_shown_and_ends_with_1(fake: FakeServer, invoke: Invoke) -> None:
    fake.reject("model_not_found", "there is no m")
    result = invoke(events, stdin=CREATE)
    assert result.exit_code == 1
    assert shown(result)[0]["rejected"]


def test_a_response_that_fails_is_shown_and_ends_with_1(fake: FakeServer, invoke: Invoke) -> None:
    fake.fail("server_error", "a bad day")
    result = invoke(events, "--prompt", "Hi", "--model", "m")
    assert result.exit_code == 1
    assert "a bad day" in result.stdout


def test_input_that_is_not_utf8_is_wrong_usage(fake: FakeServer, invoke: Invoke) -> None:
    result = invoke(events, stdin=b'{"request_id": "\xff"}\n')
    assert result.exit_code == 2
    assert "standard input, line 1: not an event: not UTF-8 text" in result.stderr


def test_a_response_that_is_held_when_the_input_ends_is_let_go(fake: FakeServer, invoke: Invoke) -> None:
    fake.answer(function_call("f", {}, call_id="call_1"))
    result = invoke(events, stdin='{"create": {"model": "m", "input": {"text": "hi"}, "hold": true}}')
    assert result.exit_code == 0
    assert shown(result)[-1]["done"]


def test_credit_is_returned_where_the_server_asks_for_it(fake: FakeServer, invoke: Invoke) -> None:
    fake.answer(message("Hello"))
    fake.answer(message("Hello"))
    invoke(events, "--prompt", "Hi", "--model", "m")
    assert any(request.HasField("ack") for request in fake.requests)
    fake.requests.clear()
    invoke(events, "--prompt", "Hi", "--model", "m", "--no-credit")
    assert not any(request.HasField("ack") for request in fake.requests)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--prompt", "Hi", "--send", "x"], "exclude each other"),
        (["--send", "x", "--model", "m"], "--model and --verbosity are for --prompt"),
        (["--verbosity", "done"], "--model and --verbosity are for --prompt"),
        (["--prompt", "Hi", "--full-speed"], "--full-speed is for --replay"),
        (["--replay", "x", "--record", "./x"], "name another file"),
        (["--prompt", "Hi", "--record", "/dev/null"], "cannot be written: not a file"),
        (["--prompt", "Hi", "--record", "/no/such/folder/x"], "cannot be written: No such file"),
        (["--prompt", "\udcff"], "the prompt is not UTF-8 text"),
    ],
)
def test_flags_that_make_no_sense_together_are_wrong_usage(
    arguments: list[str], complaint: str, invoke: Invoke
) -> None:
    result = invoke(events, *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_model_in_the_environment_suits_every_source(
    fake: FakeServer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWIRE_MODEL", "m")
    for _ in range(2):
        fake.answer(message("Hello"))
    assert invoke(events, stdin=CREATE).exit_code == 0
    assert invoke(events, "--prompt", "Hi").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--prompt", "Hi", "--model", "m", "--address", "127.0.0.1:1"], 3),
        (["--send", "no-such-file"], 2),
        (["--prompt", " "], 2),
        (["--replay", "RECORD"], 2),
    ],
)
def test_a_record_stays_as_it_is_where_nothing_is_recorded(
    arguments: list[str], code: int, invoke: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text("precious\n")
    result = invoke(events, *(str(path) if one == "RECORD" else one for one in arguments), "--record", str(path))
    assert result.exit_code == code, result.output
    assert path.read_text() == "precious\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_record_is_replaced_by_one_of_a_session_that_failed_too(
    fake: FakeServer, invoke: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text("old\n")
    fake.reject("model_not_found", "there is no m")
    assert invoke(events, "--prompt", "Hi", "--model", "m", "--record", str(path)).exit_code == 1
    assert read_transcript(path).entries[-1].message == "OK"
    assert list(tmp_path.iterdir()) == [path]


def test_no_server_ends_with_3(invoke: Invoke) -> None:
    for arguments in (["--prompt", "Hi"], ["--prompt", "Hi", "--model", "m"]):
        result = invoke(events, *arguments, "--address", "127.0.0.1:1")
        assert result.exit_code == 3
        assert "cannot reach 127.0.0.1:1" in result.stderr


def test_a_replay_that_comes_out_the_same_ends_with_0(fake: FakeServer, invoke: Invoke, tmp_path: Path) -> None:
    path = str(tmp_path / "record.jsonl")
    for _ in range(2):
        fake.answer(message("Hello you"))
    assert invoke(events, "--prompt", "Hi", "--model", "m", "--record", path).exit_code == 0
    assert read_transcript(Path(path)).entries[-1].message == "OK"
    result = invoke(events, "--replay", path, "--full-speed")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("the same outcome:")
    fake.verify()


def test_a_replay_that_comes_out_otherwise_shows_the_difference_and_ends_with_1(
    fake: FakeServer, invoke: Invoke, tmp_path: Path
) -> None:
    path = str(tmp_path / "record.jsonl")
    fake.answer(message("Hello you"))
    fake.reject("server_is_overloaded", "later")
    invoke(events, "--prompt", "Hi", "--model", "m", "--record", path)
    result = invoke(events, "--replay", path, "--full-speed")
    assert result.exit_code == 1
    assert "-  done: completed" in result.stdout
    assert "+  refused: server_is_overloaded" in result.stdout


async def play(engine: StepEngine, passes: range) -> None:
    """The model calls a tool, then answers; twice in all, once in each of two runs."""
    first, second = passes
    await engine.started(first + 1)
    engine.emit(first, [CallStart("f"), CallEnd()])
    engine.finish(first)
    await engine.started(second + 1)
    engine.emit(second, [TextChunk(Channel.TEXT, "Done.")])
    engine.finish(second)


async def test_a_replay_names_the_responses_and_calls_of_its_own_run() -> None:
    engine = StepEngine()
    said: list[ConnectResponse] = []

    async def first_run(session: RawSession) -> AsyncGenerator[ConnectRequest]:
        yield ConnectRequest(request_id="o", open=SessionOpen())
        create = ResponseCreate(model="stepped", input=Input(text="Go."), hold=True)
        yield ConnectRequest(request_id="r1", create=create)
        while not any(event.HasField("done") for batch in said for event in batch.events):
            await session.until_changed()
        flat = [event for batch in said for event in batch.events]
        response_id = next(event.created.response.id for event in flat if event.HasField("created"))
        call_id = next(event.done.awaiting_call_ids[0] for event in flat if event.HasField("done"))
        output = function_call_output(call_id, "42")
        yield ConnectRequest(request_id="r2", append=ResponseAppend(response_id=response_id, input=[output]))

    def keep_into(entries: list[Entry], heard: Callable[[ConnectResponse], None]) -> Callable[..., None]:
        def keep(message: ConnectRequest | ConnectResponse | str) -> None:
            entries.append(Entry(0.0, message))
            if isinstance(message, ConnectResponse):
                heard(message)

        return keep

    def raw(address: str, keep: Callable[..., None]) -> RawSession:
        transport = GrpcTransport(address, (), ChannelOptions())
        return RawSession(transport, address, on_sent=keep, on_batch=keep, on_end=keep)

    entries: list[Entry] = []
    later: list[Entry] = []
    async with asyncio.timeout(20), serving(make_services([engine])) as address:
        session = raw(address, keep_into(entries, said.append))
        await asyncio.gather(session.run(first_run(session)), play(engine, range(2)))
        again = Replay(Transcript(entries=tuple(entries)), full_speed=True, patience=10.0)
        session = raw(address, keep_into(later, again.now.read))
        clock = asyncio.get_running_loop().time
        requests = again.requests(session.until_changed, lambda: session.idle, clock)
        await asyncio.gather(session.run(requests), play(engine, range(2, 4)))

    then, now = outcome_lines(entries), outcome_lines(later)
    assert then == now
    assert any("append 0 taken" in line for line in now)
    assert now[-1] == "the stream ended: OK"
    appends = [
        entry.message.append.response_id
        for run in (entries, later)
        for entry in run
        if isinstance(entry.message, ConnectRequest) and entry.message.HasField("append")
    ]
    assert len(set(appends)) == 2


async def test_a_replay_without_the_answers_of_then_goes_on_when_its_patience_ends() -> None:
    created = ServerEvent(response=1, created=ResponseCreated(request_id="r1"))
    entries = (
        Entry(0.0, ConnectRequest(request_id="r1", create=ResponseCreate(model="m"))),
        Entry(0.1, ConnectResponse(first_event_id=1, events=[created])),
        Entry(0.2, ConnectRequest(request_id="r2", create=ResponseCreate(model="m"))),
    )
    again = Replay(Transcript(entries=entries), full_speed=True, patience=0.0)

    async def never() -> None:
        await asyncio.Event().wait()

    sent = [request async for request in again.requests(never, lambda: False, asyncio.get_running_loop().time)]
    assert [request.request_id for request in sent] == ["r1", "r2"]


def test_help_has_examples_and_exit_codes(invoke: Invoke) -> None:
    result = invoke(events, "--help")
    assert "Examples:" in result.stdout
    assert "3 cannot connect" in result.stdout
