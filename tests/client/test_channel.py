"""Addresses and channel settings."""

from __future__ import annotations

import pytest

from turnwire.client import ChannelOptions
from turnwire.client._channel import Address, channel_arguments, parse_address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:50051", Address("localhost:50051", tls=False)),
        ("localhost", Address("localhost:50051", tls=False)),
        ("grpc://host:1/", Address("host:1", tls=False)),
        ("grpcs://host", Address("host:443", tls=True)),
        ("grpcs://host:8443", Address("host:8443", tls=True)),
        ("unix:/run/turnwire.sock", Address("unix:/run/turnwire.sock", tls=False)),
        ("unix:///run/turnwire.sock", Address("unix:///run/turnwire.sock", tls=False)),
        ("[::1]:50051", Address("[::1]:50051", tls=False)),
        ("[::1]", Address("[::1]:50051", tls=False)),
    ],
)
def test_addresses_are_read(address: str, expected: Address) -> None:
    assert parse_address(address) == expected


@pytest.mark.parametrize("address", ["", "https://host", "grpc://", "grpc://host/path", "ws://host:1"])
def test_other_addresses_are_refused_with_what_to_write(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(address)


def test_each_channel_has_a_connection_of_its_own_and_survives_silence() -> None:
    arguments = dict(channel_arguments(ChannelOptions()))
    assert arguments["grpc.use_local_subchannel_pool"] == 1
    assert arguments["grpc.keepalive_time_ms"] == 30_000
    assert arguments["grpc.keepalive_permit_without_calls"] == 1
    assert arguments["grpc.max_receive_message_length"] == 32 * 1024 * 1024


def test_further_arguments_win() -> None:
    options = ChannelOptions(server_name="other", extra=(("grpc.keepalive_time_ms", 5),))
    arguments = dict(channel_arguments(options))
    assert arguments["grpc.keepalive_time_ms"] == 5
    assert arguments["grpc.ssl_target_name_override"] == "other"
