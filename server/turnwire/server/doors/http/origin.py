"""Which web pages are let in: any page can send requests to 127.0.0.1, and open WebSockets there without being asked.

Above it: `server`, and who opens doors. Below it: nothing. Browsers say whose page it is in `Origin`; programs say
nothing, or the server's own address. A page whose name was made to lead to 127.0.0.1 is known by the name in `Host`.
What browsers ask before they send a request, and what they want to hear with its answer, is the Fetch standard's CORS.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from turnwire.server.address import Address
from turnwire.v1.errors import reject
from turnwire.v1.json.refusal import shown

ANY: Final = "*"
"""Stands for every origin."""

_METHODS: Final = "GET, POST, DELETE"
_TOLD: Final = "x-request-id, retry-after, retry-after-ms, x-should-retry"
"""Headers of answers that pages may read."""
_PREFLIGHT_AGE: Final = "600"
"""Seconds for which a browser need not ask again."""


def read_origin(text: str) -> str:
    """Reads an origin, `https://HOST` or `http://HOST:PORT`, or `*`; returns it as browsers write it.

    Raises:
        ValueError: It is neither.
    """
    if text == ANY:
        return text
    try:
        url = urlsplit(text)
        host, port = url.hostname or "", url.port
    except ValueError:
        host, port, url = "", None, urlsplit("")
    if url.scheme not in ("http", "https") or not host or url.username is not None or url.path.strip("/"):
        msg = f"expected an origin such as https://app.example or http://localhost:3000, found '{text}'"
        raise ValueError(msg)
    name = f"[{host}]" if ":" in host else host
    default = port in (None, 443 if url.scheme == "https" else 80)
    return f"{url.scheme}://{name}" + ("" if default else f":{port}")


class Origins:
    """Decides by the head of a request, before anything else of it is looked at."""

    def __init__(self, allowed: Collection[str] = (), *, keys: bool, addresses: Sequence[Address] = ()) -> None:
        """Takes who may come.

        Args:
            allowed: Origins whose pages are let in and may read answers, as `read_origin` returns them.
            keys: Whether every caller has to show a key; pages do not have one by themselves, and are then let in.
            addresses: Where the door listens. Where others may reach one of them, any name may lead there.
        """
        self._allowed: Final = frozenset(allowed)
        self._keys: Final = keys
        sockets = [address for address in addresses if not address.path]
        self._local_names_only: Final = bool(sockets) and not any(address.public for address in sockets)

    def check(self, headers: Mapping[str, str]) -> None:
        """Checks the head of a request, whose headers are found whatever their case.

        Raises:
            RequestError: It comes from a web page that is not let in.
        """
        if self._keys:
            return
        host = headers.get("host", "")
        if host and self._local_names_only and not _is_local(host):
            message = f"'{shown(host)}' is no name of this machine: use 127.0.0.1 or localhost."
            raise reject("invalid_request_error", message)
        origin = headers.get("origin")
        if origin is None or self._allows(origin) or _is_own(origin, host):
            return
        message = f"Pages of '{shown(origin)}' are not let in here."
        raise reject("invalid_request_error", message)

    def preflight(self, method: str, headers: Mapping[str, str]) -> dict[str, str] | None:
        """Returns the headers of the answer to a browser that asks whether it may send a page's request; None for any
        other request, and for pages that may not."""
        answered = self.answered(headers)
        if method != "OPTIONS" or "access-control-request-method" not in headers or len(answered) < 2:
            return None
        answer = {
            **answered,
            "access-control-allow-methods": _METHODS,
            "access-control-max-age": _PREFLIGHT_AGE,
        }
        # SDKs send headers of their own, and none does harm here.
        if wanted := headers.get("access-control-request-headers"):
            answer["access-control-allow-headers"] = wanted
        if headers.get("access-control-request-private-network") == "true":
            answer["access-control-allow-private-network"] = "true"
        return answer

    def answered(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Returns what answers to a request have to say so that its page may read them; nothing for other pages."""
        if not self._allowed:
            return {}
        origin = headers.get("origin")
        if origin is None or not self._allows(origin):
            return {"vary": "Origin"}
        return {"access-control-allow-origin": origin, "access-control-expose-headers": _TOLD, "vary": "Origin"}

    def _allows(self, origin: str) -> bool:
        return origin in self._allowed or ANY in self._allowed


def _is_own(origin: str, host: str) -> bool:
    """Tells whether an origin is the address that the request went to."""
    scheme, separator, name = origin.partition("://")
    return bool(host and separator) and scheme in ("http", "https", "ws", "wss") and name.lower() == host.lower()


def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return not Address(name).public
