"""Which addresses may be connected to when a client names a URL: public ones, whatever DNS says.

Above it: `fetch`. Below it: nothing. A server that fetches what strangers name can be made to ask its own network, or
the metadata service of its cloud, in their stead (server-side request forgery); the only safe place to refuse that is
the very address that is connected to.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Protocol

Address = IPv4Address | IPv6Address

_NAT64: Final = IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = IPv6Network("::/96")
_REFUSED: Final = tuple(
    ip_network(network)
    for network in (
        "168.63.129.16/32",  # the host of an Azure machine, in the public range
        "192.0.0.0/24",  # assigned by protocols; the metadata of an Oracle machine stands there, which some call global
        "192.88.99.0/24",  # relays of 6to4
        "fec0::/10",  # site-local, deprecated and still routed by some
        "64:ff9b:1::/48",  # translation within a site
        "2001:db8::/32",
    )
)
"""Refused beside what the registries call not global."""


class AddressPolicy(Protocol):
    """Decides about addresses."""

    def allows(self, address: Address, /) -> bool:
        """Whether an address may be connected to."""
        ...


class PublicOnly:
    """Allows what everybody can reach, and thus tells no stranger anything that they could not ask themselves."""

    def allows(self, address: Address) -> bool:
        """Whether an address is public, and whatever IPv4 address it carries is, too."""
        return all(_public(each) for each in _all_of(address))


def read_address(text: str) -> Address | None:
    """Reads an address, its zone left out; None where it is a name."""
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _public(address: Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not any(address in network for network in _REFUSED if network.version == address.version)
    )


def _all_of(address: Address) -> Iterator[Address]:
    """Yields an address, or what stands for it: networks translate some to the IPv4 address inside."""
    if isinstance(address, IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
        return
    if address in _NAT64:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _COMPATIBLE:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
