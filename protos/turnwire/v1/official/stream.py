"""The events of one response, from their compact form into the official one: one JSON object each, in one line.

Above it: `http` and the WebSocket doors. Below it: `answer`, the JSON codec and the error table.

Order and sequence numbers are those of the compact events, which count the full official stream; the request has to ask
for the verbosity FULL. What is decided here:

- A response that was cancelled ends with `response.incomplete`, status `incomplete`, reason `cancelled`: there is no
  official event for it, and clients wait for ever for a terminal event that they do not know. Whoever retrieves the
  response later reads `cancelled`.
- The pause of a held response is `response.done`, and a taken append `response.appended`: both are ours, and come only
  where `hold` was asked for.
- Padding against guesses from the length of deltas (`obfuscation`) is sent only where `include_obfuscation` is true in
  so many words, unlike with the official API: it costs bytes, and hides nothing on a private network.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple

import msgspec

from turnwire.v1.item_pb2 import Logprob
from turnwire.v1.json import encoder
from turnwire.v1.json.encode import encoder_of
from turnwire.v1.json.plan import shape_of
from turnwire.v1.official.answer import Answer, item_id, item_json, line
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseCreate, ResponseStatus
from turnwire.v1.server_event_pb2 import ServerEvent

CANCELLED: Final = "cancelled"
"""The reason in `incomplete_details` of a response that was cancelled."""


class Frame(NamedTuple):
    """One official event."""

    type: str
    """Its `type`."""
    data: bytes
    """One JSON object, in one line."""


class _Delta(NamedTuple):
    """A kind of delta."""

    type: str
    place: str
    """The name of the place within the item, and of its key."""
    logprobs: bool
    """Whether it has log-probabilities."""


_TYPES: Final = {member.name: member.type for member in shape_of(ServerEvent.DESCRIPTOR).members if member.type}
"""The `type` of every kind of event that has a public form."""
_DELTAS: Final = {
    "output_text_delta": _Delta("response.output_text.delta", "content_index", True),
    "function_call_arguments_delta": _Delta("response.function_call_arguments.delta", "output_index", False),
    "reasoning_text_delta": _Delta("response.reasoning_text.delta", "content_index", False),
    "reasoning_summary_text_delta": _Delta("response.reasoning_summary_text.delta", "summary_index", False),
    "custom_tool_call_input_delta": _Delta("response.custom_tool_call_input.delta", "output_index", False),
    "refusal_delta": _Delta("response.refusal.delta", "content_index", False),
    "mcp_call_arguments_delta": _Delta("response.mcp_call_arguments.delta", "output_index", False),
}
_TERMINAL: Final = {
    DoneReason.DONE_REASON_COMPLETED: "response.completed",
    DoneReason.DONE_REASON_INCOMPLETE: "response.incomplete",
    DoneReason.DONE_REASON_FAILED: "response.failed",
    DoneReason.DONE_REASON_CANCELLED: "response.incomplete",
}
_OUTSIDE: Final = frozenset(
    {"completed", "incomplete", "failed", "error", "opened", "queued", "rejected", "progress", "pong", "go_away"}
)
"""Kinds that no compact stream of a response has, or that concern its session."""
_PAD_TO: Final = 16
"""Deltas are padded to multiples of so many bytes."""

_pack: Final = msgspec.json.Encoder().encode
_encode_event: Final = encoder(ServerEvent, fill=True)
_encode_logprob: Final = encoder(Logprob, fill=True)


class OfficialStream:
    """Turns the compact events of one response into official ones."""

    def __init__(self, create: ResponseCreate, *, stream_id: str = "") -> None:
        """Begins a stream.

        Args:
            create: The request of the response: what it repeats of it, and whether deltas are padded. Where it is not
                known, an empty one, and `created` carries the full response.
            stream_id: The lane, as the client named it. Empty tags no event.
        """
        self.ended = False
        """Whether the terminal event was given out; nothing follows it."""
        self.next_sequence = 0
        """The number of the next event, for an error that has to end the stream."""
        self._answer = Answer(create)
        self._padded = create.stream_options.include_obfuscation
        self._tail = b',"stream_id":' + _pack(stream_id) + b"}" if stream_id else b"}"
        self._stream_id = stream_id
        self._ids: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._opening: bytes | None = None
        # The part that the last delta belonged to, and what all its deltas begin with.
        self._kind = ""
        self._index: int = -1
        self._place: int = -1
        self._prefix = b""

    @property
    def response(self) -> Response:
        """The response as known so far, as a message of the caller's own; costs its size."""
        return self._answer.response()

    @property
    def response_id(self) -> str:
        """The id of the response; empty until it was announced."""
        return self._answer.id

    def feed(self, event: ServerEvent) -> list[Frame]:
        """Takes a compact event and returns the official ones that it stands for, none after the terminal one."""
        kind = event.WhichOneof("event")
        if kind is None or self.ended:
            return []
        made = _DELTAS.get(kind)
        if made is not None:
            return [Frame(made.type, self._delta(kind, made, event))]
        if kind in _OUTSIDE:
            return []
        return self._event(kind, event)

    def _delta(self, kind: str, made: _Delta, event: ServerEvent) -> bytes:
        """Returns a delta: the hot path of the JSON doors, so what a part's deltas have in common is kept."""
        delta: Any = getattr(event, kind)
        index: int = delta.output_index
        place: int = getattr(delta, made.place)
        if kind != self._kind or index != self._index or place != self._place:
            self._kind, self._index, self._place = kind, index, place
            self._prefix = self._begin(made, index, place, delta.item_id)
        sequence = event.sequence_number
        self.next_sequence = sequence + 1
        text = _pack(delta.delta)
        if self._padded:
            text += b',"obfuscation":"%b"' % _padding(len(text) - 2)
        if not made.logprobs:
            return b'%b%b,"sequence_number":%d%b' % (self._prefix, text, sequence, self._tail)
        logprobs = delta.logprobs
        if not logprobs:
            return b'%b%b,"logprobs":[],"sequence_number":%d%b' % (self._prefix, text, sequence, self._tail)
        listed = b",".join([_encode_logprob(each) for each in logprobs])
        return b'%b%b,"logprobs":[%b],"sequence_number":%d%b' % (self._prefix, text, listed, sequence, self._tail)

    def _begin(self, made: _Delta, index: int, place: int, own_id: str) -> bytes:
        key = b"" if made.place == "output_index" else b',"%b":%d' % (made.place.encode(), place)
        names = (made.type.encode(), _pack(own_id or self._ids.get(index, "")), index, key)
        return b'{"type":"%b","item_id":%b,"output_index":%d%b,"delta":' % names

    def _event(self, kind: str, event: ServerEvent) -> list[Frame]:
        if kind not in ("appended", "steer_accepted", "steer_pending", "steer_failed"):
            self.next_sequence = event.sequence_number + 1
        match kind:
            case "created":
                return [self._created(event)]
            case "in_progress":
                return [self._in_progress(event)]
            case "response_queued":
                return [self._queued(event)]
            case "output_item_added":
                return [self._item_added(event)]
            case "output_item_done":
                return [self._item_done(event)]
            case "output_item_truncated":
                return [self._too_large(event)]
            case "done":
                return [self._done(event)]
            case _:
                return [self._plain(kind, event)]

    def _created(self, event: ServerEvent) -> Frame:
        response = event.created.response
        for index, item in enumerate(response.output):
            self._know(index, item)
        self._answer.announce(response)
        self._opening = self._answer.json()
        return self._whole("response.created", event.sequence_number, self._opening)

    def _in_progress(self, event: ServerEvent) -> Frame:
        # The same text as in `created`, which came just before.
        whole, self._opening = self._opening or self._answer.json(), None
        return self._whole("response.in_progress", event.sequence_number, whole)

    def _queued(self, event: ServerEvent) -> Frame:
        before = self._answer.status
        self._answer.status = ResponseStatus.RESPONSE_STATUS_QUEUED
        whole = self._answer.json()
        self._answer.status = before
        return self._whole("response.queued", event.sequence_number, whole)

    def _whole(self, of_type: str, sequence: int, whole: bytes) -> Frame:
        """Returns an event that carries the response."""
        data = b'{"type":"%b","response":%b,"sequence_number":%d%b' % (of_type.encode(), whole, sequence, self._tail)
        return Frame(of_type, data)

    def _item_added(self, event: ServerEvent) -> Frame:
        added = event.output_item_added
        self._know(added.output_index, added.item)
        if event.extra_json:
            return self._foreign("output_item_added", event)
        item = item_json(added.item)
        if added.item.HasField("reasoning") and not added.item.reasoning.content:
            # Clients append the parts that follow to it.
            item = item[:-1] + b',"content":[]}'
        data = b'{"type":"response.output_item.added","output_index":%d,"item":%b,"sequence_number":%d%b' % (
            added.output_index,
            item,
            event.sequence_number,
            self._tail,
        )
        return Frame("response.output_item.added", data)

    def _item_done(self, event: ServerEvent) -> Frame:
        done = event.output_item_done
        self._know(done.output_index, done.item)
        data = b'{"type":"response.output_item.done","output_index":%d,"item":%b,"sequence_number":%d%b' % (
            done.output_index,
            self._answer.add(done.output_index, done.item),
            event.sequence_number,
            self._tail,
        )
        return Frame("response.output_item.done", data)

    def _know(self, index: int, item: Any) -> None:
        self._ids[index] = item_id(item)
        kind = item.WhichOneof("kind")
        if kind == "function_call":
            self._names[index] = item.function_call.name

    def _done(self, event: ServerEvent) -> Frame:
        done = event.done
        of_type = _TERMINAL.get(done.reason)
        if of_type is None:
            return self._plain("done", event)
        self._answer.finish(done)
        if done.reason == DoneReason.DONE_REASON_CANCELLED:
            self._answer.cut_short(CANCELLED)
        self.ended = True
        return self._whole(of_type, event.sequence_number, self._answer.json())

    def _too_large(self, event: ServerEvent) -> Frame:
        size = event.output_item_truncated.bytes
        self._answer.fail("server_error", f"An output item of {size} bytes is too large to be sent.")
        self.ended = True
        return self._whole("response.failed", event.sequence_number, self._answer.json())

    def _plain(self, kind: str, event: ServerEvent) -> Frame:
        """Returns an event as the codec has it, with the id of the item added where the official form has one."""
        message: Any = getattr(event, kind)
        if kind == "opaque" or event.extra_json:
            return self._foreign(kind, event)
        of_type = _TYPES[kind]
        encode = encoder_of(message.DESCRIPTOR, True)
        members = [b'"type":"%b"' % of_type.encode()]
        if "item_id" in message.DESCRIPTOR.fields_by_name and not message.HasField("item_id"):
            members.append(b'"item_id":' + _pack(self._ids.get(message.output_index, "")))
        if kind == "function_call_arguments_done" and not message.HasField("name"):
            members.append(b'"name":' + _pack(self._names.get(message.output_index, "")))
        body = line(encode(message))[1:-1]
        if body:
            members.append(body)
        data = b'{%b,"sequence_number":%d%b' % (b",".join(members), event.sequence_number, self._tail)
        return Frame(of_type, data)

    def _foreign(self, kind: str, event: ServerEvent) -> Frame:
        """Returns an event of a newer version, or with keys of one, as it came."""
        whole = ServerEvent()
        whole.CopyFrom(event)
        whole.ClearField("lane")
        if self._stream_id:
            whole.lane = self._stream_id
        return Frame(_TYPES.get(kind) or event.opaque.type, line(_encode_event(whole)))


def _padding(length: int) -> bytes:
    """Returns random letters that fill a delta of so many bytes up to a multiple of `_PAD_TO`."""
    missing = -length % _PAD_TO
    return secrets.token_hex(_PAD_TO // 2)[:missing].encode()
