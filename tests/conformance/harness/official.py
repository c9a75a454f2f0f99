"""What differs by design where the public API's JSON is spoken: the one place that knows it.

Above it: the drivers of the JSON doors. Below it: the JSON codec. Official events are turned back into the compact ones
that transcripts are written in, and expectations are reduced to what JSON says:

- There are no request ids, and no answers but refusals: nothing tells of queues, settings, heartbeats or departure.
- Terminal events carry the whole response, and nothing of passes, checkpoints or calls; `response.done`, which is ours,
  carries them.
- Every event comes. For transcripts that do not ask for full verbosity, those are left out that only it has.
- A failed response has an error of code and message, and a cancelled one is incomplete for the reason `cancelled`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from turnwire.v1.error_pb2 import Error
from turnwire.v1.json import from_json
from turnwire.v1.official.stream import CANCELLED
from turnwire.v1.response_pb2 import DoneReason, Response
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent
from turnwire.v1.session_pb2 import RequestRejected

from .inbox import Inbox
from .matching import is_object

_SILENT: Final = frozenset({"opened", "queued", "progress", "pong", "go_away"})
"""Events that JSON has no word for."""
_FULL_ONLY: Final = frozenset(
    {
        "in_progress",
        "content_part_added",
        "content_part_done",
        "output_text_done",
        "refusal_done",
        "reasoning_text_done",
        "reasoning_summary_part_added",
        "reasoning_summary_part_done",
        "reasoning_summary_text_done",
        "function_call_arguments_done",
        "custom_tool_call_input_done",
        "mcp_call_arguments_delta",
        "mcp_call_arguments_done",
    }
)
_UNSAID: Final[Mapping[str, frozenset[str]]] = {
    "created": frozenset({"request_id", "duplicate"}),
    "appended": frozenset({"request_id"}),
    "rejected": frozenset({"request_id", "response_id", "duplicate"}),
    "error": frozenset({"retry_after", "metadata"}),
}
"""Fields of events that JSON does not have."""
_AT_THE_END: Final = frozenset({"reason", "usage", "incomplete_details", "error"})
"""Fields of a terminal `done` that the whole response says too."""
_OF_A_FAILURE: Final = frozenset({"code", "message"})
_REASONS: Final = {
    "completed": DoneReason.DONE_REASON_COMPLETED,
    "incomplete": DoneReason.DONE_REASON_INCOMPLETE,
    "failed": DoneReason.DONE_REASON_FAILED,
}
TOO_OLD: Final = "websocket_connection_limit_reached"
"""Says at the end of a connection what `go_away` says elsewhere."""
_CODES: Final = {"lane_limit_reached": "websocket_stream_limit_reached"}
_PARAMETERS: Final = {"lane": "stream_id"}
"""What the rules of the public API call by other names."""


def expected(wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Returns what JSON says of an event that a transcript expects; None where it says nothing."""
    if any(kind in _SILENT for kind in wanted):
        return None
    return {kind: _reduced(kind, value) for kind, value in wanted.items()}


def _reduced(kind: str, value: Any) -> Any:
    if not is_object(value):
        return value
    fields: dict[str, Any] = {key: each for key, each in value.items() if key not in _UNSAID.get(kind, ())}
    if kind == "done" and fields.get("reason") != "TOOL_CALLS":
        fields = {key: each for key, each in fields.items() if key in _AT_THE_END}
        if is_object(fields.get("error")):
            fields["error"] = {key: each for key, each in fields["error"].items() if key in _OF_A_FAILURE}
        if fields.get("reason") in ("CANCELLED", "DONE_REASON_CANCELLED"):
            fields.pop("incomplete_details", None)
    if kind == "rejected" and is_object(fields.get("error")):
        error: dict[str, Any] = _reduced("error", fields["error"])
        renamed = {"code": _CODES.get(error.get("code", "")), "param": _PARAMETERS.get(error.get("param") or "")}
        fields["error"] = {**error, **{key: name for key, name in renamed.items() if name}}
    return fields


class Translation:
    """Turns the events of one connection back."""

    def __init__(self, inbox: Inbox, *, full: bool) -> None:
        """Takes where they go, and whether the transcript wants those that only full verbosity has."""
        self._inbox = inbox
        self._full = full
        self._at_work: dict[str, int] = {}
        """Handles by lane."""

    def take(self, data: str | bytes) -> None:
        """Takes one official event."""
        said: dict[str, Any] = json.loads(data)
        event = _error(said) if said["type"] == "error" else from_json(ServerEvent, data)
        kind = event.WhichOneof("event") or ""
        lane = event.lane
        event.ClearField("lane")
        if kind in _FULL_ONLY and not self._full:
            return
        if kind == "created":
            self._at_work[lane] = len(self._inbox.streams) + 1
            event.created.lane = lane
        if kind == "rejected":
            event.rejected.lane = lane
        elif not kind.startswith("steer_"):
            event.response = self._at_work[lane]
        if kind in _REASONS:
            event.done.CopyFrom(_done(_REASONS[kind], getattr(event, kind).response))
        if event.HasField("done") and event.done.reason != DoneReason.DONE_REASON_TOOL_CALLS:
            del self._at_work[lane]
        self._inbox.take(ConnectResponse(first_event_id=self._inbox.last_event_id + 1, events=[event]))


def _error(said: dict[str, Any]) -> ServerEvent:
    """Reads an `error` event: a refusal, or the end of a response that has no other."""
    fields = said["error"]
    error = Error(type=fields["type"], code=fields["code"] or "", message=fields["message"], param=fields.get("param"))
    lane = said.get("stream_id")
    if "sequence_number" in said:
        done = ResponseDone(reason=DoneReason.DONE_REASON_FAILED, error=error)
        return ServerEvent(lane=lane, sequence_number=said["sequence_number"], done=done)
    assert isinstance(said["status"], int)
    return ServerEvent(lane=lane, rejected=RequestRejected(error=error))


def _done(reason: DoneReason.ValueType, response: Response) -> ResponseDone:
    if response.incomplete_details.reason == CANCELLED:
        return ResponseDone(reason=DoneReason.DONE_REASON_CANCELLED, usage=response.usage, response=response)
    done = ResponseDone(reason=reason, response=response)
    if response.HasField("error"):
        done.error.CopyFrom(Error(code=response.error.code, message=response.error.message))
    for name in ("usage", "incomplete_details"):
        if response.HasField(name):
            getattr(done, name).CopyFrom(getattr(response, name))
    return done
