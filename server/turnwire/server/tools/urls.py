"""Beginnings of URLs that may be called: compared part by part, since text alone deceives.

Above: the tools file and the resolution of declared servers. Below: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class UrlPrefix:
    """A scheme, a host, a port and the beginning of a path."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> UrlPrefix | None:
        """Returns the parts of a URL, None where it is none that may be called: user names, dots that climb and
        characters that clients read differently are refused."""
        if any(ord(char) <= 32 or ord(char) > 126 or char == "\\" for char in url):
            return None
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError:
            return None
        if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc or parts.fragment:
            return None
        path = unquote(unquote(parts.path)) or "/"
        if "\\" in path or any(step in (".", "..") for step in path.split("/")):
            return None
        return cls(parts.scheme, parts.hostname.rstrip("."), port, parts.path or "/")

    def covers(self, other: UrlPrefix) -> bool:
        """Whether another URL begins with this one, whole path steps counted."""
        if (self.scheme, self.host, self.port) != (other.scheme, other.host, other.port):
            return False
        steps = self.path.rstrip("/")
        return other.path == self.path or other.path == steps or other.path.startswith(f"{steps}/")


def permitted(url: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a URL begins with one that the operator allows."""
    wanted = UrlPrefix.parse(url)
    allowed = (UrlPrefix.parse(prefix) for prefix in prefixes)
    return wanted is not None and any(prefix is not None and prefix.covers(wanted) for prefix in allowed)
