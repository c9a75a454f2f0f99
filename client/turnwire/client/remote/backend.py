"""The port behind the official shapes, over a server reached by its address.

Above it: `HttpApi` and the WebSocket doors, in a bridge or under an official SDK. Below it: one shared session for each
key, and links.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from turnwire.client._dial import check_address, open_transport
from turnwire.client.remote.caller import RemoteCaller
from turnwire.client.remote.link import RemoteLink
from turnwire.client.remote.options import RemoteOptions
from turnwire.client.remote.shared import SharedSession
from turnwire.v1.errors import RequestError, make_error, reject
from turnwire.v1.session_pb2 import SessionOpen

# What gRPC's metadata and an HTTP header carry alike.
_HEADER: Final = re.compile(r"[\x20-\x7e]{1,8192}")


class RemoteBackend:
    """A server elsewhere. Connects when it is first asked for something; belongs to the event loop it is used on."""

    def __init__(self, address: str, options: RemoteOptions | None = None) -> None:
        """Takes where the server is, in the forms `turnwire.client.connect` takes, and the settings.

        Raises:
            ValueError: The address cannot be read.
        """
        check_address(address)
        self.address: Final = address
        self._options: Final = options or RemoteOptions()
        # The one used most recently stands last.
        self._shared: Final[dict[str | None, SharedSession]] = {}
        self._links: Final[set[RemoteLink]] = set()
        self._closing: Final[set[asyncio.Task[None]]] = set()
        self._closed = False

    def caller(self, authorization: str | None) -> RemoteCaller:
        """Returns what the holder of an `Authorization` header may do. The header goes on to the server as it is.

        Raises:
            RequestError: `invalid_api_key` for a header that cannot be passed on, `too_many_connections`, or
                `session_closing` after `aclose`.
        """
        if self._closed:
            raise reject("session_closing", "The client was closed.")
        metadata: Sequence[tuple[str, str]] = ()
        if authorization is not None:
            if not _HEADER.fullmatch(authorization):
                raise reject("invalid_api_key", "The Authorization header holds more than visible ASCII characters.")
            metadata = (("authorization", authorization),)
        shared = self._shared.pop(authorization, None)
        if shared is None:
            self._make_room()
            shared = SharedSession(self.address, metadata, self._options)
        self._shared[authorization] = shared
        return RemoteCaller(shared, metadata, self._link)

    async def aclose(self) -> None:
        """Ends all sessions. Idempotent. Cancelling it leaves connections to the garbage collector."""
        self._closed = True
        for link in self._links:
            link.close()
        links = [link.closed() for link in self._links]
        shared = [shared.close() for shared in self._shared.values()]
        self._shared.clear()
        await asyncio.gather(*links, *shared, *self._closing, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _make_room(self) -> None:
        if len(self._shared) < self._options.max_authorizations:
            return
        for authorization, shared in self._shared.items():
            if shared.idle:
                del self._shared[authorization]
                closing = asyncio.create_task(shared.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
                return
        limit = str(self._options.max_authorizations)
        message = f"{limit} keys are in use at the same time already, as many as there may be."
        raise RequestError(make_error("too_many_connections", message, retry_after=1.0, limit=limit))

    def _link(self, opening: SessionOpen | None, metadata: Sequence[tuple[str, str]]) -> RemoteLink:
        limit = self._options.max_links
        if len(self._links) >= limit:
            message = f"{limit} sessions are open already, as many as there may be."
            raise RequestError(make_error("too_many_connections", message, retry_after=1.0, limit=str(limit)))
        channel = self._options.channel
        transport = open_transport(self.address, metadata, channel)
        link = RemoteLink(transport, opening, self.address, channel.connect_timeout, self._links.discard)
        self._links.add(link)
        return link
