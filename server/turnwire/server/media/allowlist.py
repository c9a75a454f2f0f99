"""Which hosts images may be fetched from.

Above it: `fetch`, and the settings that hold patterns. Below it: nothing. A name on the list says that its owner is
trusted with the requests, not that its addresses are: those are checked each time, see `addresses`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_NAME: Final = r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?"
_PATTERN: Final = re.compile(rf"(\*|\[[0-9a-f:.]+\]|(?:\*\.)?{_NAME})(?::([0-9]{{1,5}}))?")
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HostPattern:
    """A host, or all below a domain."""

    host: str
    """In lower case: a name, `*.` and a domain for all names below it, or `*` for any."""
    port: int | None = None
    """None for the usual one of the scheme."""

    def matches(self, scheme: str, host: str, port: int) -> bool:
        """Whether it stands for a host.

        Args:
            scheme: `http` or `https`.
            host: As it is looked up: in lower case, international names encoded.
            port: Where it is asked.
        """
        if port != (_PORTS[scheme] if self.port is None else self.port):
            return False
        if self.host == "*":
            return True
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) >= len(self.host)
        return host == self.host

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


def parse_pattern(text: str) -> HostPattern:
    """Reads a pattern such as `images.example.com`, `*.example.com`, `example.com:8443` or `*`.

    Raises:
        ValueError: It is none.
    """
    match = _PATTERN.fullmatch(text.lower())
    port = int(match[2]) if match and match[2] else None
    if match is None or ".." in match[1] or (port is not None and not 0 < port < 65_536):
        msg = f"expected a host such as images.example.com, *.example.com or example.com:8443, found {text!r}"
        raise ValueError(msg)
    return HostPattern(match[1].strip("[]"), port)


def allowed(patterns: Iterable[HostPattern], scheme: str, host: str, port: int) -> bool:
    """Whether one of the patterns stands for a host; see `HostPattern.matches`."""
    return any(pattern.matches(scheme, host, port) for pattern in patterns)
