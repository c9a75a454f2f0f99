"""The subprotocol `turnwire.v1`: serialized ConnectRequests in, serialized ConnectResponses out, one a binary frame.

Above it: `connection`. Below it: the messages. Pure. Sessions follow the rules of gRPC's `Connect`; what ends a stream
there with a status, ends it here with a last batch of one `rejected` without a request id, and a close frame.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from turnwire.server.doors.websocket import wire
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import reject
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import RequestRejected

SUBPROTOCOL: Final = "turnwire.v1"


class NativeSession:
    """Our own messages, as they are."""

    opcode: int = wire.BINARY
    opening: None = None
    """The client opens its session itself, or not at all."""

    def __init__(self) -> None:
        """Starts with nothing sent."""
        self._next_event_id = 1
        self.going = ""

    def read(self, data: bytes) -> ConnectRequest:
        """Parses a ConnectRequest.

        Raises:
            RequestError: It is none, which ends the session as it ends a gRPC stream.
        """
        try:
            return ConnectRequest.FromString(data)
        except DecodeError:
            message = "The message is not a ConnectRequest. Check the client's protos, and that strings are UTF-8."
            raise reject("invalid_request_error", message) from None

    def take(self, request: ConnectRequest) -> ConnectRequest:
        """Returns it as it is."""
        return request

    def messages(self, batch: ConnectResponse) -> list[bytes]:
        """Serializes a batch."""
        events = batch.events
        self._next_event_id = batch.first_event_id + len(events)
        for event in events:
            # What concerns the session stands before what concerns its responses.
            if event.response:
                break
            if event.HasField("go_away"):
                self.going = event.go_away.reason
        return [batch.SerializeToString()]

    def farewell(self, error: Error | None) -> list[bytes]:
        """Says with which error the session has ended, if with one."""
        if error is None:
            return []
        last = ServerEvent(rejected=RequestRejected(error=error))
        return [ConnectResponse(first_event_id=self._next_event_id, events=[last]).SerializeToString()]
