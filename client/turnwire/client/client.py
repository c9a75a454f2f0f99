"""How to get a session: `async with connect("localhost:50051") as session:`.

Below: channels, transports and connections. Above: the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, TypeAlias

from turnwire.client._body import Seconds, VerbosityLike, build_duration, build_verbosity
from turnwire.client._channel import ChannelOptions
from turnwire.client._connection import Connection
from turnwire.client._dial import open_methods, open_transport
from turnwire.client._rpc import Rpc
from turnwire.client._status import connect_error
from turnwire.client._transport import Transport, bearer
from turnwire.client.exceptions import SessionLost, TurnwireError
from turnwire.client.session import Session
from turnwire.v1.session_pb2 import SessionOpen

FEATURES: Final = ("append", "fork", "warm_up", "inherit", "credit", "verbosity", "hosted_tools")
"""What this client understands, as it says when it opens a session."""

TransportFactory: TypeAlias = Callable[[], Transport]
"""Makes a transport; called once per stream."""

MAX_BATCH_WINDOW: Final = timedelta(seconds=0.1)
"""The longest that a server lets deltas wait."""

DEFAULT_ADDRESS: Final = "localhost:50051"
"""Where `turnwire serve` listens unless told otherwise."""


def connect(
    address: str = DEFAULT_ADDRESS,
    *,
    api_key: str | None = None,
    verbosity: VerbosityLike | None = None,
    batch_window: Seconds | None = None,
    streams: int = 1,
    features: Sequence[str] = FEATURES,
    options: ChannelOptions | None = None,
    transport: TransportFactory | None = None,
) -> Connect:
    """Opens a session: `async with connect(...) as session`, or `session = await connect(...)`.

    Args:
        address: `HOST:PORT`, `grpcs://HOST:PORT` for TLS, `unix:PATH`, or `ws://HOST:PORT` and `wss://HOST:PORT` for
            WebSocket.
        api_key: The key, where the server has any. Send it over TLS or a local address only.
        verbosity: How much of each stream to send: `full`, `deltas`, `items` or `done`. None means deltas.
        batch_window: Seconds after a batch for which deltas wait to travel together in the next, at most 0.1: fewer
            messages and less work on both sides, for that much delay. What waits is joined to longer deltas. The first
            token of a response never waits. None leaves it to the server, and joins nothing; 0 is no window.
        streams: Over how many streams, each on a connection of its own, to spread the lanes. One stream lives on one
            worker of a server, so several use several.
        features: What the client says it understands.
        options: Channel settings.
        transport: What carries the messages instead of gRPC; see `testing`.

    Raises:
        ValueError: An argument makes no sense. What goes wrong later is raised where the session is awaited: see
            `Connect`.
    """
    if streams < 1:
        msg = f"a session needs at least one stream, not {streams}"
        raise ValueError(msg)
    options = options or ChannelOptions()
    settings = SessionOpen(
        features=features,
        session_credit_bytes=options.session_credit_bytes,
        response_credit_bytes=options.response_credit_bytes,
        max_event_bytes=options.max_event_bytes,
    )
    if verbosity is not None:
        settings.verbosity = build_verbosity(verbosity)
    if batch_window is not None:
        settings.batch_window.CopyFrom(build_duration(batch_window))
        if not timedelta() <= settings.batch_window.ToTimedelta() <= MAX_BATCH_WINDOW:
            msg = f"a batch window is 0 to {MAX_BATCH_WINDOW.total_seconds():g} seconds, not {batch_window}"
            raise ValueError(msg)
    return Connect(address, bearer(api_key), settings, streams, options, transport)


class Connect:
    """A session about to be opened: await it, or enter it."""

    def __init__(
        self,
        address: str,
        metadata: Sequence[tuple[str, str]],
        settings: SessionOpen,
        streams: int,
        options: ChannelOptions,
        transport: TransportFactory | None,
    ) -> None:
        """Made by `connect`."""
        self._address = address
        self._metadata = metadata
        self._settings = settings
        self._streams = streams
        self._options = options
        self._transport = transport
        self._session: Session | None = None

    def __await__(self) -> Generator[object, None, Session]:
        """Opens the session. Cancelling it is safe: nothing stays open.

        Raises:
            ConnectError: No server answered; the message says what to check.
            AuthenticationError: The server wants an API key, or another one.
            RequestRejectedError: The server does not accept the settings.
        """
        return self._open().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._open()
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def _open(self) -> Session:
        connections: list[Connection] = []
        rpc: Rpc | None = None
        try:
            for _ in range(self._streams):
                if self._transport is not None:
                    transport = self._transport()
                else:
                    server = transport = open_transport(self._address, self._metadata, self._options)
                    rpc = rpc or Rpc(server.channel, self._metadata)
                connections.append(Connection(transport, self._options, self._address))
            await asyncio.gather(*(connection.open(self._settings) for connection in connections))
        except BaseException as error:
            await asyncio.gather(*(connection.abort() for connection in connections))
            if isinstance(error, SessionLost) and isinstance(error.__cause__, TurnwireError):
                raise connect_error(self._address, error.__cause__) from error.__cause__
            raise
        return Session(connections, rpc)


class Client:
    """A channel for one-shot methods without a session: `async with Client("localhost:50051") as client`.

    `client.rpc` has the methods; `client.connect()` opens a session with the same settings, on a channel of its own.
    """

    def __init__(
        self, address: str = DEFAULT_ADDRESS, *, api_key: str | None = None, options: ChannelOptions | None = None
    ) -> None:
        """Takes what `connect` takes; connects with the first call."""
        self._address: Final = address
        self._api_key: Final = api_key
        self._options: Final = options or ChannelOptions()
        metadata = bearer(api_key)
        self._channel: Final = open_methods(address, self._options)
        self.rpc: Final = Rpc(self._channel, metadata)
        """The one-shot methods."""

    def connect(
        self, *, verbosity: VerbosityLike | None = None, batch_window: Seconds | None = None, streams: int = 1
    ) -> Connect:
        """Opens a session; see `connect`."""
        return connect(
            self._address,
            api_key=self._api_key,
            verbosity=verbosity,
            batch_window=batch_window,
            streams=streams,
            options=self._options,
        )

    async def close(self) -> None:
        """Closes the channel; calls under way fail. Cancelling it leaves the channel to the garbage collector."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
