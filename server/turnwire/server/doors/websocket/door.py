"""The upgrade: who may come in, which language is spoken, and refusals before it, as HTTP answers.

Above it: the HTTP host, which mounts `WebSocketDoor.handle`. Below it: `connection` and the port.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import hdrs
from aiohttp.web import BaseRequest, Response, StreamResponse

from turnwire.server.doors.websocket.connection import BytesSocket, Connection, Socket
from turnwire.server.doors.websocket.dialect import Dialect
from turnwire.server.doors.websocket.native import SUBPROTOCOL, NativeSession
from turnwire.server.doors.websocket.official import OfficialSession
from turnwire.server.doors.websocket.options import WebSocketOptions
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError, make_error
from turnwire.v1.official.backend import Backend
from turnwire.v1.official.errors import error_body, error_headers, http_status

OFFICIAL_DOOR: Final = "websocket"
NATIVE_DOOR: Final = "websocket-turnwire"
"""Names for metrics."""
_KEY_PREFIX: Final = "openai-insecure-api-key."
"""What browsers, which cannot set headers, put before a key that they offer as a subprotocol. They want one of their
offers to be chosen (the WebSockets standard demands it), which must not be the key."""


class WebSocketDoor:
    """Serves WebSocket upgrades from what stands behind the port."""

    def __init__(self, backend: Backend, options: WebSocketOptions | None = None) -> None:
        """Takes what serves responses, and the settings."""
        self._backend = backend
        self._options = options or WebSocketOptions()

    async def handle(self, request: BaseRequest) -> StreamResponse:
        """Serves an upgrade to the end of its connection. Cancelling it frees the session at once."""
        options = self._options
        authorization, chosen = authorization_of(request), _choose(_offers(request))
        native = chosen == SUBPROTOCOL
        if hdrs.SEC_WEBSOCKET_PROTOCOL in request.headers:
            # aiohttp would log offers that it does not choose, and keys may be among them.
            request = _offering(request, chosen)
        socket = BytesSocket(
            timeout=options.close_timeout,
            autoping=False,
            protocols=() if chosen is None else (chosen,),
            compress=options.compression,
            # Twice the limit, so that what is over it is told so and not just cut off.
            max_msg_size=2 * options.max_message_bytes,
            # The connection waits for slow clients itself.
            writer_limit=1 << 62,
            decode_text=False,
        )
        if not socket.can_prepare(request):
            message = "The request is no WebSocket upgrade (RFC 6455, version 13)."
            return _refused(make_error("invalid_request_error", message), {hdrs.SEC_WEBSOCKET_VERSION: "13"})
        dialect: Dialect = NativeSession() if native else OfficialSession()
        try:
            caller = self._backend.caller(authorization)
            link = caller.connect(dialect.opening, NATIVE_DOOR if native else OFFICIAL_DOOR)
        except RequestError as refusal:
            return _refused(refusal.error)
        try:
            writer = await socket.prepare(request)
            connection = Connection(Socket(socket, request, writer, options), link, dialect, options)
        except BaseException as error:
            link.close()
            if isinstance(error, ConnectionError):
                # The client went before the upgrade was done. aiohttp wants an answer, which reaches nobody.
                return Response()
            raise
        await connection.serve()
        return socket


def authorization_of(request: BaseRequest) -> str | None:
    """Returns the `Authorization` of an upgrade: its header, or what stands for it among the offered subprotocols."""
    header = request.headers.get(hdrs.AUTHORIZATION)
    if header:
        return header
    for each in _offers(request):
        if each.startswith(_KEY_PREFIX):
            return f"Bearer {each.removeprefix(_KEY_PREFIX)}"
    return None


def _offers(request: BaseRequest) -> list[str]:
    return [each.strip() for each in request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "").split(",")]


def _choose(offers: Sequence[str]) -> str | None:
    """Returns the subprotocol that is chosen of those that are offered; None for none.

    The public API's mode has no name of its own: what stands beside a key is whatever the client likes.
    """
    if SUBPROTOCOL in offers:
        return SUBPROTOCOL
    if not any(each.startswith(_KEY_PREFIX) for each in offers):
        return None
    return next((each for each in offers if each and not each.startswith(_KEY_PREFIX)), None)


def _offering(request: BaseRequest, offer: str | None) -> BaseRequest:
    """Returns a request that offers one subprotocol, or none."""
    headers = request.headers.copy()
    headers.popall(hdrs.SEC_WEBSOCKET_PROTOCOL)
    if offer is not None:
        headers[hdrs.SEC_WEBSOCKET_PROTOCOL] = offer
    return request.clone(headers=headers)


def _refused(error: Error, more: dict[str, str] | None = None) -> Response:
    headers = {**error_headers(error), **(more or {})}
    return Response(status=http_status(error), body=error_body(error), content_type="application/json", headers=headers)
