"""The port behind the official shapes: whatever creates, keeps and lists responses.

Above it: `http` and the WebSocket doors. Below it: adapters, one over the core in the same process, one over gRPC.
Everything speaks turnwire's own messages; what is refused is raised as RequestError, whose error has its code, its
parameter and, by the table, its HTTP status.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from turnwire.v1.client_event_pb2 import ConnectRequest, RequestContext
from turnwire.v1.error_pb2 import Error
from turnwire.v1.response_pb2 import Response, ResponseCreate
from turnwire.v1.responses_service_pb2 import (
    CompactResponseResponse,
    ConnectResponse,
    GetCapabilitiesResponse,
    ListInputItemsRequest,
    ListInputItemsResponse,
    Model,
)
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.session_pb2 import SessionOpen


class Link(Protocol):
    """One session: events in, batches out, as on `Connect`."""

    @property
    def on_cut(self) -> Callable[[], object] | None:
        """Hears that the session has ended whether or not the client takes what is being written; None for nobody."""
        ...

    @on_cut.setter
    def on_cut(self, hear: Callable[[], object] | None) -> None: ...

    @property
    def close_error(self) -> Error | None:
        """Why the session has ended, once `next_batch` has returned None; None where it ended in order."""
        ...

    async def send(self, request: ConnectRequest, size: int) -> None:
        """Takes a client event of `size` bytes as it came; waits while the session has no room.

        An event that cannot be obeyed is answered by `rejected` in a batch. Cancelling it may lose the event.
        """
        ...

    async def next_batch(self) -> ConnectResponse | None:
        """Waits for events; None when the session has ended. Safe to cancel: nothing is lost."""
        ...

    def sent(self, size: int, events: int) -> None:
        """Hears the size in bytes of the last batch as it went to the client, for metrics."""
        ...

    def close(self) -> None:
        """Ends the session at once and frees what runs in it. Idempotent."""
        ...


class Caller(Protocol):
    """What one caller, whose key was good, may do."""

    def respond(self, create: ResponseCreate, context: RequestContext) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Creates a response outside of any session, and yields its events in batches, `done` last.

        Closing the generator, as cancelling does, cancels the response, but for one with `background`, which goes on;
        `done` then comes all the same to whoever stays. Chains through stored responses.

        Args:
            create: The body. `stream` says nothing here; `verbosity` says which events come.
            context: About the request.

        Raises:
            RequestError: By the first `anext`: the request was refused. Later: the connection to the server was lost.
        """
        ...

    def connect(self, opening: SessionOpen | None, door: str) -> Link:
        """Opens a session.

        Args:
            opening: The settings. None leaves them to the caller's own first event.
            door: Names the entrance for metrics.

        Raises:
            RequestError: There is no room, or the server is shutting down.
        """
        ...

    async def get_response(self, response_id: str, session_id: str = "") -> Response:
        """Finds a stored or a background response, or one that lives in a session of the caller's only, named by its
        id. Safe to cancel.

        Raises:
            RequestError: `response_not_found`.
        """
        ...

    def follow_response(
        self, response_id: str, starting_after: int | None
    ) -> AsyncGenerator[Sequence[ServerEvent], None]:
        """Yields the events of a background response after a sequence number, those to come too.

        `created` and `done` carry the full response. Without `starting_after` the stream is the whole one. With it,
        what the rest cannot be understood without comes first, by its old sequence numbers: `created`, what announced
        the item and the part that are open there, and `done` where it lies before.

        Raises:
            RequestError: `response_not_found`, or `invalid_request_error` for one that cannot be streamed (any more).
        """
        ...

    async def delete_response(self, response_id: str) -> None:
        """Deletes a stored response. When cancelled it may be deleted all the same.

        Raises:
            RequestError: `response_not_found`.
        """
        ...

    async def cancel_response(self, response_id: str) -> Response:
        """Cancels a background response, and returns it as it is then. When cancelled it may happen all the same.

        Raises:
            RequestError: `response_not_found`, or `invalid_request_error` for one that is no background response.
        """
        ...

    async def list_input_items(self, request: ListInputItemsRequest) -> ListInputItemsResponse:
        """Lists a page of a response's input items. Safe to cancel.

        Raises:
            RequestError: `response_not_found`, `item_not_found` for an unknown `after`, `invalid_value` for the limit.
        """
        ...

    async def count_input_tokens(self, create: ResponseCreate) -> int:
        """Counts the input tokens that a create with this body would have. Safe to cancel.

        Raises:
            RequestError: As for a create.
        """
        ...

    async def compact_response(self, create: ResponseCreate) -> CompactResponseResponse:
        """Compacts a conversation into a shorter window. Safe to cancel.

        Raises:
            RequestError: As for a create.
        """
        ...

    async def list_models(self) -> Sequence[Model]:
        """Lists the models. Safe to cancel."""
        ...

    async def get_capabilities(self) -> GetCapabilitiesResponse:
        """Tells what the server can do. Safe to cancel."""
        ...


class Backend(Protocol):
    """What creates, keeps and lists responses."""

    def caller(self, authorization: str | None) -> Caller:
        """Returns what the holder of an `Authorization` header may do.

        Raises:
            RequestError: `invalid_api_key`, where the key can be checked here; else what the caller does raises it.
        """
        ...
