"""Where a server listens: TCP addresses and Unix sockets, read from the words of a command line.

Above it: the configuration, the doors and the metrics endpoint. Below it: nothing.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FORMS: Final = "expected HOST:PORT, unix:PATH or off"
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_MAX_SOCKET_PATH: Final = 107  # bytes of sun_path on Linux, less its end


@dataclass(frozen=True, slots=True)
class Address:
    """One place to listen at: a TCP host and port, or a Unix socket."""

    host: str = ""
    """Name or IP address, IPv6 without brackets; empty for a Unix socket."""
    port: int = 0
    """0 lets the system pick a free one."""
    path: str = ""
    """File of the Unix socket; empty for TCP."""

    def __str__(self) -> str:
        """Writes it as it is read, which is also how gRPC wants it."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def public(self) -> bool:
        """Whether others than this machine may reach it; a name other than localhost counts as public."""
        if self.path or self.host.lower() == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True

    def bound_to(self, port: int) -> Address:
        """Returns this address with the port that the system picked."""
        return Address(self.host, port, self.path)

    def relative_to(self, folder: Path) -> Address:
        """Returns this address with a relative socket path put under a folder."""
        return Address(path=os.path.normpath(folder / self.path)) if self.path else self


def parse_address(text: str) -> Address | None:
    """Reads `HOST:PORT`, `[IPV6]:PORT`, `unix:PATH`, or `off`, which gives None.

    Raises:
        ValueError: It is none of these; the text says what was expected.
    """
    text = text.strip()
    if text.lower() == "off":
        return None
    if text.startswith("unix:"):
        return _socket(text.removeprefix("unix:"))
    if "://" in text:
        msg = f"{_FORMS}, found the URL '{text}'"
        raise ValueError(msg)
    host, colon, port = text.rpartition(":")
    if not colon:
        msg = f"{_FORMS}, found '{text}'; " + ("the port is missing" if not text.isdigit() else "the host is missing")
        raise ValueError(msg)
    return Address(_host(host, text), _port(port, text))


def _host(host: str, text: str) -> str:
    if not host:
        msg = f"{_FORMS}, found '{text}'; say 127.0.0.1{text} for this machine only or 0.0.0.0{text} for everybody"
        raise ValueError(msg)
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            msg = f"{_FORMS}, found '{text}'; '{host}' is not an IPv6 address"
            raise ValueError(msg) from None
        if not bracketed:
            msg = f"{_FORMS}, found '{text}'; put an IPv6 address in brackets, such as [::1]:50051"
            raise ValueError(msg)
    elif bracketed or not _HOST.fullmatch(host):
        msg = f"{_FORMS}, found '{text}'; '{host}' is not a host"
        raise ValueError(msg)
    return host


def _port(port: str, text: str) -> int:
    if not (port.isascii() and port.isdigit() and len(port) <= 5) or int(port) > 65535:
        msg = f"{_FORMS}, found '{text}'; the port is a number from 0 (pick a free one) to 65535"
        raise ValueError(msg)
    return int(port)


def _socket(path: str) -> Address:
    # unix:///run/x is how gRPC writes unix:/run/x as a URI.
    path = path.removeprefix("//") if path.startswith("///") else path
    if not path:
        msg = f"{_FORMS}, found 'unix:' without a path"
        raise ValueError(msg)
    path = os.path.expanduser(path)
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        msg = f"the socket path '{path}' is longer than {_MAX_SOCKET_PATH} bytes"
        raise ValueError(msg)
    return Address(path=path)
