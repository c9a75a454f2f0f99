"""The ledger: one line per `done`, written before anybody hears of it, whatever becomes of the response or the disk."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from turnwire.server.engine.stepped import StepEngine, SteppedPass
from turnwire.server.ledger.opening import DataError
from turnwire.server.runtime.runner import SessionRunner
from turnwire.server.session.chunks import CallEnd, CallStart, Channel, Finish, PassUsage, TextChunk
from turnwire.server.store.journal import journal_files
from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext, ResponseAppend, ResponseCancel
from turnwire.v1.errors import RequestError
from turnwire.v1.response_pb2 import DoneReason, Input, ResponseCreate, ResponseStatus
from turnwire.v1.server_event_pb2 import ServerEvent

from .scene import full_disk, read_lines, rows, shop

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


async def until(runner: SessionRunner, kind: str) -> list[ServerEvent]:
    """Takes events until one of a kind comes; returns all, that one last."""
    events: list[ServerEvent] = []
    async with asyncio.timeout(5):
        while True:
            batch = await runner.next_batch()
            assert batch is not None
            runner.sent(batch.ByteSize(), len(batch.events))
            for event in batch.events:
                events.append(event)
                if event.WhichOneof("event") == kind:
                    return events


async def next_pass(engine: StepEngine) -> SteppedPass:
    """Waits until a pass begins that has not ended, and returns it."""
    count = 1
    while True:
        step = (await engine.started(count))[count - 1]
        if not (step.ended or step.aborted):
            return step
        count += 1


def send(runner: SessionRunner, request: ConnectRequest) -> None:
    runner.receive(request, request.ByteSize())


def create(runner: SessionRunner, text: str = "hi", **body: Any) -> None:
    send(runner, ConnectRequest(create=ResponseCreate(model="stepped", input=Input(text=text), **body)))


async def test_a_line_says_all_that_a_response_cost_and_whom(tmp_path: Path) -> None:
    about = RequestContext(end_user="u1", labels={"team": "red", "app": "chat"})
    async with shop(tmp_path) as scene:
        done = await scene.create(
            "weather", principal="alice", about=about, metadata={"order": "7"}, safety_identifier="s1"
        )
        other = await scene.create("hi", principal="bob", safety_identifier="s2", previous_response_id="")
        first, second = await scene.lines()

    usage = done.usage
    assert {key: first[key] for key in list(first)[:19] if key not in ("created_at", "ended_at")} == {
        "response_id": done.response.id,
        "pass": 1,
        "door": "http",
        "principal": "alice",
        "model": "scripted",
        "outcome": "completed",
        "error_code": "",
        "input_tokens": usage.input_tokens,
        "cached_tokens": 0,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
        "estimated": 0,
        "price": pytest.approx((usage.input_tokens + 10 * usage.output_tokens) / 1e6),
        "currency": "USD",
        "end_user": "u1",
        "labels": '{"app": "chat", "team": "red"}',
        "metadata": '{"order": "7"}',
    }
    assert first["created_at"] <= first["ended_at"]
    assert first["inference"] == pytest.approx(done.times.inference)
    assert first["first_token"] == pytest.approx(done.times.first_token)
    assert (second["response_id"], second["end_user"]) == (other.response.id, "s2")
    assert usage.output_tokens_details.reasoning_tokens > 0


async def test_a_model_without_a_price_has_no_cost(tmp_path: Path) -> None:
    async with shop(tmp_path, price=None) as scene:
        await scene.completed()
        (line,) = await scene.lines()

    assert (line["price"], line["currency"]) == (None, "")


async def test_responses_that_are_not_stored_have_a_line_and_nothing_else(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        response = await scene.completed(store=False)
        (line,) = await scene.lines()

        assert line["response_id"] == response.id
        assert rows(tmp_path, "responses") == 0
        with pytest.raises(RequestError, match="response_not_found"):
            await scene.get(response.id)


async def test_a_response_that_failed_has_a_line_with_its_code(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        done = await scene.create("fail")
        (line,) = await scene.lines()
        scene.forget()

        assert done.reason == DoneReason.DONE_REASON_FAILED
        assert (line["outcome"], line["error_code"], line["price"]) == ("failed", "server_error", 0)
        assert (await scene.get(done.response.id)).error.message == "The engine broke."


async def test_what_a_cancelled_response_had_said_is_counted_as_an_estimate(tmp_path: Path) -> None:
    engine = StepEngine()
    async with shop(tmp_path, engine) as scene:
        runner = scene.room.enter("", "grpc")
        create(runner, "one two three")
        (await next_pass(engine)).emit([TextChunk(Channel.TEXT, "said so far", tokens=3)])
        create(runner, "never begun")
        await until(runner, "output_text_delta")
        send(runner, ConnectRequest(cancel=ResponseCancel(response_id=next(iter(runner.session._context.by_id)))))
        done = (await until(runner, "done"))[-1].done
        scene.room.leave(runner)
        lines = await scene.lines()

    assert done.usage.output_tokens == 0
    said, never = lines
    assert [(line["outcome"], line["estimated"]) for line in lines] == [("cancelled", 1), ("cancelled", 0)]
    assert (said["input_tokens"], said["output_tokens"]) == (7, 3)
    assert (never["input_tokens"], never["output_tokens"], never["price"]) == (0, 0, 0)


async def test_a_held_response_has_a_line_for_every_pause_and_its_end_costs_nothing_more(tmp_path: Path) -> None:
    engine = StepEngine()
    async with shop(tmp_path, engine) as scene:
        runner = scene.room.enter("", "grpc")
        create(runner, "one two", hold=True)
        step = await next_pass(engine)
        step.emit([CallStart("look", call_id="call_1"), CallEnd()])
        step.end(Finish(usage=PassUsage(input_tokens=2, output_tokens=5)))
        events = await until(runner, "done")
        response_id = next(event for event in events if event.HasField("created")).created.response.id
        (paused,) = await scene.lines()
        request = ConnectRequest(append=ResponseAppend(response_id=response_id))
        output = request.append.input.add().function_call_output
        output.call_id, output.output.text = "call_1", "sunny"
        send(runner, request)
        step = await next_pass(engine)
        step.emit([CallStart("look", call_id="call_2"), CallEnd()])
        step.end(Finish(usage=PassUsage(input_tokens=8, cached_tokens=7, output_tokens=4)))
        await until(runner, "done")
        again = await scene.lines()
        send(runner, ConnectRequest(cancel=ResponseCancel(response_id=response_id)))
        await until(runner, "done")
        scene.room.leave(runner)
        ended = await scene.lines()

    facts = ("pass", "outcome", "input_tokens", "cached_tokens", "output_tokens")
    assert [paused[fact] for fact in facts] == [1, "paused", 2, 0, 5]
    assert [[line[fact] for fact in facts] for line in again] == [[1, "paused", 2, 0, 5], [2, "paused", 8, 7, 4]]
    assert [[line[fact] for fact in facts] for line in ended] == [[1, "paused", 2, 0, 5], [2, "cancelled", 8, 7, 4]]


async def test_a_held_response_that_was_deleted_goes_on_and_does_not_come_back(tmp_path: Path) -> None:
    engine = StepEngine()
    async with shop(tmp_path, engine) as scene:
        runner = scene.room.enter("", "grpc")
        create(runner, "one two", hold=True)
        step = await next_pass(engine)
        step.emit([CallStart("look", call_id="call_1"), CallEnd()])
        step.end(Finish())
        events = await until(runner, "done")
        response_id = next(event for event in events if event.HasField("created")).created.response.id
        await scene.caller().delete_response(response_id)
        request = ConnectRequest(append=ResponseAppend(response_id=response_id))
        output = request.append.input.add().function_call_output
        output.call_id, output.output.text = "call_1", "sunny"
        send(runner, request)
        (await next_pass(engine)).end(Finish())
        (*_, done) = await until(runner, "done")
        scene.room.leave(runner)

        assert done.done.reason == DoneReason.DONE_REASON_COMPLETED
        with pytest.raises(RequestError, match="not found"):
            await scene.get(response_id)
        assert [line["outcome"] for line in await scene.lines()] == ["paused", "completed"]
        assert rows(tmp_path, "responses") == 0
        assert scene.services.conversations is not None
        assert len(scene.services.conversations) == 0


async def test_the_record_is_written_before_done_can_be_taken(tmp_path: Path) -> None:
    engine = StepEngine()
    async with shop(tmp_path, engine) as scene:
        runner = scene.room.enter("", "grpc")
        create(runner)
        step = await next_pass(engine)
        assert scene.data.journal.records == 0

        step.end(Finish())

        # Nothing has awaited anything since.
        assert scene.data.journal.records == 1
        assert runner.session.sendable
        scene.room.leave(runner)


@needs_full
async def test_a_response_that_cannot_be_recorded_fails_and_is_no_parent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with shop(tmp_path) as scene:
        first = await scene.completed("one")
        with full_disk(scene):
            done = await scene.create("two", previous_response_id=first.id)
            refusals = [await scene.refused("three")]
            lost = done.response.id
            refusals.append(await scene.refused("four", previous_response_id=lost))

        assert (done.reason, done.error.code) == (DoneReason.DONE_REASON_FAILED, "server_error")
        assert not done.continuable
        assert done.response.status == ResponseStatus.RESPONSE_STATUS_FAILED
        assert refusals == ["server_error", "previous_response_not_found"]
        assert (
            next(record.levelno for record in caplog.records if "No space left" in record.message) == logging.CRITICAL
        )
        # The disk has room again.
        second = await scene.completed("two", previous_response_id=first.id)
        assert await scene.refused("four", previous_response_id=lost) == "previous_response_not_found"
        assert [line["response_id"] for line in await scene.lines()] == [first.id, second.id]


@needs_full
async def test_a_pause_that_cannot_be_recorded_ends_the_hold(tmp_path: Path) -> None:
    engine = StepEngine()
    async with shop(tmp_path, engine) as scene:
        scene.data.journal.roll()
        runner = scene.room.enter("", "grpc")
        create(runner, hold=True)
        step = await next_pass(engine)
        step.emit([CallStart("look", call_id="call_1"), CallEnd()])
        with full_disk(scene):
            step.end(Finish())
        done = (await until(runner, "done"))[-1].done

        assert (done.reason, done.error.code) == (DoneReason.DONE_REASON_FAILED, "server_error")
        assert list(done.void_call_ids) == ["call_1"]
        assert not runner.session._context.runs
        create(runner)
        (await next_pass(engine)).end(Finish())
        assert (await until(runner, "done"))[-1].done.reason == DoneReason.DONE_REASON_COMPLETED
        scene.room.leave(runner)


@needs_full
async def test_whoever_wants_it_serves_on_without_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with shop(tmp_path, fail_closed=False) as scene:
        first = await scene.completed("one")
        with full_disk(scene):
            second = await scene.completed("two", previous_response_id=first.id)
        third = await scene.completed("three", previous_response_id=second.id)

        assert "served UNRECORDED" in caplog.text
        assert [line["response_id"] for line in await scene.lines()] == [first.id, third.id]
        scene.forget()
        # It brought the history along that was not recorded before.
        assert await scene.get(third.id) == third
        assert (await scene.completed("four", previous_response_id=third.id)).usage.input_tokens


async def test_nothing_is_lost_or_counted_twice_if_the_process_ends_before_anything_was_consumed(
    tmp_path: Path,
) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    async with shop(folder) as scene:
        with scene.data.consumer._work:
            made = [await scene.completed(f"{number}") for number in range(5)]
            await scene.caller().delete_response(made[0].id)
            shutil.copytree(folder, copy)
    for _ in range(2):
        async with shop(copy) as scene:
            lines = await scene.lines()
            assert sorted(line["response_id"] for line in lines) == sorted(response.id for response in made)
            for response in made[1:]:
                assert await scene.get(response.id) == response
            with pytest.raises(RequestError, match="response_not_found"):
                await scene.get(made[0].id)


async def test_a_journal_that_is_read_twice_changes_nothing(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        first = await scene.completed("one")
        await scene.completed("two", previous_response_id=first.id)
        before = await scene.lines()
        shutil.copy(tmp_path / "journal-00000001", tmp_path / "kept")
    tables = ("responses", "segments", "items", "blobs", "ledger")
    counts = [rows(tmp_path, table) for table in tables]
    # As after a restored backup that is older than the journal.
    shutil.copy(tmp_path / "kept", tmp_path / "journal-00000001")
    db = sqlite3.connect(tmp_path / "turnwire.db")
    refs = db.execute("select id, refs from segments order by id").fetchall()
    db.execute("delete from meta")
    db.commit()
    db.close()

    async with shop(tmp_path) as scene:
        assert await scene.lines() == before
        assert await scene.get(first.id) == first

    assert [rows(tmp_path, table) for table in tables] == counts
    db = sqlite3.connect(tmp_path / "turnwire.db")
    assert db.execute("select id, refs from segments order by id").fetchall() == refs
    db.close()


async def test_files_of_the_journal_go_when_the_database_has_them(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        scene.data.journal._file_bytes = 1
        for _ in range(5):
            await scene.completed()
        await scene.data.caught_up()

        assert list(journal_files(tmp_path)) == [5]
        assert scene.data.consumer.lag_bytes == 0


async def test_a_record_that_cannot_be_written_is_put_aside_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with shop(tmp_path) as scene:
        first = await scene.completed("one")
        scene.data.journal.append(b"no record at all")
        second = await scene.completed("two")

        assert [line["response_id"] for line in await scene.lines()] == [first.id, second.id]
        assert scene.data.consumer.rejected == 1
    assert (tmp_path / "rejected.journal").read_bytes()[4:] == b"no record at all"
    assert "was put into rejected.journal" in caplog.text


async def test_a_database_that_is_locked_is_waited_for(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        scene.data.consumer._db.execute("pragma busy_timeout = 1")
        other = sqlite3.connect(tmp_path / "turnwire.db", isolation_level=None)
        other.execute("begin immediate")
        first = await scene.completed("one")
        async with asyncio.timeout(10):
            # Another thread: there is no event to wait for.
            while not scene.data.consumer.failures:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert scene.data.consumer.lag_bytes > 0
        other.execute("commit")
        other.close()

        assert [line["response_id"] for line in await scene.lines()] == [first.id]


async def test_new_responses_are_refused_while_the_database_is_too_far_behind(tmp_path: Path) -> None:
    async with shop(tmp_path, max_lag_bytes=100) as scene:
        with scene.data.consumer._work:
            await scene.completed("one")
            assert await scene.refused("two") == "server_is_overloaded"
        await scene.data.caught_up()

        await scene.completed("two")


async def test_without_overlap_the_database_has_it_before_done(tmp_path: Path) -> None:
    async with shop(tmp_path, overlapped=False) as scene:
        response = await scene.completed()

        assert [line["response_id"] for line in read_lines(tmp_path)] == [response.id]
        assert scene.data.consumer._thread is None


async def test_what_is_left_is_consumed_at_the_end(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        for _ in range(20):
            await scene.completed()

    assert len(read_lines(tmp_path)) == 20
    assert not (tmp_path / "turnwire.db-wal").exists()


async def test_a_second_server_is_refused(tmp_path: Path) -> None:
    async with shop(tmp_path):
        with pytest.raises(DataError, match=rf"another server \(process {os.getpid()}\) is using this data directory"):
            async with shop(tmp_path):
                pass
    async with shop(tmp_path) as scene:
        await scene.completed()


async def test_files_are_for_the_server_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    async with shop(folder) as scene:
        await scene.completed()

        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == dict.fromkeys(
            ("journal-00000001", "lock", "turnwire.db", "turnwire.db-shm", "turnwire.db-wal"), 0o600
        )


async def test_a_directory_that_others_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.chmod(tmp_path, 0o755)
    async with shop(tmp_path):
        pass

    assert "can be read by others (mode 755); run chmod 700" in caplog.text


async def test_a_file_in_the_place_of_the_directory_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(DataError, match="cannot be used as data directory"):
        async with shop(tmp_path / "file"):
            pass


async def test_what_is_no_database_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "turnwire.db").write_bytes(b"no database" * 1_000)

    with pytest.raises(DataError, match="file is not a database"):
        async with shop(tmp_path):
            pass
    # And lets go of the directory.
    (tmp_path / "turnwire.db").unlink()
    async with shop(tmp_path):
        pass


async def test_responses_at_work_have_failed_after_a_restart(tmp_path: Path) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    engine = StepEngine()
    async with shop(folder, engine) as scene:
        runner = scene.room.enter("", "grpc")
        create(runner, "held", hold=True)
        step = await next_pass(engine)
        step.emit([CallStart("look", call_id="call_1"), CallEnd()])
        step.end(Finish(usage=PassUsage(input_tokens=2, output_tokens=5)))
        events = await until(runner, "done")
        held = next(event for event in events if event.HasField("created")).created.response.id
        body = ResponseCreate(model="stepped", input=Input(text="back"), background=True)
        run = await scene.room.background.start("", body, RequestContext())
        assert (await scene.get(run.id)).status == ResponseStatus.RESPONSE_STATUS_IN_PROGRESS
        await scene.data.caught_up()
        shutil.copytree(folder, copy)
        scene.room.leave(runner)
    engine = StepEngine()
    async with shop(copy, engine) as scene:
        for response_id in (held, run.id):
            response = await scene.get(response_id)
            assert response.status == ResponseStatus.RESPONSE_STATUS_FAILED
            assert response.error.message == "The server was restarted while the response was at work."
        assert await scene.refused("x", model="stepped", previous_response_id=run.id) == "previous_response_not_found"
        # What was held can be gone on from, as it stood at its pause.
        runner = scene.room.enter("", "grpc")
        request = ConnectRequest(create=ResponseCreate(model="stepped", previous_response_id=held))
        output = request.create.input.items.items.add().function_call_output
        output.call_id, output.output.text = "call_1", "sunny"
        send(runner, request)
        (await next_pass(engine)).end(Finish())
        assert (await until(runner, "done"))[-1].done.reason == DoneReason.DONE_REASON_COMPLETED
        scene.room.leave(runner)


async def test_a_background_response_is_stored_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    engine = StepEngine()
    async with shop(tmp_path, engine) as scene:
        body = ResponseCreate(model="stepped", input=Input(text="back"), background=True)
        run = await scene.room.background.start("", body, RequestContext())
        assert scene.data.journal.records == 1
        step = await next_pass(engine)
        step.emit([TextChunk(Channel.TEXT, "well")])
        step.end(Finish())
        assert run.task is not None
        await run.task
        await scene.data.caught_up()
        scene.forget()

        assert (await scene.get(run.id)).status == ResponseStatus.RESPONSE_STATUS_COMPLETED
        assert [line["door"] for line in await scene.lines()] == ["background"]


@pytest.mark.parametrize(
    ("about", "param"),
    [
        (RequestContext(end_user="u" * 129), "context.end_user"),
        (RequestContext(labels={f"l{number}": "" for number in range(17)}), "context.labels"),
        (RequestContext(labels={"l" * 65: ""}), "context.labels"),
        (RequestContext(labels={"team": "v" * 513}), "context.labels.team"),
    ],
)
async def test_labels_are_bounded(tmp_path: Path, about: RequestContext, param: str) -> None:
    async with shop(tmp_path) as scene:
        with pytest.raises(RequestError) as caught:
            await scene.create(about=about)

        assert caught.value.error.param == param
        assert caught.value.error.code in ("string_above_max_length", "array_above_max_length")
        assert scene.data.journal.records == 0
