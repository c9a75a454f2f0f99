"""Sessions of their own at a server elsewhere, as the bridge's WebSocket clients have them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.remote.conftest import BOUND, Place, Wire, asking, eventually, nothing_left

from turnwire.client.remote import RemoteBackend, RemoteOptions, UnreachableError
from turnwire.server.keys import KeyRing
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import RequestError
from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.session_pb2 import SessionOpen, SessionRules

if TYPE_CHECKING:
    from turnwire.client.remote.link import RemoteLink
    from turnwire.v1.server_event_pb2 import ServerEvent

PIECE = "x" * 4096


class Driver:
    """Drives a link as a door does."""

    def __init__(self, backend: RemoteBackend, authorization: str | None = None, **opening: Any) -> None:
        settings = SessionOpen(**opening) if opening else None
        self.link: RemoteLink = backend.caller(authorization).connect(settings, "websocket")
        self.waiting: list[ServerEvent] = []

    async def send(self, **event: Any) -> None:
        request = ConnectRequest(**event)
        async with asyncio.timeout(BOUND):
            await self.link.send(request, request.ByteSize())

    async def until(self, kind: str) -> Any:
        while True:
            while self.waiting:
                event = self.waiting.pop(0)
                if event.WhichOneof("event") == kind:
                    return getattr(event, kind)
            async with asyncio.timeout(BOUND):
                batch = await self.link.next_batch()
            assert batch is not None, self.link.close_error
            self.waiting.extend(batch.events)

    async def create(self, **more: Any) -> str:
        await self.send(request_id="1", create=asking(**more))
        response_id: str = (await self.until("created")).response.id
        return response_id

    async def end(self) -> str:
        """Reads to the end; returns the code it ended by."""
        async with asyncio.timeout(BOUND):
            while await self.link.next_batch() is not None:
                pass
        assert await self.link.next_batch() is None
        return self.link.close_error.code if self.link.close_error is not None else ""


async def test_the_opening_goes_on_and_is_answered(place: Place, backend: RemoteBackend) -> None:
    driver = Driver(backend, rules=SessionRules.SESSION_RULES_WEBSOCKET, session_credit_bytes=0)
    opened = await driver.until("opened")
    assert opened.rules == SessionRules.SESSION_RULES_WEBSOCKET
    assert opened.limits.max_in_flight == 16
    driver.link.close()
    await place.emptied()


async def test_without_an_opening_the_owner_opens_or_does_not(place: Place, backend: RemoteBackend) -> None:
    silent, opening = Driver(backend), Driver(backend)
    response_id = await silent.create()
    await opening.send(open={"response_credit_bytes": 0})
    assert (await opening.until("opened")).response_credit_bytes == 0
    place.engine.finish(response_id)
    assert (await silent.until("done")).reason == DoneReason.DONE_REASON_COMPLETED


async def test_each_link_is_a_session_of_its_own(place: Place, backend: RemoteBackend) -> None:
    drivers = [Driver(backend) for _ in range(3)]
    ids = [await driver.create(store=False) for driver in drivers]
    assert len(place.room) == 3
    for driver, response_id in zip(drivers, ids, strict=True):
        place.engine.finish(response_id)
        await driver.until("done")
    await drivers[0].send(create=asking(previous_response_id=ids[1]))
    assert (await drivers[0].until("rejected")).error.code == "previous_response_not_found"


async def test_answers_name_the_request_by_the_clients_id_or_by_none(place: Place, backend: RemoteBackend) -> None:
    driver = Driver(backend)
    for request_id in ("", "mine"):
        await driver.send(request_id=request_id, create=asking())
        created = await driver.until("created")
        assert created.request_id == request_id
        place.engine.finish(created.response.id)
        assert (await driver.until("done")).request_id in ("", request_id)
        await driver.send(request_id=request_id + "2" if request_id else "", create=asking(temperature=9))
        assert (await driver.until("rejected")).request_id == (request_id + "2" if request_id else "")


async def test_an_orderly_end_has_no_error(place: Place, backend: RemoteBackend) -> None:
    driver = Driver(backend, features=["append"])
    await driver.until("opened")
    await driver.send(close={})
    assert await driver.end() == ""


async def test_closing_frees_what_ran(place: Place, backend: RemoteBackend) -> None:
    driver = Driver(backend)
    response_id = await driver.create()
    driver.link.close()
    driver.link.close()
    await place.aborted(response_id)
    await place.emptied()
    assert await driver.end() == ""
    await driver.send(create=asking())
    await nothing_left()


async def test_closing_the_backend_ends_links(place: Place) -> None:
    async with RemoteBackend(place.address) as backend:
        driver = Driver(backend)
        response_id = await driver.create()
    await place.aborted(response_id)
    assert await driver.end() == ""
    await nothing_left()


async def test_more_links_than_there_may_be_are_refused(place: Place) -> None:
    async with RemoteBackend(place.address, RemoteOptions(max_links=1)) as backend:
        driver = Driver(backend)
        with pytest.raises(RequestError) as caught:
            Driver(backend)
        assert caught.value.error.code == "too_many_connections"
        driver.link.close()
        await driver.end()
        await eventually(lambda: not backend._links)  # pyright: ignore[reportPrivateUsage]
        await Driver(backend).create()


async def test_a_read_that_is_cancelled_loses_nothing(place: Place, backend: RemoteBackend) -> None:
    driver = Driver(backend)
    response_id = await driver.create()
    for _ in range(3):
        reading = asyncio.create_task(driver.link.next_batch())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    place.say(response_id, "all of it")
    place.engine.finish(response_id)
    await driver.until("output_text_delta")
    await driver.until("done")


async def test_a_door_that_takes_nothing_holds_the_server_back(place: Place, backend: RemoteBackend) -> None:
    driver = Driver(backend, response_credit_bytes=0, session_credit_bytes=0)
    response_id = await driver.create()
    sampling = place.engine.find(response_id)
    said = 0
    quiet = 0
    async with asyncio.timeout(BOUND):
        while quiet < 25:
            if sampling.paused:
                quiet += 1
                # Socket buffers empty in their own time: only silence tells that they are full.
                await asyncio.sleep(0.002)
                continue
            quiet = 0
            place.say(response_id, PIECE)
            said += 1
            await asyncio.sleep(0)
    deltas = 0
    while deltas < said:
        await driver.until("output_text_delta")
        deltas += 1
    place.engine.finish(response_id)
    await driver.until("done")


async def test_a_lost_connection_is_a_lost_session(place: Place, wire: Wire) -> None:
    async with RemoteBackend(wire.address) as backend:
        driver = Driver(backend)
        response_id = await driver.create()
        wire.cut()
        assert await driver.end() == "session_lost"
        await place.aborted(response_id)


async def test_a_lost_connection_is_heard_of_though_nobody_takes_what_came(place: Place, wire: Wire) -> None:
    async with RemoteBackend(wire.address) as backend:
        driver = Driver(backend)
        response_id = await driver.create()
        cut = asyncio.Event()
        driver.link.on_cut = cut.set
        place.say(response_id, "never taken")
        await eventually(lambda: driver.link._incoming.full())  # pyright: ignore[reportPrivateUsage]
        wire.cut()
        async with asyncio.timeout(BOUND):
            await cut.wait()
        assert await driver.end() == "session_lost"


async def test_a_server_that_takes_no_session_says_why(place: Place, backend: RemoteBackend) -> None:
    place.room.go_away("shutdown", 30.0, 0.0)
    driver = Driver(backend, features=["append"])
    assert await driver.end() == "server_shutting_down"
    with pytest.raises(RequestError) as caught:
        await backend.caller(None).open()
    assert caught.value.error.code == "server_shutting_down"
    assert not isinstance(caught.value, UnreachableError)


@pytest.mark.parametrize("address", ["grpc://127.0.0.1:1", "ws://127.0.0.1:1"])
async def test_nobody_listening_is_said(address: str) -> None:
    async with RemoteBackend(address) as backend:
        driver = Driver(backend, features=["append"])
        assert await driver.end() == "session_lost"
        assert driver.link.close_error is not None
        assert "check the address" in driver.link.close_error.message


class TestKeys:
    """Keys."""

    @pytest.fixture
    def keys(self) -> KeyRing:
        return KeyRing.parse("anna:key-of-anna-1234\n")

    async def test_a_bad_key_ends_the_link(self, place: Place, backend: RemoteBackend) -> None:
        driver = Driver(backend, "Bearer wrong", features=["append"])
        assert await driver.end() == "invalid_api_key"

    async def test_a_good_key_opens_it(self, place: Place, backend: RemoteBackend) -> None:
        driver = Driver(backend, "Bearer key-of-anna-1234", features=["append"])
        assert await driver.until("opened")
