"""What came of a session, in lines that two runs of the same requests can be compared by.

Ids that a server makes up are left out, and responses are named by their request. Above it: `replay`. Below it:
transcripts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwire.client.commands.transcript import Entry, compact, to_dict
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent

_UNCOMPARED = frozenset({"id", "call_id", "created_at", "completed_at", "encrypted_content"})
_ANSWERS = {"opened": "open", "pong": "ping"}
_SILENT = frozenset({"ack", "credit", "close"})


@dataclass(slots=True)
class _Request:
    key: str
    kind: str
    lane: str
    answer: list[str] = field(default_factory=list[str])


class RequestKeys:
    """Names requests by their ids, and those without one by kind and order."""

    def __init__(self) -> None:
        """Starts with no request."""
        self._counts: dict[str, int] = {}

    def of(self, kind: str, request_id: str) -> str:
        """Returns the name of the next request of a kind."""
        if request_id:
            return request_id
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind} {self._counts[kind]}"


def outcome_lines(entries: Sequence[Entry]) -> list[str]:
    """Returns what came of every request, in the order of the requests."""
    requests: dict[str, _Request] = {}
    keys, created, appended = RequestKeys(), RequestKeys(), RequestKeys()
    responses: dict[int, str] = {}
    end = "the stream did not end"
    for entry in entries:
        message = entry.message
        if isinstance(message, ConnectRequest):
            kind = message.WhichOneof("event") or "nothing"
            if kind not in _SILENT:
                key = keys.of(kind, message.request_id)
                requests[key] = _Request(key, kind, message.lane)
        elif isinstance(message, ConnectResponse):
            for event in message.events:
                what = event.WhichOneof("event")
                if what == "created":
                    key = created.of("create", event.created.request_id)
                    if event.response:
                        responses[event.response] = key
                elif what == "appended":
                    key = appended.of("append", event.appended.request_id)
                elif what == "rejected":
                    # Without an id nothing tells which request it was.
                    key = event.rejected.request_id or "refused without an id"
                elif what in _ANSWERS:
                    key = _unanswered(requests, _ANSWERS[what])
                else:
                    key = responses.get(event.response, "the session")
                asked = requests.setdefault(key, _Request(key, "", ""))
                asked.answer += _lines(event)
        else:
            end = f"the stream ended: {message}"
    lines: list[str] = []
    for request in requests.values():
        lane = f" in lane {request.lane}" if request.lane else ""
        lines.append(f"{request.key} ({request.kind or 'not a request'}{lane})")
        # A cancel is answered by the end of its response.
        lines += [f"  {line}" for line in request.answer or ([] if request.kind == "cancel" else ["no answer"])]
    return [*lines, end]


def _unanswered(requests: Mapping[str, _Request], kind: str) -> str:
    return next((one.key for one in requests.values() if one.kind == kind and not one.answer), "the session")


def _lines(event: ServerEvent) -> Iterator[str]:
    kind = event.WhichOneof("event")
    if kind == "created":
        yield f"created, model {event.created.response.model}{', again' if event.created.duplicate else ''}"
    elif kind == "output_item_done":
        yield f"item {event.output_item_done.output_index}: {compact(_compared(to_dict(event.output_item_done.item)))}"
    elif kind == "output_item_truncated":
        yield f"item {event.output_item_truncated.output_index}: too large, {event.output_item_truncated.type}"
    elif kind == "appended":
        waiting = len(event.appended.awaiting_call_ids)
        yield f"append {event.appended.append_index} taken, {waiting} calls still open"
    elif kind == "rejected":
        error = event.rejected.error
        yield f"refused: {error.code}{f' ({error.param})' if error.HasField('param') else ''}"
    elif kind == "done":
        yield from _done_lines(event.done)
    elif kind in ("opened", "pong", "go_away", "steer_accepted", "steer_pending", "steer_failed"):
        yield kind


def _done_lines(done: ResponseDone) -> Iterator[str]:
    for item in done.output:
        yield f"item: {compact(_compared(to_dict(item)))}"
    reason = DoneReason.Name(done.reason).removeprefix("DONE_REASON_").lower()
    details = [f"{len(done.awaiting_call_ids)} calls open"] if done.awaiting_call_ids else []
    if done.HasField("error"):
        details.append(done.error.code)
    if done.HasField("incomplete_details"):
        details.append(done.incomplete_details.reason)
    if done.HasField("usage"):
        details.append(f"{done.usage.input_tokens} tokens in, {done.usage.output_tokens} out")
    yield f"done: {', '.join([reason, *details])}"


def _compared(value: Any) -> Any:
    """Leaves out what no two runs have in common."""
    if isinstance(value, dict):
        return {name: _compared(each) for name, each in value.items() if name not in _UNCOMPARED}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_compared(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value
