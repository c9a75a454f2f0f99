"""Responses over the session that one key's requests share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.remote.conftest import BOUND, Place, Reader, Wire, asking, eventually, nothing_left

from turnwire.client import ChannelOptions
from turnwire.client.remote import RemoteBackend, RemoteOptions, UnreachableError
from turnwire.server.keys import KeyRing
from turnwire.v1.errors import RequestError
from turnwire.v1.response_pb2 import DoneReason, Input, InputItems, ResponseCreate, ResponseStatus, Verbosity

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = "x" * 4096


async def refused(reader: Reader) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await reader.rest()
    return caught.value


async def whole(place: Place, backend: RemoteBackend, create: ResponseCreate, text: str = "hi") -> str:
    reader = Reader(backend, create)
    response_id = await reader.created()
    place.say(response_id, text)
    place.engine.finish(response_id)
    await reader.rest()
    assert reader.text == text
    return response_id


async def test_every_event_of_the_public_stream_comes_in_order(place: Place, backend: RemoteBackend) -> None:
    reader = Reader(backend, asking())
    response_id = await reader.created()
    place.say(response_id, "Hello")
    place.engine.finish(response_id)
    events = await reader.rest()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.WhichOneof("event") for event in events] == [
        "created",
        "in_progress",
        "output_item_added",
        "content_part_added",
        "output_text_delta",
        "output_text_done",
        "content_part_done",
        "output_item_done",
        "done",
    ]
    assert events[-1].done.reason == DoneReason.DONE_REASON_COMPLETED


async def test_responses_share_one_session_and_interleave(place: Place, backend: RemoteBackend) -> None:
    readers = [Reader(backend, asking(f"request {n}")) for n in range(20)]
    ids = await asyncio.gather(*(reader.created() for reader in readers))
    for word in range(10):
        for n, response_id in enumerate(ids):
            place.say(response_id, f"{n}.{word} ")
    for response_id in reversed(ids):
        place.engine.finish(response_id)
    await asyncio.gather(*(reader.rest() for reader in readers))
    for n, reader in enumerate(readers):
        assert reader.text == "".join(f"{n}.{word} " for word in range(10))
    assert len(place.room) == 1


async def test_only_the_end_comes_where_only_that_is_asked_for(place: Place, backend: RemoteBackend) -> None:
    reader = Reader(backend, asking(verbosity=Verbosity.VERBOSITY_DONE))
    response_id = await reader.created()
    place.say(response_id, "Hello")
    place.engine.finish(response_id)
    events = await reader.rest()
    assert [event.WhichOneof("event") for event in events] == ["created", "done"]
    assert events[-1].done.output[0].message.content.parts.parts[0].output_text.text == "Hello"


async def test_a_chain_finds_its_state_though_nothing_was_stored(place: Place, backend: RemoteBackend) -> None:
    first = await whole(place, backend, asking("one", store=False), "two")
    second = await whole(place, backend, asking("three", store=False, previous_response_id=first), "four")
    await whole(place, backend, asking("five", store=False, previous_response_id=second), "six")
    assert len(list(place.engine.passes[-1].prompt.transcript.walk())) == 5


async def test_closing_the_generator_cancels_the_response_and_no_other(place: Place, backend: RemoteBackend) -> None:
    left, kept = Reader(backend, asking()), Reader(backend, asking())
    left_id, kept_id = await left.created(), await kept.created()
    await left.batches.aclose()
    await place.aborted(left_id)
    place.say(kept_id, "still here")
    place.engine.finish(kept_id)
    await kept.rest()
    assert kept.text == "still here"


async def test_a_request_that_is_cancelled_before_its_response_exists_is_withdrawn(
    place: Place, backend: RemoteBackend
) -> None:
    # Sent in the same turn of the loop, so that the server has both before it answers either.
    tasks = [asyncio.create_task(Reader(backend, asking()).created()) for _ in range(2)]
    await place.begun(1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await whole(place, backend, asking())


async def test_a_reader_that_stops_holds_its_own_response_back_and_no_other(
    place: Place, backend: RemoteBackend
) -> None:
    slow, quick = Reader(backend, asking()), Reader(backend, asking())
    slow_id, quick_id = await slow.created(), await quick.created()
    sampling = place.engine.find(slow_id)
    said = 0
    while not sampling.paused:
        place.say(slow_id, PIECE)
        said += 1
        assert said < 4000, "the engine is never paused"
        await asyncio.sleep(0)
    # Nobody reads the slow one; the other goes on as if nothing were.
    for _ in range(100):
        place.say(quick_id, PIECE)
        await quick.more()
    place.engine.finish(quick_id)
    await quick.rest()
    assert quick.text == PIECE * 100
    # As it is read, it goes on.
    while sampling.paused:
        await slow.more()
    place.engine.finish(slow_id)
    await slow.rest()
    assert slow.text == PIECE * said


async def test_what_is_refused_has_its_code_and_parameter(place: Place, backend: RemoteBackend) -> None:
    error = (await refused(Reader(backend, asking(temperature=9.0)))).error
    assert (error.code, error.param) == ("invalid_value", "temperature")
    error = (await refused(Reader(backend, asking(previous_response_id="resp_gone")))).error
    assert error.code == "previous_response_not_found"
    error = (await refused(Reader(backend, asking(hold=True)))).error
    assert (error.code, error.param) == ("unsupported_parameter", "hold")
    assert place.engine.passes == []


async def test_a_request_too_large_for_the_session_harms_nobody_else(place: Place, backend: RemoteBackend) -> None:
    reader = Reader(backend, asking())
    response_id = await reader.created()
    items = InputItems()
    for _ in range(4):
        items.items.add().message.content.text = "x" * (9 * 1024 * 1024)
    large = ResponseCreate(model="stepped", input=Input(items=items))
    assert (await refused(Reader(backend, large))).error.code == "request_too_large"
    place.engine.finish(response_id)
    await reader.rest()


async def test_more_responses_than_there_may_be_are_refused(place: Place) -> None:
    async with RemoteBackend(place.address, RemoteOptions(max_responses=2)) as backend:
        readers = [Reader(backend, asking()) for _ in range(2)]
        ids = [await reader.created() for reader in readers]
        error = (await refused(Reader(backend, asking()))).error
        assert error.code == "too_many_requests"
        assert error.HasField("retry_after")
        place.engine.finish(ids[0])
        await readers[0].rest()
        await whole(place, backend, asking())


async def test_a_lost_session_fails_what_ran_and_the_next_request_opens_another(place: Place, wire: Wire) -> None:
    async with RemoteBackend(wire.address) as backend:
        reader, ended = Reader(backend, asking()), Reader(backend, asking())
        response_id, ended_id = await reader.created(), await ended.created()
        place.say(ended_id, "all of it")
        place.engine.finish(ended_id)
        # What comes behind its end shows that the end has arrived.
        place.say(response_id, "a part")
        await reader.until("output_text_delta")
        wire.cut()
        assert (await refused(reader)).error.code == "session_lost"
        await ended.rest()
        assert ended.text == "all of it"
        await place.aborted(response_id)
        await whole(place, backend, asking())
    await nothing_left()


async def test_stored_responses_are_continued_after_a_loss_and_others_are_gone(place: Place, wire: Wire) -> None:
    async with RemoteBackend(wire.address) as backend:
        stored = await whole(place, backend, asking())
        unstored = await whole(place, backend, asking(store=False))
        running = Reader(backend, asking())
        await running.created()
        wire.cut()
        await refused(running)
        await whole(place, backend, asking(previous_response_id=stored))
        error = (await refused(Reader(backend, asking(previous_response_id=unstored)))).error
        assert error.code == "previous_response_not_found"


async def test_a_server_that_stops_fails_what_ran_and_is_found_again(place: Place, backend: RemoteBackend) -> None:
    reader = Reader(backend, asking())
    await reader.created()
    await place.stop(grace=0.05)
    await reader.rest()
    assert reader.events[-1].done.error.code == "server_shutting_down"
    assert isinstance(await refused(Reader(backend, asking())), UnreachableError)
    await place.start()
    await whole(place, backend, asking())


async def test_a_server_that_wants_to_be_left_is_left_once_its_responses_have_ended(
    place: Place, backend: RemoteBackend
) -> None:
    reader = Reader(backend, asking())
    response_id = await reader.created()
    (session,) = tuple(place.room._runners)  # pyright: ignore[reportPrivateUsage]
    session.go_away("rebalance", 30.0, 0.0)
    # Requests that cross the news are refused; those that come after it open another session.
    async with asyncio.timeout(BOUND):
        while await outcome(place, Reader(backend, asking())) == "session_closing":
            pass
    assert len(place.room) == 2
    place.say(response_id, "to the end")
    place.engine.finish(response_id)
    await reader.rest()
    assert reader.text == "to the end"
    await eventually(lambda: len(place.room) == 1)


async def outcome(place: Place, reader: Reader) -> str:
    try:
        place.engine.finish(await reader.created())
        await reader.rest()
    except RequestError as error:
        return error.error.code
    return ""


async def test_nobody_listening_is_unreachable_with_what_to_check() -> None:
    options = RemoteOptions(channel=ChannelOptions(connect_timeout=BOUND))
    async with RemoteBackend("127.0.0.1:1", options) as backend:
        with pytest.raises(UnreachableError, match="check the address") as caught:
            await backend.caller(None).open()
        assert caught.value.error.code == "session_lost"
        assert isinstance(await refused(Reader(backend, asking())), UnreachableError)


async def test_requests_that_come_while_the_session_opens_share_it(place: Place, backend: RemoteBackend) -> None:
    impatient = asyncio.create_task(backend.caller(None).open())
    others = [asyncio.create_task(backend.caller(None).open()) for _ in range(3)]
    await asyncio.sleep(0)
    impatient.cancel()
    async with asyncio.timeout(BOUND):
        await asyncio.gather(*others)
    assert len(place.room) == 1


@pytest.mark.parametrize("address", ["", "ftp://host", "grpc://host/path", "ws://", "wss://user@host"])
def test_an_address_that_cannot_be_read_is_refused_at_once(address: str) -> None:
    with pytest.raises(ValueError, match="HOST"):
        RemoteBackend(address)


class TestKeys:
    """Keys and whom they belong to."""

    @pytest.fixture
    def keys(self) -> KeyRing:
        return KeyRing.parse("anna:key-of-anna-1234\nben:key-of-ben-12345\n")

    async def test_the_header_goes_on_and_every_key_has_a_session_of_its_own(
        self, place: Place, backend: RemoteBackend
    ) -> None:
        readers = [Reader(backend, asking(), f"Bearer key-of-{who}") for who in ("anna-1234", "ben-12345", "anna-1234")]
        for reader in readers:
            place.engine.finish(await reader.created())
            await reader.rest()
        assert len(place.room) == 2

    @pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Bearer \u00e9", "Bearer a\nb"])
    async def test_a_bad_key_is_invalid(self, place: Place, backend: RemoteBackend, authorization: str | None) -> None:
        with pytest.raises(RequestError) as caught:
            await Reader(backend, asking(), authorization).rest()
        assert caught.value.error.code == "invalid_api_key"
        assert not isinstance(caught.value, UnreachableError)

    async def test_one_key_does_not_see_what_another_made(self, place: Place, backend: RemoteBackend) -> None:
        reader = Reader(backend, asking(), "Bearer key-of-anna-1234")
        response_id = await reader.created()
        place.engine.finish(response_id)
        await reader.rest()
        anna, ben = backend.caller("Bearer key-of-anna-1234"), backend.caller("Bearer key-of-ben-12345")
        assert (await anna.get_response(response_id)).id == response_id
        with pytest.raises(RequestError) as caught:
            await ben.get_response(response_id)
        assert (caught.value.error.code, caught.value.error.param) == ("response_not_found", "response_id")

    async def test_sessions_that_are_idle_make_room_for_other_keys(self, place: Place) -> None:
        async with RemoteBackend(place.address, RemoteOptions(max_authorizations=1)) as backend:
            await backend.caller("Bearer key-of-anna-1234").open()
            reader = Reader(backend, asking(), "Bearer key-of-ben-12345")
            response_id = await reader.created()
            with pytest.raises(RequestError) as caught:
                backend.caller("Bearer key-of-anna-1234")
            assert caught.value.error.code == "too_many_connections"
            place.engine.finish(response_id)
            await reader.rest()
        await place.emptied()


async def test_closing_ends_every_session_and_what_ran(place: Place) -> None:
    backend = RemoteBackend(place.address)
    reader = Reader(backend, asking())
    response_id = await reader.created()
    await backend.aclose()
    await backend.aclose()
    await reader.rest()
    assert reader.events[-1].done.reason == DoneReason.DONE_REASON_CANCELLED
    await place.aborted(response_id)
    await place.emptied()
    with pytest.raises(RequestError, match="closed"):
        backend.caller(None)


async def test_one_shot_methods_go_beside_the_session(place: Place, backend: RemoteBackend) -> None:
    caller = backend.caller(None)
    response_id = await whole(place, backend, asking())
    assert [model.id for model in await caller.list_models()] == ["stepped"]
    assert (await caller.get_response(response_id)).id == response_id
    await caller.delete_response(response_id)
    missing: list[Callable[[], object]] = [
        lambda: caller.get_response(response_id),
        lambda: caller.delete_response(response_id),
    ]
    for method in missing:
        with pytest.raises(RequestError) as caught:
            await method()  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
        assert caught.value.error.code == "response_not_found"
    assert len(place.room) == 1


async def test_lanes_are_used_again(place: Place, backend: RemoteBackend) -> None:
    for _ in range(5):
        await whole(place, backend, asking())
    (session,) = place.room.services.sessions.values()
    assert session.gauges().lanes == 1


async def test_a_response_in_the_background_outlives_its_reader(place: Place, backend: RemoteBackend) -> None:
    reader = Reader(backend, asking(background=True))
    response_id = await reader.created()
    await reader.batches.aclose()
    place.say(response_id, "Hello")
    caller = backend.caller(None)
    follower = caller.follow_response(response_id, None)
    kinds: list[str | None] = []
    async with asyncio.timeout(BOUND):
        async for events in follower:
            kinds += [event.WhichOneof("event") for event in events]
            if "output_text_delta" in kinds and "done" not in kinds and not place.engine.find(response_id).ended:
                place.engine.finish(response_id)
    assert kinds[0] == "created"
    assert kinds[-1] == "done"
    assert (await caller.get_response(response_id)).output


async def test_a_response_in_the_background_is_cancelled_by_its_id(place: Place, backend: RemoteBackend) -> None:
    reader = Reader(backend, asking(background=True))
    response_id = await reader.created()
    response = await backend.caller(None).cancel_response(response_id)
    assert response.status == ResponseStatus.RESPONSE_STATUS_CANCELLED
    await place.aborted(response_id)
    await reader.batches.aclose()


def test_a_backend_without_response_credit_would_be_unbounded() -> None:
    with pytest.raises(ValueError, match="response_credit_bytes"):
        RemoteOptions(channel=ChannelOptions(response_credit_bytes=0))
