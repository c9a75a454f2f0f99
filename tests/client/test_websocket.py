"""The client over WebSocket: addresses, sessions and one-shot methods at a real door, and strange servers."""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
from aiohttp import WSMsgType, web

from turnwire.client import (
    AuthenticationError,
    ChannelOptions,
    Client,
    ConnectError,
    ProtocolError,
    RequestRejectedError,
    RpcFailedError,
    SessionLost,
    TurnwireError,
    connect,
    function_call_output,
    function_tool,
)
from turnwire.client._dial import check_address, uses_tls
from turnwire.client._http_channel import WebSocketAddress, parse_websocket_address, proxy_of, tls_of
from turnwire.server.address import Address
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.doors.websocket.door import WebSocketDoor
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.scenario import load_scenario
from turnwire.server.keys import KeyRing
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.testing import make_services
from turnwire.v1.errors import make_error
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import RequestRejected, SessionOpened

BOUND = 10.0
QUICK = ChannelOptions(connect_timeout=BOUND, heartbeat=None)
SCENARIO = """
[model]
names = ["m"]
[[turn]]
when = "^Look"
[[turn.call]]
name = "look"
arguments = { where = "there" }
[[turn]]
text = "Found it."
"""

TOO_MANY = '{"error":{"message":"Too many sessions","type":"rate_limit_error","code":"too_many_connections"}}'

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """A real server in this process."""

    def __init__(self, address: str, room: SessionRoom) -> None:
        self.address = address
        self.room = room


@asynccontextmanager
async def serving(keys: str | None = None, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Site]:
    room = SessionRoom(services := make_services([ScriptedEngine(load_scenario(SCENARIO))]))
    backend = LocalBackend(room, None if keys is None else KeyRing.parse(keys))
    server = HttpServer(backend, services.clock, websocket=WebSocketDoor(backend).handle)
    bound = await server.listen(Address("127.0.0.1", 0), tls)
    try:
        yield Site(f"{'wss' if tls else 'ws'}://127.0.0.1:{bound.port}", room)
    finally:
        await server.stop(0)


@asynccontextmanager
async def strange(handler: Handler) -> AsyncGenerator[str]:
    """Serves anything at all."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"ws://127.0.0.1:{site.port}"
    finally:
        await runner.cleanup()


def socket_that(act: Callable[[web.WebSocketResponse], Awaitable[object]], protocol: str = "turnwire.v1") -> Handler:
    """Returns a handler that takes an upgrade and the opening, and then does something."""

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=(protocol,))
        await socket.prepare(request)
        await socket.receive()
        await act(socket)
        return socket

    return handle


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("ws://host", WebSocketAddress("ws://host/v1/responses", tls=False, methods="http://host")),
        ("ws://host:80/", WebSocketAddress("ws://host:80/v1/responses", tls=False, methods="http://host:80")),
        ("wss://host:1/v1/responses", WebSocketAddress("wss://host:1/v1/responses", True, "https://host:1")),
        ("wss://host/a/v1/responses", WebSocketAddress("wss://host/a/v1/responses", True, "https://host/a")),
        ("wss://host/a/v1/", WebSocketAddress("wss://host/a/v1/responses", True, "https://host/a")),
        ("ws://host/socket?model=m", WebSocketAddress("ws://host/socket?model=m", False, "http://host")),
        ("ws://[::1]:8080", WebSocketAddress("ws://[::1]:8080/v1/responses", False, "http://[::1]:8080")),
    ],
)
def test_addresses_are_read(address: str, expected: WebSocketAddress) -> None:
    assert parse_websocket_address(address) == expected
    assert uses_tls(address) is expected.tls


@pytest.mark.parametrize(
    "address", ["ws://", "wss://:80", "ws://host:x", "ws://host:99999", "ws://user:word@host", "ws://host/#there"]
)
def test_other_addresses_are_refused_with_what_to_write(address: str) -> None:
    with pytest.raises(ValueError, match=r"ws://HOST:PORT or wss://HOST:PORT"):
        check_address(address)


def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setenv("https_proxy", "http://proxy:2")
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    assert [proxy_of(url) for url in ("ws://host/x", "wss://host/x", "ws://127.0.0.1:1")] == [
        "http://proxy:1",
        "http://proxy:2",
        None,
    ]


async def test_a_held_response_runs_over_websocket() -> None:
    tools = [function_tool("look", parameters={"type": "object"})]
    async with asyncio.timeout(BOUND), serving() as site, connect(site.address, options=QUICK) as session:
        stream = await session.create(model="m", input="Look there", tools=tools, hold=True)
        async for call in stream.calls():
            await stream.append(function_call_output(call.call_id, "nothing"))
        response = await stream.get_final_response()
        assert stream.output_text == "Found it."
        assert await session.ping() > 0
        assert (await session.get_response(response.id)).id == response.id
        assert [model.id for model in await session.list_models()] == ["m"]
        await session.delete_response(response.id)
        with pytest.raises(RequestRejectedError) as caught:
            await session.get_response(response.id)
        assert (caught.value.code, caught.value.param) == ("response_not_found", "response_id")


async def test_a_response_that_only_its_session_has_is_found_over_websocket_too() -> None:
    async with asyncio.timeout(BOUND), serving() as site, connect(site.address, options=QUICK) as session:
        stream = await session.create(model="m", input="x", store=False)
        whole = await stream.get_final_response()
        assert (await session.get_response(whole.id)).output == whole.output
        async with connect(site.address, options=QUICK) as other:
            with pytest.raises(RequestRejectedError) as caught:
                await other.get_response(whole.id)
        assert caught.value.code == "response_not_found"


async def test_many_lanes_share_one_socket() -> None:
    async with asyncio.timeout(BOUND), serving() as site, connect(site.address, options=QUICK) as session:

        async def run(lane: str) -> str:
            stream = await session.create(model="m", input="x", lane=lane)
            return "".join([text async for text in stream.text_deltas()])

        assert set(await asyncio.gather(*(run(f"l{n}") for n in range(50)))) == {"Found it."}
        assert len(site.room) == 1


async def test_one_shot_methods_need_no_session() -> None:
    async with asyncio.timeout(BOUND), serving() as site, Client(site.address, options=QUICK) as client:
        response = await client.rpc.create_response(model="m", input="x")
        assert response.output[0].message.content.parts.parts[0].output_text.text == "Found it."
        assert await client.rpc.count_input_tokens(model="m", input="one two") > 0
        with pytest.raises(RequestRejectedError) as caught:
            await client.rpc.create_response(model="m", input="x", temperature=9)
        assert (caught.value.code, caught.value.param) == ("invalid_value", "temperature")
        assert (await client.rpc.get_capabilities()).features


async def test_one_shot_methods_stream() -> None:
    async with asyncio.timeout(BOUND), serving() as site, Client(site.address, options=QUICK) as client:
        kinds = [event.kind async for event in client.rpc.stream_response(model="m", input="x")]
        assert (kinds[0], kinds[-1]) == ("created", "done")
        whole = await client.rpc.stream_response(model="m", input="x").get_final_response()
        assert whole.output[0].message.content.parts.parts[0].output_text.text == "Found it."
        with pytest.raises(RequestRejectedError) as caught:
            await client.rpc.stream_response(model="m", input="x", temperature=9).get_final_response()
        assert (caught.value.code, caught.value.param) == ("invalid_value", "temperature")
        await site.room.idle()


async def test_a_background_response_can_be_left_and_followed() -> None:
    async with asyncio.timeout(BOUND), serving() as site, Client(site.address, options=QUICK) as client:
        made = await client.rpc.create_response(model="m", input="x", background=True)
        numbers = [event.sequence_number async for event in client.rpc.follow_response(made.id)]
        assert numbers == list(range(len(numbers)))
        left = client.rpc.stream_response(model="m", input="x", background=True)
        async for event in left:
            assert event.kind == "created"
            break
        left.cancel()
        assert await client.rpc.follow_response(made.id, starting_after=2).get_final_response()
        await site.room.background.aclose()


async def test_a_stream_that_is_cancelled_frees_its_response() -> None:
    async with asyncio.timeout(BOUND), serving() as site, Client(site.address, options=QUICK) as client:
        stream = client.rpc.stream_response(model="m", input="x")
        async for _ in stream:
            stream.cancel()
            break
        await site.room.idle()
        stream = client.rpc.stream_response(model="m", input="x")
        stream.cancel()
        with pytest.raises(RpcFailedError, match="cancelled"):
            await stream.get_final_response()


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (b"\x00\x00\x00\x00\x09short", ProtocolError),
        (b"\x00\x00\x00\x00\x02\xff\xff", ProtocolError),
        (b"\x07\x00\x00\x00\x00", ProtocolError),
        (b"\x00\xff\xff\xff\xff", RpcFailedError),
        (b"\x01\x00\x00\x00\x00", RequestRejectedError),
    ],
)
async def test_what_is_no_stream_of_ours_is_refused(body: bytes, failure: type[Exception]) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/vnd.turnwire.frames")

    async with asyncio.timeout(BOUND), strange(answer) as address, Client(address, options=QUICK) as client:
        with pytest.raises(failure):
            await client.rpc.stream_response(model="m", input="x").get_final_response()


async def test_a_stream_that_is_cut_off_is_lost() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "application/vnd.turnwire.frames"
        await response.prepare(request)
        await response.write(b"\x00\x00\x00\x00\x00")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with asyncio.timeout(BOUND), strange(answer) as address, Client(address, options=QUICK) as client:
        with pytest.raises(RpcFailedError) as caught:
            await client.rpc.stream_response(model="m", input="x").get_final_response()
        assert caught.value.status == "UNAVAILABLE"


async def test_a_key_is_sent_and_its_absence_explained() -> None:
    async with asyncio.timeout(BOUND), serving("anna:key-of-anna-1234\n") as site:
        with pytest.raises(AuthenticationError):
            await connect(site.address, options=QUICK)
        async with Client(site.address, options=QUICK) as client:
            with pytest.raises(AuthenticationError):
                await client.rpc.list_models()
        async with connect(site.address, api_key="key-of-anna-1234", options=QUICK) as session:
            assert await session.list_models()


async def test_wss_trusts_the_authority_it_is_told_to() -> None:
    authority: Any = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ChannelOptions(root_certificates=authority.cert_pem.bytes(), connect_timeout=BOUND)
    async with asyncio.timeout(BOUND), serving(tls=context) as site:
        async with connect(site.address, options=trusting) as session:
            assert await session.list_models()
        with pytest.raises(ConnectError, match="no authority that is trusted here"):
            await connect(site.address, options=QUICK)


async def test_wss_expects_another_name_where_told_and_shows_a_certificate() -> None:
    authority: Any = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("server.internal").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = authority.issue_cert("me@example.org")
    options = ChannelOptions(
        root_certificates=authority.cert_pem.bytes(),
        client_certificate=b"".join(pem.bytes() for pem in mine.cert_chain_pems),
        client_key=mine.private_key_pem.bytes(),
        server_name="server.internal",
    )
    async with asyncio.timeout(BOUND), serving(tls=context) as site, connect(site.address, options=options) as session:
        assert await session.list_models()


@pytest.mark.parametrize(
    "options",
    [
        ChannelOptions(root_certificates=b"no certificate"),
        ChannelOptions(root_certificates="ü".encode()),
        ChannelOptions(client_certificate=b"no certificate", client_key=b"no key"),
    ],
)
def test_certificates_that_cannot_be_read_are_refused(options: ChannelOptions) -> None:
    with pytest.raises(ValueError, match="ChannelOptions cannot be read"):
        tls_of(options)


async def test_nobody_listening_is_said_plainly() -> None:
    with pytest.raises(ConnectError, match=r"cannot reach ws://127\.0\.0\.1:1: .*check the address"):
        await connect("ws://127.0.0.1:1", options=QUICK)
    async with Client("ws://127.0.0.1:1", options=QUICK) as client:
        with pytest.raises(RpcFailedError, match="UNAVAILABLE"):
            await client.rpc.list_models()


@pytest.mark.parametrize(
    ("status", "body", "error", "says"),
    [
        (404, "", ConnectError, "does not speak turnwire.v1: the answer was HTTP 404"),
        (426, "", ConnectError, "does not speak turnwire.v1: the answer was HTTP 426"),
        (502, "<html>", ConnectError, "cannot reach .*HTTP 502"),
        (418, "", ConnectError, "opened no session: UNKNOWN: the answer was HTTP 418"),
        (401, "", AuthenticationError, "wants an API key"),
        (403, "x" * 100_000, ConnectError, "more than 65536 bytes"),
        (
            429,
            '{"error":{"message":"too many","type":"t","code":"too_many_connections"}}',
            RequestRejectedError,
            "many",
        ),
    ],
)
async def test_an_upgrade_that_is_refused_says_why(status: int, body: str, error: type[Exception], says: str) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        kind = "application/json" if body.startswith("{") else "text/html"
        return web.Response(status=status, text=body, content_type=kind)

    async with asyncio.timeout(BOUND), strange(refuse) as address:
        with pytest.raises(error, match=says):
            await connect(address, options=QUICK)


async def test_a_server_without_the_subprotocol_is_said_plainly() -> None:
    async with asyncio.timeout(BOUND), strange(socket_that(lambda socket: socket.close(), "other")) as address:
        with pytest.raises(ConnectError, match="did not choose the subprotocol"):
            await connect(address, options=QUICK)


async def test_an_answer_that_never_comes_is_given_up() -> None:
    options = ChannelOptions(connect_timeout=0.05, close_timeout=0.05)
    async with asyncio.timeout(BOUND), strange(socket_that(lambda socket: socket.receive())) as address:
        with pytest.raises(ConnectError, match="opened no session within"):
            await connect(address, options=options)


def last_words(code: str, message: str) -> bytes:
    rejected = RequestRejected(error=make_error(code, message))
    return ConnectResponse(first_event_id=1, events=[ServerEvent(rejected=rejected)]).SerializeToString()


@pytest.mark.parametrize(
    ("messages", "code", "reason", "cause", "says"),
    [
        ([last_words("slow_consumer", "too slow")], 1008, "slow_consumer", RequestRejectedError, "too slow"),
        ([last_words("invalid_api_key", "no more")], 1008, "invalid_api_key", AuthenticationError, "no more"),
        ([last_words("slow_consumer", "x")], 1011, "other", RpcFailedError, "INTERNAL: other .*1011"),
        ([], 1009, "", RpcFailedError, "RESOURCE_EXHAUSTED"),
        ([], 1001, "gone", RpcFailedError, "UNAVAILABLE: gone"),
        ([b"\xff\xff"], 1000, "", ProtocolError, "no ConnectResponse"),
        (["text"], 1000, "", ProtocolError, "binary messages only"),
        ([b"x" * 20_000], 1000, "", RpcFailedError, "RESOURCE_EXHAUSTED"),
    ],
)
async def test_the_end_of_a_socket_says_what_a_status_would(
    messages: list[bytes | str], code: int, reason: str, cause: type[Exception], says: str
) -> None:
    async def act(socket: web.WebSocketResponse) -> None:
        for message in messages:
            await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))
        await socket.close(code=code, message=reason.encode())

    options = ChannelOptions(connect_timeout=BOUND, max_message_bytes=10_000)
    async with asyncio.timeout(BOUND), strange(socket_that(act)) as address:
        with pytest.raises(TurnwireError) as caught:
            await connect(address, options=options)
        # What a session is lost by is the cause of its loss.
        found = caught.value if isinstance(caught.value, cause) else caught.value.__cause__
        assert isinstance(found, cause)
        assert re.search(says, str(found))


async def test_a_socket_that_breaks_is_a_loss() -> None:
    sockets: list[web.WebSocketResponse] = []

    async def act(socket: web.WebSocketResponse) -> None:
        opened = ServerEvent(opened=SessionOpened(session_id="sess_1"))
        await socket.send_bytes(ConnectResponse(first_event_id=1, events=[opened]).SerializeToString())
        sockets.append(socket)
        while (await socket.receive()).type is WSMsgType.BINARY:
            transport: Any = socket._req.transport if socket._req else None  # pyright: ignore[reportPrivateUsage]
            transport.abort()

    async with asyncio.timeout(BOUND), strange(socket_that(act)) as address, connect(address, options=QUICK) as session:
        with pytest.raises(SessionLost) as caught:
            await session.create(model="m", input="x")
        assert caught.value.reason == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("status", "kind", "body", "says"),
    [
        (200, "application/proto", b"\xff\xff", "no message of turnwire.v1"),
        (200, "application/proto", b"x" * 20_000, "more than 10000 bytes"),
        (500, "application/proto", b"\xff\xff", "UNKNOWN: the answer was HTTP 500"),
        (503, "text/html", b"<html>", "UNAVAILABLE"),
        (302, "text/html", b"", "HTTP 302"),
        (400, "application/json", b'{"error":{"message":"plain","code":"invalid_value","param":"input"}}', "plain"),
        (400, "application/json", b"{}", "INTERNAL"),
    ],
)
async def test_strange_answers_to_one_shot_methods_are_clear_errors(
    status: int, kind: str, body: bytes, says: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, content_type=kind, headers={"location": "/elsewhere"})

    options = ChannelOptions(max_message_bytes=10_000)
    async with asyncio.timeout(BOUND), strange(answer) as address, Client(address, options=options) as client:
        with pytest.raises((RpcFailedError, ProtocolError, RequestRejectedError), match=says):
            await client.rpc.list_models()


async def test_a_client_that_was_closed_says_so() -> None:
    async with asyncio.timeout(BOUND), serving() as site:
        async with Client(site.address) as client:
            pass
        with pytest.raises(RpcFailedError, match="closed"):
            await client.rpc.list_models()


def test_a_missing_package_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ImportError, match=r"pip install 'turnwire\[websocket\]'"):
        check_address("ws://host")
    check_address("grpc://host")
