"""Who may come in, and what one principal can see and do of another's: nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from turnwire.server.doors.grpc.options import GrpcOptions
from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.response_pb2 import ResponseStatus

if TYPE_CHECKING:
    from tests.grpc.conftest import Door, Doors

_KEYS = "alice:k3y-of-alice-0123456789\nbob:k3y-of-bob-0123456789\n"
_ALICE = ("authorization", "Bearer k3y-of-alice-0123456789")
_BOB = ("authorization", "Bearer k3y-of-bob-0123456789")
_UNARY = (
    "CreateResponse",
    "GetResponse",
    "DeleteResponse",
    "CancelResponse",
    "FollowResponse",
    "ListInputItems",
    "CountInputTokens",
    "CompactResponse",
    "ListModels",
    "GetCapabilities",
)
_WRONG: dict[str, tuple[tuple[str, str | bytes], ...]] = {
    "none": (),
    "an unknown key": (("authorization", "Bearer k3y-of-mallory-0123456789"),),
    "part of a key": (("authorization", "Bearer k3y-of-alice-012345678"),),
    "another scheme": (("authorization", "Basic k3y-of-alice-0123456789"),),
    "no scheme": (("authorization", "k3y-of-alice-0123456789"),),
    "the scheme alone": (("authorization", "Bearer "),),
    "a principal": (("authorization", "Bearer alice:k3y-of-alice-0123456789"),),
    "a binary header": (("authorization-bin", b"Bearer k3y-of-alice-0123456789"),),
    "another header": (("x-api-key", "k3y-of-alice-0123456789"),),
    "a wrong one after a good one": (_ALICE, ("authorization", "Bearer k3y-of-mallory-0123456789")),
}


@pytest.fixture
async def guarded(open_door: Doors) -> Door:
    return await open_door(keys=_KEYS)


@pytest.mark.parametrize("metadata", _WRONG.values(), ids=_WRONG)
async def test_a_wrong_or_missing_key_opens_no_method(
    guarded: Door, caplog: pytest.LogCaptureFixture, metadata: tuple[tuple[str, str | bytes], ...]
) -> None:
    caplog.set_level(logging.DEBUG)
    endings = [await guarded.connect(*metadata).ended()]
    for name in (*_UNARY, "StreamResponse"):
        # Bytes that are no message: whoever has no key does not even learn that.
        ended = await guarded.ask(name, b"\xff", *metadata)
        assert not isinstance(ended, bytes)
        endings.append(ended)
    messages = {ended.message for ended in endings}
    for ended in endings:
        assert (ended.code, ended.error) == (grpc.StatusCode.UNAUTHENTICATED, ("invalid_api_key", None))
        assert "k3y" not in str(ended)
    assert len(messages) == 1
    assert guarded.watcher.refused_keys == len(endings)
    assert "k3y-of" not in caplog.text
    assert guarded.watcher.closed == 0
    # Whoever has a key is served meanwhile.
    peer = guarded.connect(_ALICE)
    await guarded.completes(peer)


@pytest.mark.parametrize("header", ["bearer k3y-of-alice-0123456789", "  Bearer   k3y-of-alice-0123456789 "])
async def test_a_good_key_is_taken_however_its_header_is_written(guarded: Door, header: str) -> None:
    await guarded.completes(guarded.connect(("authorization", header)))


async def test_without_keys_everybody_comes_in_with_any_header(door: Door) -> None:
    await door.completes(door.connect(_ALICE))
    await door.completes(door.connect())


async def test_nobody_can_touch_the_responses_of_another(guarded: Door) -> None:
    alice, bob = guarded.connect(_ALICE), guarded.connect(_BOB)
    await alice.send(open={})
    session_id = (await alice.until("opened")).session_id
    held = await guarded.paused(alice, lane="held")
    stored = await guarded.completes(alice, "a")
    private = await alice.create("a", store=False)
    guarded.finish(private)
    await alice.until("done", private.handle)

    for response in (held, stored, private):
        unknown: list[tuple[dict[str, Any], tuple[str, str]]] = [
            (
                {"append": {"response_id": response.id, "input": [bob.output("call_1")]}},
                ("response_not_found", "response_id"),
            ),
            ({"cancel": {"response_id": response.id}}, ("response_not_found", "response_id")),
            (
                {"create": bob.asking(previous_response_id=response.id)},
                ("previous_response_not_found", "previous_response_id"),
            ),
        ]
        for event, refusal in unknown:
            assert await bob.refusal(**event) == refusal
        await bob.send(steer={"previous_response_id": response.id, "input": {"text": "x"}})
        assert (await bob.until("steer_failed")).error.code == "response_not_found"
        for request in (
            pb.GetResponseRequest(response_id=response.id),
            pb.GetResponseRequest(response_id=response.id, session_id=session_id),
        ):
            ended = await guarded.ask("GetResponse", request, _BOB)
            assert not isinstance(ended, bytes)
            assert (ended.code, ended.error) == (grpc.StatusCode.NOT_FOUND, ("response_not_found", "response_id"))
        ended = await guarded.ask("DeleteResponse", pb.DeleteResponseRequest(response_id=response.id), _BOB)
        assert not isinstance(ended, bytes)
        assert ended.code is grpc.StatusCode.NOT_FOUND
        create = bob.asking(previous_response_id=response.id)
        ended = await guarded.ask("CreateResponse", pb.CreateResponseRequest(create=create), _BOB)
        assert not isinstance(ended, bytes)
        assert ended.error == ("previous_response_not_found", "previous_response_id")

    # To their owner all of them are there, from wherever she asks.
    for response, session in ((stored, ""), (held, ""), (private, session_id)):
        request = pb.GetResponseRequest(response_id=response.id, session_id=session)
        answer = await guarded.ask("GetResponse", request, _ALICE)
        assert isinstance(answer, bytes)
        assert pb.GetResponseResponse.FromString(answer).response.id == response.id
    other = guarded.connect(_ALICE)
    again = await other.create(previous_response_id=stored.id)
    guarded.finish(again)
    await other.until("done", again.handle)
    await alice.append(held.id, alice.output("call_1"))
    await alice.until("appended", held.handle)
    await guarded.completes(bob)


async def test_what_was_deleted_is_not_found_by_the_session_that_made_it_either(door: Door) -> None:
    peer = door.connect()
    await peer.send(open={})
    session_id = (await peer.until("opened")).session_id
    made = await peer.create("a")
    door.finish(made)
    await peer.until("done", made.handle)
    asked = pb.GetResponseRequest(response_id=made.id, session_id=session_id)
    assert isinstance(await door.ask("GetResponse", asked), bytes)
    await door.ask("DeleteResponse", pb.DeleteResponseRequest(response_id=made.id))
    gone = await door.ask("GetResponse", asked)
    assert not isinstance(gone, bytes)
    assert gone.code is grpc.StatusCode.NOT_FOUND


async def test_what_is_not_stored_is_found_by_its_session_alone(door: Door) -> None:
    peer = door.connect()
    await peer.send(open={})
    session_id = (await peer.until("opened")).session_id
    private = await peer.create("a", store=False)
    door.say(private, "secret")
    door.finish(private)
    await peer.until("done", private.handle)

    for session, found in ((session_id, True), ("", False), ("sess_x", False)):
        request = pb.GetResponseRequest(response_id=private.id, session_id=session)
        answer = await door.ask("GetResponse", request)
        assert isinstance(answer, bytes) is found
        if isinstance(answer, bytes):
            response = pb.GetResponseResponse.FromString(answer).response
            assert response.status == ResponseStatus.RESPONSE_STATUS_COMPLETED
            assert response.output[0].message.content.parts.parts[0].output_text.text == "secret"
    await peer.close()
    await door.emptied()
    ended = await door.ask("GetResponse", pb.GetResponseRequest(response_id=private.id, session_id=session_id))
    assert not isinstance(ended, bytes)
    assert ended.code is grpc.StatusCode.NOT_FOUND


async def test_one_session_too_many_is_refused_and_room_is_given_back(open_door: Doors) -> None:
    options = GrpcOptions(max_sessions=3, max_sessions_per_principal=2)
    door = await open_door(keys=_KEYS, options=options)
    first, second = door.connect(_ALICE), door.connect(_ALICE)
    await first.create()
    await second.create()

    for ended in (
        await door.connect(_ALICE).ended(),
        await door.ask("CreateResponse", pb.CreateResponseRequest(create=first.asking()), _ALICE),
    ):
        assert not isinstance(ended, bytes)
        assert (ended.code, ended.error) == (grpc.StatusCode.RESOURCE_EXHAUSTED, ("too_many_connections", None))
        assert ended.retry_after == 1.0

    bob = door.connect(_BOB)
    await bob.create()
    assert (await door.connect(_BOB).ended()).error == ("too_many_connections", None)
    first.call.cancel()
    await door.watcher.until(lambda watcher: watcher.open == 2)
    await door.completes(door.connect(_ALICE))
    await door.completes(second)
    await door.completes(bob)
