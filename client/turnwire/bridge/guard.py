"""Who is let in: programs on this machine, not web pages that its user happens to look at.

Above it: `app`. Below it: nothing. A bridge asks for no key, and may show one of its own. Any page can send requests to
127.0.0.1 and open WebSockets there; browsers then say whose page it is in `Origin`. A page whose name was made to lead
to 127.0.0.1 is known by the name in `Host`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from turnwire.server.address import Address
from turnwire.v1.errors import reject
from turnwire.v1.json.refusal import shown


def check_origin(headers: Mapping[str, str], addresses: Sequence[Address]) -> None:
    """Checks the head of a request.

    Args:
        headers: Of the request, found whatever their case.
        addresses: Where the bridge listens. Where others may reach one of them, any name may lead there.

    Raises:
        RequestError: It comes from a web page.
    """
    if "origin" in headers:
        message = f"Web pages are not served by a bridge: this one is of '{shown(headers['origin'])}'."
        raise reject("invalid_request_error", message)
    host = headers.get("host")
    sockets = [address for address in addresses if not address.path]
    if host and sockets and not any(address.public for address in sockets) and not _is_local(host):
        message = f"'{shown(host)}' is no name of this machine: use 127.0.0.1 or localhost."
        raise reject("invalid_request_error", message)


def _is_local(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return not Address(name).public
