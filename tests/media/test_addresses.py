"""Which hosts and addresses a URL of a client may lead to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.media.addresses import PublicOnly, read_address
from turnwire.server.media.allowlist import allowed, parse_pattern

FORBIDDEN = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001:db8::1",
    "2001::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_what_is_not_everybodys_is_not_connected_to(text: str) -> None:
    address = read_address(text)
    assert address is not None
    assert not PublicOnly().allows(address)


@pytest.mark.parametrize(
    "text", ["1.1.1.1", "8.8.8.8", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_what_is_public_is(text: str) -> None:
    assert PublicOnly().allows(ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_address_within_another_is_judged_like_itself(address: object) -> None:
    inner = ip_address(str(address))
    policy = PublicOnly()
    assert policy.allows(ip_address(f"::ffff:{inner}")) == policy.allows(inner)
    assert policy.allows(ip_address(int(ip_address("64:ff9b::")) + int(inner))) == policy.allows(inner)


@pytest.mark.parametrize(
    ("pattern", "scheme", "host", "port", "is_allowed"),
    [
        ("a.com", "https", "a.com", 443, True),
        ("A.com", "http", "a.com", 80, True),
        ("a.com", "https", "a.com", 8443, False),
        ("a.com", "http", "a.com", 443, False),
        ("a.com:8443", "https", "a.com", 8443, True),
        ("a.com:8443", "https", "a.com", 443, False),
        ("a.com", "https", "b.a.com", 443, False),
        ("a.com", "https", "xa.com", 443, False),
        ("*.a.com", "https", "b.a.com", 443, True),
        ("*.a.com", "https", "c.b.a.com", 443, True),
        ("*.a.com", "https", "a.com", 443, False),
        ("*.a.com", "https", "xa.com", 443, False),
        ("*.a.com", "https", ".a.com", 443, False),
        ("*", "https", "anything", 443, True),
        ("*", "https", "anything", 22, False),
        ("[2606:4700::1]:8080", "http", "2606:4700::1", 8080, True),
    ],
)
def test_a_pattern_stands_for_hosts(pattern: str, scheme: str, host: str, port: int, is_allowed: bool) -> None:
    assert allowed([parse_pattern(pattern)], scheme, host, port) is is_allowed
    assert not allowed([], scheme, host, port)


@pytest.mark.parametrize(
    "text", ["", "http://a.com", "a.com/x", "*a.com", "a.*.com", "a..com", "a.com:0", "a.com:70000"]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a host"):
        parse_pattern(text)
