"""The unary methods of turnwire's own protocol over plain HTTP, for clients that cannot speak gRPC.

Above it: `http`. Below it: the port. `POST /turnwire.v1.ResponsesService/METHOD` with `Content-Type: application/proto`
takes the request message of the method and is answered by its response message. An error has the HTTP status of the
table and a `turnwire.v1.Error` as its body. Streams go over gRPC or the WebSocket subprotocol `turnwire.v1`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.errors import reject
from turnwire.v1.json.refusal import shown
from turnwire.v1.official.backend import Caller
from turnwire.v1.official.creating import create_whole
from turnwire.v1.official.messages import PROTO, HttpRequest, HttpResponse, check_body, no_hold

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
    entry = _METHODS.get(path[0]) if len(path) == 1 else None
    if entry is None:
        names = ", ".join(sorted(_METHODS))
        message = f"Unknown request URL: {shown(request.path)}. The methods over HTTP are {names}."
        raise reject("unknown_url", message, path=shown(request.path))
    if request.method != "POST":
        raise reject("method_not_supported", f"Not allowed to {shown(request.method)}: methods take POST.")
    check_body(request, (PROTO, "application/x-protobuf"), limit)
    kind, serve = entry
    answer = await serve(caller, _decoded(kind, request.body))
    return HttpResponse(200, {"content-type": PROTO}, answer.SerializeToString())


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
    for name in ("stream", "background"):
        if getattr(create, name):
            raise reject("unsupported_parameter", f"'{name}' is not supported here.", param=name)
    answer = await create_whole(caller, create, request.context)
    return pb.CreateResponseResponse(response=answer.response())


async def _get(caller: Caller, request: pb.GetResponseRequest) -> Message:
    return pb.GetResponseResponse(response=await caller.get_response(_named(request.response_id)))


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
}
