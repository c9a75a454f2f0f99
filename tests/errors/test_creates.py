"""What is wrong with the body of a create is refused alike by every door: code, parameter, status and message."""

from __future__ import annotations

import asyncio

import pytest
from tests.errors.bad import BAD, Bad
from tests.errors.doors import DOORS, Entrance, Outcome, entering

from turnwire.server.keys import KeyRing
from turnwire.server.session.limits import SessionLimits
from turnwire.v1.errors import ERRORS

_ON_SESSIONS = ("websocket", "bridge-websocket")
_TYPED = ("grpc", "turnwire.v1")


def parts(outcome: Outcome) -> tuple[int | None, str, str | None]:
    return outcome.status, outcome.code, outcome.param


@pytest.mark.parametrize(
    ("entrance", "bad"),
    [
        pytest.param(door, bad, id=f"{door}-{bad.name.replace(' ', '-')}")
        for door in DOORS
        for bad in BAD
        # Our own messages have types, in which some things cannot be said.
        if (bad.readable or door not in _TYPED)
        # Over the subprotocol the client library itself knows that there is no stream beside the session.
        and not (bad.on_session and door == "turnwire.v1")
    ],
    indirect=["entrance"],
)
async def test_a_bad_body_is_refused(entrance: Entrance, bad: Bad) -> None:
    code, param = bad.code, bad.param
    if bad.on_session and entrance.name in _ON_SESSIONS:
        code, param = bad.on_session
    outcome = await entrance.create(bad.body)
    assert parts(outcome) == (bad.status, code, param)
    assert bad.message in ("", outcome.message)
    assert outcome.message.endswith((".", "?", "!"))
    assert not entrance.server.engine.passes


@pytest.mark.parametrize("door", DOORS)
async def test_a_bad_key_is_refused(door: str) -> None:
    async with entering(door, keys=KeyRing.parse("alice:0123456789abcdef")) as entrance:
        for authorization in (None, "Bearer fedcba9876543210", "Basic MDEyMzQ1Njc4OWFiY2RlZg=="):
            entrance.authorization = authorization
            if "websocket" in door:
                with pytest.raises(Exception, match="HTTP 401"):
                    await entrance.create({"model": "stepped", "input": "hello"})
            else:
                outcome = await entrance.create({"model": "stepped", "input": "hello"})
                assert parts(outcome) == (401, "invalid_api_key", None)


@pytest.mark.parametrize("door", DOORS)
async def test_a_conversation_that_is_too_long_is_refused(door: str) -> None:
    async with entering(door, limits=SessionLimits(max_state_bytes=2000)) as entrance:
        outcome = await entrance.create({"model": "stepped", "input": "x" * 3000})
        assert parts(outcome) == (400, "context_length_exceeded", "input")


@pytest.mark.parametrize("door", DOORS)
async def test_a_request_that_is_too_large_is_refused(door: str) -> None:
    async with entering(door, limits=SessionLimits(max_request_bytes=20_000)) as entrance:
        outcome = await entrance.create({"model": "stepped", "input": "x" * 30_000})
        assert (outcome.status, outcome.code) == (413, "request_too_large")


@pytest.mark.parametrize(
    "code",
    [
        "server_error",
        "server_is_overloaded",
        "engine_unavailable",
        "context_length_exceeded",
        "invalid_prompt",
        "rate_limit_exceeded",
        "insufficient_quota",
        "cyber_policy",
        "bio_policy",
        "invalid_image_mode",
        "image_content_policy_violation",
        "image_file_not_found",
    ],
)
async def test_a_response_that_fails_says_why(entrance: Entrance, code: str) -> None:
    creating = asyncio.create_task(entrance.create({"model": "stepped", "input": "hello"}))
    await entrance.server.begun()
    entrance.server.engine.fail(0, code, "It went wrong.", retry_after=2.0)
    outcome = await creating
    assert (outcome.code, outcome.message) == (code, "It went wrong.")
    if entrance.name.endswith("http"):
        assert outcome.status == ERRORS[code].http_status
    else:
        assert outcome.events[-1]["type"] == "response.failed"
        assert outcome.response is not None
        assert outcome.response["status"] == "failed"
        assert outcome.response["id"].startswith("resp_")
