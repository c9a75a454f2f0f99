"""Leaves out what a client sends again with every request of a chain: instructions and tools, where they are the same.

Above it: `link` and `shared`. Below it: nothing. The public API has its clients send all settings with every turn; the
protocol has `inherit`, which takes them from the response before. That is the same only where all settings are: so they
are compared as a whole, by digest, with those that the response before was asked for with.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from typing import Final

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ServerEvent

_OF_ONE_TURN: Final = frozenset(
    {"input", "previous_response_id", "generate", "metadata", "client_metadata", "extra_json"}
)
# What belongs to one turn: nothing of it is inherited. Codex writes its metadata in another order each time.
_KEPT: Final = 1024
# Responses and unanswered requests that are remembered; who goes on from an older one sends everything.
_ANSWERS: Final = frozenset(
    field.name
    for field in ServerEvent.DESCRIPTOR.oneofs_by_name["event"].fields
    if field.message_type is not None and "request_id" in field.message_type.fields_by_name
)
# Events that name the request they answer.


class Settings:
    """The settings that responses of one session were asked for with."""

    def __init__(self) -> None:
        """Knows none yet."""
        self._by_response: Final[OrderedDict[str, bytes]] = OrderedDict()

    def learn(self, response_id: str, digest: bytes) -> None:
        """Hears what a response was asked for with."""
        _remember(self._by_response, response_id, digest)

    def lighter(self, create: ResponseCreate) -> tuple[ResponseCreate, bytes]:
        """Returns a create without instructions and tools where the response before has them, or else itself, and the
        digest of its settings."""
        digest = _digest(create)
        same = self._by_response.get(create.previous_response_id) == digest
        # One that inherits by itself means something else by what it leaves out.
        if not same or create.inherit or not (create.instructions or create.HasField("tools")):
            return create, digest
        light = ResponseCreate()
        light.CopyFrom(create)
        light.ClearField("instructions")
        light.ClearField("tools")
        light.inherit = True
        return light, digest


class ResentSettings:
    """The same for a session whose events pass by: which response answers which request is read from them."""

    def __init__(self) -> None:
        """Knows nothing yet."""
        self._settings: Final = Settings()
        self._unanswered: Final[OrderedDict[str, bytes]] = OrderedDict()
        # No client chooses an id that begins like this.
        self._own: Final = f"{secrets.token_hex(8)}-"
        self._count = 0

    def sent(self, request: ConnectRequest) -> ConnectRequest:
        """Returns a request as it is to be sent: a create may be lighter, and one without an id is given one."""
        if request.WhichOneof("event") != "create":
            return request
        if not request.request_id:
            self._count += 1
            request.request_id = f"{self._own}{self._count}"
        create, digest = self._settings.lighter(request.create)
        _remember(self._unanswered, request.request_id, digest)
        if create is request.create:
            return request
        light = ConnectRequest(request_id=request.request_id, create=create, extra_json=request.extra_json)
        if request.HasField("lane"):
            light.lane = request.lane
        if request.HasField("context"):
            light.context.CopyFrom(request.context)
        return light

    def heard(self, batch: ConnectResponse) -> None:
        """Hears a batch on its way to the client, and takes ids out of it that the client did not give."""
        for event in batch.events:
            kind = event.WhichOneof("event")
            if kind in _ANSWERS:
                answer = getattr(event, kind)
                digest = self._unanswered.pop(answer.request_id, None)
                if kind == "created" and digest is not None:
                    self._settings.learn(event.created.response.id, digest)
                if answer.request_id.startswith(self._own):
                    answer.request_id = ""


def _digest(create: ResponseCreate) -> bytes:
    settings = ResponseCreate()
    # Field by field: the input may hold megabytes.
    for field, value in create.ListFields():
        if field.name in _OF_ONE_TURN:
            continue
        if field.is_repeated or field.message_type is not None:
            getattr(settings, field.name).MergeFrom(value)
        else:
            setattr(settings, field.name, value)
    return hashlib.blake2b(settings.SerializeToString(deterministic=True), digest_size=16).digest()


def _remember(known: OrderedDict[str, bytes], key: str, digest: bytes) -> None:
    known[key] = digest
    if len(known) > _KEPT:
        known.popitem(last=False)
