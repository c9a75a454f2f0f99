"""Which web pages are let in, and what their browsers are told."""

from __future__ import annotations

import pytest

from turnwire.server.address import Address
from turnwire.server.doors.http.origin import ANY, Origins, read_origin
from turnwire.v1.errors import RequestError

from .conftest import Door, Doors

APP = "https://app.example"
HERE = (Address("127.0.0.1", 8080),)


def lets_in(origins: Origins, **headers: str) -> bool:
    try:
        origins.check(headers)
    except RequestError:
        return False
    return True


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:3000", "http://localhost:8080", ""]
)
def test_without_keys_pages_of_other_origins_are_not_let_in(origin: str) -> None:
    assert not lets_in(Origins(keys=False, addresses=HERE), host="127.0.0.1:8080", origin=origin)


def test_clients_that_name_the_server_itself_are_let_in() -> None:
    origins = Origins(keys=False, addresses=HERE)

    assert lets_in(origins, host="127.0.0.1:8080", origin="http://127.0.0.1:8080")
    assert lets_in(origins, host="localhost:8080", origin="http://localhost:8080")
    assert lets_in(origins, host="localhost:8080")
    assert lets_in(origins)


def test_a_page_whose_name_was_made_to_lead_here_is_not_let_in() -> None:
    names = {"host": "evil.example:8080", "origin": "http://evil.example:8080"}

    assert not lets_in(Origins(keys=False, addresses=HERE), **names)
    assert lets_in(Origins(keys=False, addresses=(*HERE, Address("0.0.0.0", 80))), **names)


def test_where_keys_are_asked_for_pages_are_let_in_but_may_not_read_answers() -> None:
    origins = Origins(keys=True, addresses=HERE)

    assert lets_in(origins, host="models.example", origin=APP)
    assert origins.answered({"origin": APP}) == {}


def test_listed_origins_may_read_answers() -> None:
    origins = Origins({APP}, keys=False, addresses=HERE)

    assert lets_in(origins, host="127.0.0.1:8080", origin=APP)
    assert not lets_in(origins, host="127.0.0.1:8080", origin="https://app.example.evil.example")
    assert origins.answered({"origin": APP})["access-control-allow-origin"] == APP
    assert origins.answered({"origin": "https://evil.example"}) == {"vary": "Origin"}
    assert Origins({ANY}, keys=True).answered({"origin": APP})["access-control-allow-origin"] == APP


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://App.example/", APP),
        ("https://app.example:443", APP),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("*", ANY),
    ],
)
def test_origins_are_read_as_browsers_write_them(written: str, read: str) -> None:
    assert read_origin(written) == read


@pytest.mark.parametrize(
    "text",
    [
        "app.example",
        "null",
        "https://",
        "https://a.example/path",
        "ftp://a.example",
        "https://[",
        "https://u@a.example",
    ],
)
def test_what_is_no_origin_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="origin"):
        read_origin(text)


async def test_browsers_are_told_what_pages_of_a_listed_origin_may_do(open_door: Doors) -> None:
    door = await open_door(origins=Origins({APP}, keys=False, addresses=HERE))
    asks = {
        "Origin": APP,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-stainless-os",
    }

    status, _, preflight = await door.ask("OPTIONS", "/v1/responses", headers=asks)
    assert status == 204
    assert preflight.headers["access-control-allow-origin"] == APP
    assert preflight.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    _, _, answer = await door.ask("GET", "/v1/models", headers={"Origin": APP})
    assert answer.headers["access-control-allow-origin"] == APP
    _, _, refused = await door.ask("GET", "/v1/nothing", headers={"Origin": APP})
    assert refused.headers["access-control-allow-origin"] == APP
    stream = await door.client.post(f"{door.url}/v1/responses", json=door.asking(stream=True), headers={"Origin": APP})
    assert stream.headers["access-control-allow-origin"] == APP
    stream.close()


async def test_other_pages_are_refused_before_anything_of_theirs_is_read(open_door: Doors) -> None:
    door = await open_door(origins=Origins({APP}, keys=False, addresses=HERE))
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}

    refused = (400, "invalid_request_error", None)
    assert await door.refusal("OPTIONS", "/v1/responses", headers=headers) == refused
    assert await door.refusal("POST", "/v1/responses", headers=headers, data=b"{}") == refused
    upgrade = {**headers, "Upgrade": "websocket", "Connection": "Upgrade"}
    assert await door.refusal("GET", "/v1/responses", headers=upgrade) == refused


async def test_where_keys_are_asked_for_nothing_is_said_to_pages(door: Door) -> None:
    status, _, answer = await door.ask("GET", "/v1/models", headers={"Origin": APP})

    assert status == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
