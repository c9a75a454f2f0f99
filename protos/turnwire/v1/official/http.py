"""The official HTTP API: paths, methods and bodies, over the port.

Above it: the server's HTTP door, the bridge, and the transport for official SDKs, which carry requests here. Below it:
`creating`, `binary`, and the port. Coroutines here await only the port.

Paths begin with `/v1`, as the base URLs of the official SDKs end; a path without it is told so. Conversations are not
kept and say `unsupported_parameter`. Beside the official paths stand the unary methods of turnwire's own protocol, see
`binary`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error, reject
from turnwire.v1.json import encoder
from turnwire.v1.json.refusal import shown
from turnwire.v1.official.answer import item_id, item_json, line
from turnwire.v1.official.backend import Backend, Caller
from turnwire.v1.official.binary import SERVICE, serve_method
from turnwire.v1.official.creating import create_stream, create_whole, follow_stream
from turnwire.v1.official.errors import answer_headers, error_body, http_status, internal_error
from turnwire.v1.official.frames import PROTO
from turnwire.v1.official.messages import (
    EVENT_STREAM,
    JSON,
    MAX_BODY,
    HttpRequest,
    HttpResponse,
    context_of,
    json_answer,
    read_choice,
    read_create,
    read_flag,
    read_integer,
    read_text,
    stream_answer,
)
from turnwire.v1.response_pb2 import Response, ResponseCreate
from turnwire.v1.responses_service_pb2 import (
    CompactResponseResponse,
    CountInputTokensResponse,
    ListInputItemsRequest,
    Model,
)

__all__ = ["MAX_BODY", "HttpApi", "HttpRequest", "HttpResponse"]

MAX_PAGE: Final = 100
"""Items in a page of input items at most."""
_MAX_SEQUENCE: Final = 2**31 - 1
_COMMENT: Final = b": keep-alive\n\n"
_PATHS: Final = (
    "/v1/responses, /v1/responses/{id}, /v1/responses/{id}/cancel, /v1/responses/{id}/input_items,"
    " /v1/responses/input_tokens, /v1/responses/compact, /v1/models and /v1/models/{id}"
)

_log: Final = logging.getLogger(__name__)
_pack: Final = msgspec.json.Encoder().encode
_encode_response: Final = encoder(Response, fill=True)
_encode_count: Final = encoder(CountInputTokensResponse, fill=True)
_encode_compaction: Final = encoder(CompactResponseResponse, fill=True)
_encode_model: Final = encoder(Model, fill=True)

_Handler = Callable[[Caller, HttpRequest], Awaitable[HttpResponse]]
T = TypeVar("T")


class Parse(Protocol):
    """Parses bodies: a host may do it elsewhere than on its event loop."""

    async def __call__(self, read: Callable[[], T], size: int, /) -> T:
        """Returns what `read` returns, which parses so many bytes, or raises what it raises."""
        ...


async def parse_at_once(read: Callable[[], T], size: int) -> T:
    """Parses right here. Safe to cancel."""
    return read()


class HttpApi:
    """Answers requests."""

    def __init__(
        self,
        backend: Backend,
        max_body: int = MAX_BODY,
        new_request_id: Callable[[], str] = lambda: f"req_{secrets.token_hex(16)}",
        parse: Parse = parse_at_once,
    ) -> None:
        """Takes what stands behind the port, the largest body in bytes, what names requests in `x-request-id`, and what
        parses bodies."""
        self._backend = backend
        self._max_body = max_body
        self._new_request_id = new_request_id
        self._parse = parse

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answers a request; whatever goes wrong is an answer too.

        Cancelling it cancels what the request has begun. A stream in the answer has to be closed by who takes it.
        """
        try:
            answer = await self._answer(request)
        except RequestError as refusal:
            return self.refuse(request, refusal.error)
        except Exception:
            _log.exception("a request failed")
            return self.refuse(request, internal_error())
        answer.headers["x-request-id"] = self._new_request_id()
        return answer

    def refuse(self, request: HttpRequest, error: Error) -> HttpResponse:
        """Returns an error in the form that the path speaks; for whoever refuses before `handle`."""
        if request.path.startswith(f"/{SERVICE}/"):
            answer = HttpResponse(http_status(error), _headers(error, PROTO), error.SerializeToString())
        else:
            answer = HttpResponse(http_status(error), _headers(error, JSON), error_body(error))
        if request.method == "HEAD":
            answer = _without_body(answer)
        answer.headers["x-request-id"] = self._new_request_id()
        return answer

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        path = [part for part in request.path.split("/") if part]
        if path and path[0] == SERVICE:
            return await serve_method(self._caller(request), request, path[1:], self._max_body)
        methods = self._methods(path)
        if methods is None:
            raise _unknown(request)
        head = request.method == "HEAD"
        handler = methods.get("GET" if head else request.method)
        if handler is None:
            answer = self.refuse(request, _not_allowed(request, methods))
            answer.headers["allow"] = ", ".join(_allowed(methods))
            return answer
        answer = await handler(self._caller(request), request)
        return _without_body(answer) if head else answer

    def _caller(self, request: HttpRequest) -> Caller:
        return self._backend.caller(request.headers.get("authorization"))

    def _methods(self, path: Sequence[str]) -> Mapping[str, _Handler] | None:
        """Returns what a path offers, by method; None for an unknown path."""
        match path:
            case ["v1", "responses"]:
                return {"POST": self._create}
            case ["v1", "responses", "input_tokens"]:
                return {"POST": self._count}
            case ["v1", "responses", "compact"]:
                return {"POST": self._compact}
            case ["v1", "responses", response_id]:
                return {"GET": _about(self._retrieve, response_id), "DELETE": _about(_delete, response_id)}
            case ["v1", "responses", response_id, "cancel"]:
                return {"POST": _about(_cancel, response_id)}
            case ["v1", "responses", response_id, "input_items"]:
                return {"GET": _about(_input_items, response_id)}
            case ["v1", "models"]:
                return {"GET": _models}
            case ["v1", "models", *name]:
                return {"GET": _about(_model, "/".join(name))}
            case ["v1", "conversations", *_]:
                return {"GET": _no_conversations, "POST": _no_conversations, "DELETE": _no_conversations}
            case _:
                return None

    async def _read_create(self, request: HttpRequest) -> ResponseCreate:
        return await self._parse(lambda: read_create(request, self._max_body), len(request.body))

    async def _create(self, caller: Caller, request: HttpRequest) -> HttpResponse:
        create = await self._read_create(request)
        if create.stream:
            return _streamed(await create_stream(caller, create, context_of(request)))
        answer = await create_whole(caller, create, context_of(request))
        return json_answer(answer.json())

    async def _count(self, caller: Caller, request: HttpRequest) -> HttpResponse:
        count = await caller.count_input_tokens(await self._read_create(request))
        return json_answer(_encode_count(CountInputTokensResponse(input_tokens=count)))

    async def _compact(self, caller: Caller, request: HttpRequest) -> HttpResponse:
        create = await self._read_create(request)
        if not create.model:
            raise reject("missing_required_parameter", "Missing required parameter: 'model'.", param="model")
        return json_answer(line(_encode_compaction(await caller.compact_response(create))))

    async def _retrieve(self, caller: Caller, request: HttpRequest, response_id: str) -> HttpResponse:
        streamed = read_flag(request, "stream")
        starting_after = read_integer(request, "starting_after", 0, _MAX_SEQUENCE)
        padded = read_flag(request, "include_obfuscation") or False
        if streamed and request.method != "HEAD":
            return _streamed(await follow_stream(caller, response_id, starting_after, padded=padded))
        return json_answer(line(_encode_response(await caller.get_response(response_id))))


def _headers(error: Error, content_type: str) -> dict[str, str]:
    return {"content-type": content_type, **answer_headers(error)}


def _about(
    handler: Callable[[Caller, HttpRequest, str], Awaitable[HttpResponse]], name: str
) -> Callable[[Caller, HttpRequest], Awaitable[HttpResponse]]:
    """Returns a handler of one named thing."""
    return lambda caller, request: handler(caller, request, name)


def _streamed(body: AsyncGenerator[bytes, None]) -> HttpResponse:
    return stream_answer(body, EVENT_STREAM, _COMMENT)


async def _delete(caller: Caller, request: HttpRequest, response_id: str) -> HttpResponse:
    await caller.delete_response(response_id)
    return json_answer(_pack({"id": response_id, "object": "response", "deleted": True}))


async def _cancel(caller: Caller, request: HttpRequest, response_id: str) -> HttpResponse:
    return json_answer(line(_encode_response(await caller.cancel_response(response_id))))


async def _input_items(caller: Caller, request: HttpRequest, response_id: str) -> HttpResponse:
    order = read_choice(request, "order", ("asc", "desc"))
    query = ListInputItemsRequest(
        response_id=response_id,
        limit=read_integer(request, "limit", 1, MAX_PAGE),
        ascending=order == "asc",
        after=read_text(request, "after") or "",
    )
    page = await caller.list_input_items(query)
    first, last = (item_id(page.items[0]), item_id(page.items[-1])) if page.items else (None, None)
    return json_answer(
        b'{"object":"list","data":[%b],"first_id":%b,"last_id":%b,"has_more":%b}'
        % (b",".join([item_json(item) for item in page.items]), _pack(first), _pack(last), _pack(page.has_more))
    )


async def _models(caller: Caller, request: HttpRequest) -> HttpResponse:
    models = b",".join([_encode_model(model) for model in await caller.list_models()])
    return json_answer(b'{"object":"list","data":[%b]}' % models)


async def _model(caller: Caller, request: HttpRequest, name: str) -> HttpResponse:
    for model in await caller.list_models():
        if name == model.id or name in model.aliases:
            return json_answer(_encode_model(model))
    message = f"The model '{shown(name)}' does not exist. GET /v1/models lists those that do."
    raise reject("model_not_found", message, param="model", model=shown(name))


async def _no_conversations(caller: Caller, request: HttpRequest) -> HttpResponse:
    message = "Conversations are not kept here. Continue from a response with 'previous_response_id'."
    raise reject("unsupported_parameter", message, param="conversation")


def _without_body(answer: HttpResponse) -> HttpResponse:
    """Returns what HEAD is answered by; streams are never asked for by HEAD."""
    return HttpResponse(answer.status, {**answer.headers, "content-length": str(len(answer.whole))})


def _unknown(request: HttpRequest) -> RequestError:
    path = shown(request.path)
    message = f"Unknown request URL: {request.method} {path}. There are {_PATHS}."
    if not request.path.startswith("/v1"):
        message += " Does your base URL end in /v1?"
    return reject("unknown_url", message, path=path)


def _allowed(methods: Mapping[str, _Handler]) -> list[str]:
    return sorted({*methods, *(("HEAD",) if "GET" in methods else ())})


def _not_allowed(request: HttpRequest, methods: Mapping[str, _Handler]) -> Error:
    path = shown(request.path)
    message = f"Not allowed to {shown(request.method)} on {path}: it takes {', '.join(_allowed(methods))}."
    if request.path.rstrip("/") == "/v1/responses" and request.method == "GET":
        message += " A WebSocket needs the header 'Upgrade: websocket'."
    return make_error("method_not_supported", message, method=shown(request.method), path=path)
