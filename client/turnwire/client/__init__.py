"""The client: sessions, responses and lanes over one gRPC stream.

    async with connect("localhost:50051") as session:
        stream = await session.create(model="m", input="Say hello.")
        async for text in stream.text_deltas():
            print(text, end="")

`client` opens sessions, `session` and `stream` are what an application holds, `items` builds what it sends,
`exceptions` lists what it may catch, `testing` replaces the server in its tests.
"""

from turnwire.client._channel import ChannelOptions
from turnwire.client._rpc import OneShotStream, Rpc
from turnwire.client._transport import Transport
from turnwire.client.client import Client, Connect, connect
from turnwire.client.events import Event
from turnwire.client.exceptions import (
    ApiError,
    AuthenticationError,
    ConnectError,
    InFlightRequest,
    Loss,
    ProtocolError,
    RequestRejectedError,
    ResponseFailedError,
    RpcFailedError,
    SessionLost,
    TurnwireError,
    UnacknowledgedAppend,
)
from turnwire.client.items import (
    assistant,
    custom_tool,
    custom_tool_call_output,
    developer,
    function_call_output,
    function_tool,
    image_part,
    item_reference,
    system,
    text_part,
    user,
)
from turnwire.client.session import Lane, Session
from turnwire.client.stream import ResponseStream, ToolCall

__all__ = [
    "ApiError",
    "AuthenticationError",
    "ChannelOptions",
    "Client",
    "Connect",
    "ConnectError",
    "Event",
    "InFlightRequest",
    "Lane",
    "Loss",
    "OneShotStream",
    "ProtocolError",
    "RequestRejectedError",
    "ResponseFailedError",
    "ResponseStream",
    "Rpc",
    "RpcFailedError",
    "Session",
    "SessionLost",
    "ToolCall",
    "Transport",
    "TurnwireError",
    "UnacknowledgedAppend",
    "assistant",
    "connect",
    "custom_tool",
    "custom_tool_call_output",
    "developer",
    "function_call_output",
    "function_tool",
    "image_part",
    "item_reference",
    "system",
    "text_part",
    "user",
]
