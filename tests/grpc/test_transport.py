"""Addresses, TLS, headers, keepalive, reflection: what gRPC itself brings, switched on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme
from grpc_reflection.v1alpha import reflection_pb2

from turnwire.server.doors.grpc.options import GrpcOptions
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.session_pb2 import Ping

if TYPE_CHECKING:
    from tests.grpc.conftest import Door, Doors


async def test_a_unix_socket_serves_like_a_port(open_door: Doors, tmp_path: Path) -> None:
    door = await open_door(address=f"unix:{tmp_path / 't.sock'}")
    await door.completes(door.connect())
    await door.server.stop(0)
    # Whoever comes next can bind it.
    await (again := await open_door(address=door.address)).completes(again.connect())


async def test_a_port_that_is_taken_cannot_be_bound(door: Door) -> None:
    with pytest.raises(RuntimeError):
        door.server.listen(door.address)


def _server_credentials(authority: trustme.CA, *, clients: bool) -> grpc.ServerCredentials:
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    pair = (certificate.private_key_pem.bytes(), b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    roots = authority.cert_pem.bytes() if clients else None
    return grpc.ssl_server_credentials([pair], roots, require_client_auth=clients)


def _client_credentials(authority: trustme.CA, issuer: trustme.CA | None = None) -> grpc.ChannelCredentials:
    if issuer is None:
        return grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    certificate = issuer.issue_cert("client@example.org")
    return grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(), certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes()
    )


async def test_tls_lets_in_who_trusts_the_certificate(open_door: Doors) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    door = await open_door(credentials=_server_credentials(authority, clients=False))

    trusting = door.new_channel(credentials=_client_credentials(authority))
    await door.completes(door.connect(channel=trusting))
    for channel in (door.new_channel(credentials=_client_credentials(stranger)), door.new_channel()):
        assert (await door.connect(channel=channel).ended()).code is grpc.StatusCode.UNAVAILABLE
    await door.completes(door.connect(channel=trusting))


async def test_mutual_tls_lets_in_who_shows_a_certificate(open_door: Doors) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    door = await open_door(credentials=_server_credentials(authority, clients=True))

    known = door.new_channel(credentials=_client_credentials(authority, issuer=authority))
    await door.completes(door.connect(channel=known))
    for credentials in (_client_credentials(authority), _client_credentials(authority, issuer=stranger)):
        channel = door.new_channel(credentials=credentials)
        assert (await door.connect(channel=channel).ended()).code is grpc.StatusCode.UNAVAILABLE


async def test_odd_headers_are_tolerated(door: Door) -> None:
    peer = door.connect(
        ("authorization", "Nothing at all"),
        ("authorization", ""),
        ("x-trace-bin", bytes(range(256))),
        ("te", "trailers"),
        ("grpc-accept-encoding", "x-unheard-of"),
        ("x-empty", ""),
        *((f"x-{number}", "v" * 50) for number in range(40)),
    )
    await door.completes(peer)


async def test_headers_over_the_limit_end_their_stream_and_no_other(door: Door) -> None:
    other = door.connect()
    await other.create("a")
    ended = await door.connect(("x-large", "v" * 100_000)).ended()
    assert ended.code is not grpc.StatusCode.OK
    await door.completes(other)


async def test_a_compressed_request_is_understood(door: Door) -> None:
    channel: Any = door.new_channel()
    method = channel.stream_stream("/turnwire.v1.ResponsesService/Connect")
    call = method(compression=grpc.Compression.Gzip)
    await call.write(ConnectRequest(ping=Ping(nonce=7)).SerializeToString())
    assert isinstance(await call.read(), bytes)


def test_a_thinking_model_is_not_killed_by_pings() -> None:
    arguments = dict(GrpcOptions(keepalive_time=1.5, min_client_ping_interval=0.25).channel_args())
    # Without strikes a client may ping as it likes; the default of two kills it after minutes of silence.
    assert arguments["grpc.http2.max_ping_strikes"] == 0
    assert arguments["grpc.http2.min_ping_interval_without_data_ms"] == 250
    assert (arguments["grpc.keepalive_time_ms"], arguments["grpc.keepalive_permit_without_calls"]) == (1500, 1)


_PING, _GOAWAY = 6, 7


def _frame(kind: int, payload: bytes = b"") -> bytes:
    """Builds a frame of HTTP/2 on stream 0."""
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload


async def test_a_client_that_pings_through_a_long_silence_is_not_sent_away(door: Door) -> None:
    host, _, port = door.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4))
    async with asyncio.timeout(5):
        for _ in range(20):
            writer.write(_frame(_PING, b"thinking"))
            answered = False
            while not answered:
                head = await reader.readexactly(9)
                await reader.readexactly(int.from_bytes(head[:3], "big"))
                assert head[3] != _GOAWAY
                answered = head[3] == _PING and head[4] == 1
    writer.close()
    await writer.wait_closed()


async def test_reflection_lists_the_services_and_describes_them(door: Door) -> None:
    channel: Any = door.channel
    call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")()
    request = reflection_pb2.ServerReflectionRequest
    await call.write(request(list_services="").SerializeToString())
    listed = reflection_pb2.ServerReflectionResponse.FromString(await call.read())
    assert {service.name for service in listed.list_services_response.service} == {
        "turnwire.v1.ResponsesService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    await call.write(request(file_containing_symbol="turnwire.v1.ResponsesService").SerializeToString())
    described = reflection_pb2.ServerReflectionResponse.FromString(await call.read())
    assert described.file_descriptor_response.file_descriptor_proto
    await call.write(request(file_containing_symbol="turnwire.v1.Nothing").SerializeToString())
    unknown = reflection_pb2.ServerReflectionResponse.FromString(await call.read())
    assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
