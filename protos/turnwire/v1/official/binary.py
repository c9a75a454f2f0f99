"""The methods of turnwire's own protocol over plain HTTP, for clients that cannot speak gRPC.

Above it: `http`. Below it: the port. `POST /turnwire.v1.ResponsesService/METHOD` with `Content-Type: application/proto`
takes the request message of the method and is answered by its response message. An error has the HTTP status of the
table and a `turnwire.v1.Error` as its body.

Methods that stream are answered by `frames`. `Connect`, which streams both ways, goes over gRPC or the WebSocket
subprotocol `turnwire.v1`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import reject
from turnwire.v1.json.refusal import shown
from turnwire.v1.official.backend import Caller
from turnwire.v1.official.creating import Batches, begun, create_whole, first_batch, next_batch
from turnwire.v1.official.frames import ERROR, FRAMES, MESSAGE, PROTO, frame
from turnwire.v1.official.messages import HttpRequest, HttpResponse, check_body, no_hold, stream_answer
from turnwire.v1.server_event_pb2 import ServerEvent

SERVICE: Final = pb.DESCRIPTOR.services_by_name["ResponsesService"].full_name
"""The first part of the paths."""

M = TypeVar("M", bound=Message)


async def serve_method(caller: Caller, request: HttpRequest, path: Sequence[str], limit: int) -> HttpResponse:
    """Answers a request for a method; see the module.

    Args:
        caller: Who asks.
        request: The request.
        path: What follows the name of the service.
        limit: The largest body, in bytes.

    Raises:
        RequestError: There is no such method, or it refused.
    """
    name = path[0] if len(path) == 1 else ""
    if name not in _METHODS and name not in _STREAMS:
        names = ", ".join(sorted((*_METHODS, *_STREAMS)))
        message = f"Unknown request URL: {shown(request.path)}. The methods over HTTP are {names}."
        raise reject("unknown_url", message, path=shown(request.path))
    if request.method != "POST":
        raise reject("method_not_supported", f"Not allowed to {shown(request.method)}: methods take POST.")
    check_body(request, (PROTO, "application/x-protobuf"), limit)
    if name in _STREAMS:
        kind, stream = _STREAMS[name]
        body = await begun(_frames(stream(caller, _decoded(kind, request.body))))
        return stream_answer(body, FRAMES, frame(MESSAGE, b""))
    kind, serve = _METHODS[name]
    answer = await serve(caller, _decoded(kind, request.body))
    return HttpResponse(200, {"content-type": PROTO}, answer.SerializeToString())


async def _frames(batches: Batches) -> AsyncGenerator[bytes, None]:
    """Yields nothing when the first batch is there, and then every batch as a frame.

    Raises:
        RequestError: Before anything was yielded.
    """
    async with aclosing(batches):
        events: Sequence[ServerEvent] | Error | None = await first_batch(batches)
        yield b""
        while events is not None:
            if isinstance(events, Error):
                yield frame(ERROR, events.SerializeToString())
                return
            # A FollowResponseResponse looks the same.
            yield frame(MESSAGE, pb.StreamResponseResponse(events=events).SerializeToString())
            events = await next_batch(batches)


def _decoded(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError:
        message = f"The body is not a {kind.DESCRIPTOR.name}. Check the client's protos, and that strings are UTF-8."
        raise reject("invalid_request_error", message) from None


async def _create(caller: Caller, request: pb.CreateResponseRequest) -> Message:
    create = request.create
    if create.hold:
        raise no_hold()
    if create.stream:
        raise reject("unsupported_parameter", "'stream' is not supported here: use StreamResponse.", param="stream")
    answer = await create_whole(caller, create, request.context)
    return pb.CreateResponseResponse(response=answer.response())


async def _get(caller: Caller, request: pb.GetResponseRequest) -> Message:
    return pb.GetResponseResponse(response=await caller.get_response(_named(request.response_id), request.session_id))


async def _delete(caller: Caller, request: pb.DeleteResponseRequest) -> Message:
    await caller.delete_response(_named(request.response_id))
    return pb.DeleteResponseResponse()


async def _cancel(caller: Caller, request: pb.CancelResponseRequest) -> Message:
    return pb.CancelResponseResponse(response=await caller.cancel_response(_named(request.response_id)))


async def _list_items(caller: Caller, request: pb.ListInputItemsRequest) -> Message:
    _named(request.response_id)
    return await caller.list_input_items(request)


async def _count(caller: Caller, request: pb.CountInputTokensRequest) -> Message:
    return pb.CountInputTokensResponse(input_tokens=await caller.count_input_tokens(request.create))


async def _compact(caller: Caller, request: pb.CompactResponseRequest) -> Message:
    return await caller.compact_response(request.create)


async def _models(caller: Caller, request: pb.ListModelsRequest) -> Message:
    return pb.ListModelsResponse(models=await caller.list_models())


async def _capabilities(caller: Caller, request: pb.GetCapabilitiesRequest) -> Message:
    return await caller.get_capabilities()


def _stream(caller: Caller, request: pb.StreamResponseRequest) -> Batches:
    if request.create.hold:
        raise no_hold()
    return caller.respond(request.create, request.context)


def _follow(caller: Caller, request: pb.FollowResponseRequest) -> Batches:
    after = request.starting_after if request.HasField("starting_after") else None
    return caller.follow_response(_named(request.response_id), after)


def _named(response_id: str) -> str:
    if not response_id:
        raise reject("missing_required_parameter", "Missing required parameter: 'response_id'.", param="response_id")
    return response_id


_METHODS: Final[dict[str, tuple[type[Any], Callable[[Caller, Any], Awaitable[Message]]]]] = {
    "CreateResponse": (pb.CreateResponseRequest, _create),
    "GetResponse": (pb.GetResponseRequest, _get),
    "DeleteResponse": (pb.DeleteResponseRequest, _delete),
    "CancelResponse": (pb.CancelResponseRequest, _cancel),
    "ListInputItems": (pb.ListInputItemsRequest, _list_items),
    "CountInputTokens": (pb.CountInputTokensRequest, _count),
    "CompactResponse": (pb.CompactResponseRequest, _compact),
    "ListModels": (pb.ListModelsRequest, _models),
    "GetCapabilities": (pb.GetCapabilitiesRequest, _capabilities),
}
_STREAMS: Final[dict[str, tuple[type[Any], Callable[[Caller, Any], Batches]]]] = {
    "StreamResponse": (pb.StreamResponseRequest, _stream),
    "FollowResponse": (pb.FollowResponseRequest, _follow),
}
