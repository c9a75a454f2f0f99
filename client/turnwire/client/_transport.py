"""The seam between a session and what carries its messages, and the one that carries them over gRPC.

Below: grpc. Above: `_connection`. `testing` has a transport in memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol, cast

from grpc import aio

from turnwire.client._channel import ChannelOptions, open_channel
from turnwire.client._status import from_status
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub

_VISIBLE_ASCII: Final = re.compile(r"[\x21-\x7e]+")


class Transport(Protocol):
    """Carries the messages of one session. Each method is called by one task only."""

    async def send(self, request: ConnectRequest) -> None:
        """Sends a message; waits while flow control says so. Cancelling it may end the stream."""
        ...

    async def receive(self) -> ConnectResponse | None:
        """Returns the next batch; None when the server has ended the stream in order. Cancelling it may end the stream.

        Raises:
            TurnwireError: The stream ended otherwise.
        """
        ...

    async def finish(self) -> None:
        """Says that nothing more will be sent. Cancelling it may end the stream."""
        ...

    async def close(self) -> None:
        """Gives everything back, at once. Cancelling it may leave that to the garbage collector."""
        ...


class ServerTransport(Transport, Protocol):
    """A transport to a real server, which has one-shot methods too."""

    @property
    def channel(self) -> aio.Channel:
        """What the stubs of the one-shot methods are made over; lives as long as the transport."""
        ...


class GrpcTransport:
    """Carries a session over one stream on a channel of its own."""

    def __init__(self, address: str, metadata: Sequence[tuple[str, str]], options: ChannelOptions) -> None:
        """Opens the channel and the stream; nothing is sent yet."""
        self.channel = open_channel(address, options)
        self._call = ResponsesServiceStub(self.channel).Connect(metadata=metadata)

    async def send(self, request: ConnectRequest) -> None:
        """Sends a message; waits while flow control says so. Cancelling it ends the stream."""
        await self._call.write(request)

    async def receive(self) -> ConnectResponse | None:
        """Returns the next batch; None at the end of the stream. Cancelling it ends the stream."""
        try:
            batch = await self._call.read()
        except aio.AioRpcError as error:
            raise from_status(error) from error
        return None if batch is aio.EOF else cast("ConnectResponse", batch)

    async def finish(self) -> None:
        """Half-closes the stream. Cancelling it ends the stream."""
        await self._call.done_writing()

    async def close(self) -> None:
        """Ends the stream and the channel. Cancelling it leaves the channel to the garbage collector."""
        self._call.cancel()
        await self.channel.close()


def bearer(api_key: str | None) -> Sequence[tuple[str, str]]:
    """Returns the metadata that carries an API key.

    Raises:
        ValueError: It holds characters that metadata cannot carry.
    """
    if not api_key:
        return ()
    if not _VISIBLE_ASCII.fullmatch(api_key):
        # Without the key itself, which would end up in logs.
        msg = "this is no API key: a key is visible ASCII characters without spaces"
        raise ValueError(msg)
    return (("authorization", f"Bearer {api_key}"),)
