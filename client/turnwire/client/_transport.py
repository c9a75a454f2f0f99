"""The seam between a session and what carries its messages, and the one that carries them over gRPC.

Below: grpc. Above: `_connection`. `testing` has a transport in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from grpc import aio

from turnwire.client._channel import ChannelOptions, open_channel
from turnwire.client._status import from_status
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.responses_service_pb2_grpc import ResponsesServiceStub


class Transport(Protocol):
    """Carries the messages of one session. Each method is called by one task only."""

    async def send(self, request: ConnectRequest) -> None:
        """Sends a message; waits while flow control says so."""
        ...

    async def receive(self) -> ConnectResponse | None:
        """Returns the next batch; None when the server has ended the stream in order.

        Raises:
            TurnwireError: The stream ended otherwise.
        """
        ...

    async def finish(self) -> None:
        """Says that nothing more will be sent."""
        ...

    async def close(self) -> None:
        """Gives everything back, at once."""
        ...


class GrpcTransport:
    """Carries a session over one stream on a channel of its own."""

    def __init__(self, address: str, api_key: str | None, options: ChannelOptions) -> None:
        """Opens the channel and the stream; nothing is sent yet."""
        self.address = address
        self.channel = open_channel(address, options)
        self.metadata = bearer(api_key)
        self._call = ResponsesServiceStub(self.channel).Connect(metadata=self.metadata)

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
    """Returns the metadata that carries an API key."""
    return (("authorization", f"Bearer {api_key}"),) if api_key else ()
