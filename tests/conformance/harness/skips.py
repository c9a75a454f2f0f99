"""Which transcripts cannot be said through which door, and why: nothing is skipped without a reason from here.

Above it: the tests, which hold the outcome against `skipped.json`. Below it: transcripts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import ParseDict, ParseError

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.json import from_json, to_json
from turnwire.v1.session_pb2 import SessionOpen, SessionRules

from .matching import is_list, is_object
from .transcript import Step, Transcript, load

SUBPROTOCOL: Final = "turnwire.v1"
WEBSOCKET: Final = "websocket"
BRIDGE: Final = "bridge"
HTTP: Final = "http"
DOORS: Final = (SUBPROTOCOL, WEBSOCKET, BRIDGE, HTTP)
"""Those that cannot say everything."""

_HALF: Final = "a socket has no half to close"
_OPENING: Final = "the door opens sessions itself, without credit and at full verbosity"
_OUR_EVENTS: Final = "JSON has no pings, credit, acknowledgements, or closing: sockets have their own"
_REQUEST_IDS: Final = "JSON has no request ids"
_HIDDEN: Final = "JSON does not have the field"
_HEARTBEAT: Final = "JSON has no heartbeats"
_LESS: Final = "JSON comes at full verbosity"
_TREE: Final = "sockets remember the latest response of each lane only"
_ONE_SHOT: Final = "HTTP has creates only, each a session of its own"

_WARM_UP: Final = "HTTP has no warm-up"

_UNSPEAKABLE: Final = frozenset({"ping", "credit", "ack", "close"})
_CODES: Final = "the public API refuses by another code when a connection is too old"
_BY_NAME: Final[dict[str, str]] = {
    "lanes:a_create_continues_from_an_earlier_response": _TREE,
    "pairing:pairs_in_one_input_and_over_a_chain": _TREE,
    "retention:interior_responses_are_unlisted_first": _TREE,
    "retention:what_is_in_use_is_never_unlisted": _TREE,
    "session:a_session_that_is_too_old_is_asked_to_go": _CODES,
}
"""What play shows and a look at the steps does not."""
_BY_NAME_OVER_HTTP: Final[dict[str, str]] = {"lanes:waiting_requests_are_limited": _ONE_SHOT}
_HTTP_STEPS: Final = frozenset(
    {
        "engine",
        "expect",
        "nothing",
        "passes",
        "pass_started",
        "send",
        "stored",
        "tool",
        "tool_cancelled",
        "tool_started",
    }
)


def is_opening(request: ConnectRequest) -> bool:
    """Tells whether a request asks for no more than what a socket is opened with."""
    return request.HasField("open") and request.open == SessionOpen(rules=SessionRules.SESSION_RULES_WEBSOCKET)


def wants_all(transcript: Transcript) -> bool:
    """Tells whether a transcript asks for full verbosity."""
    return any(create.get("verbosity") == "VERBOSITY_FULL" for create in _creates(transcript))


def reason_against(transcript: Transcript, door: str) -> str:
    """Returns why a transcript cannot be said through a door; empty where it can."""
    if door == SUBPROTOCOL:
        return _HALF if any(step.kind == "half_close" for step in transcript.steps) else ""
    for step in transcript.steps:
        reason = _against(step)
        if reason:
            return reason
    verbosities = {create.get("verbosity") for create in _creates(transcript)}
    if verbosities - {None, "VERBOSITY_FULL"} or len(verbosities) > 1:
        return _LESS
    reason = _against_repeats(transcript)
    if not reason and door == HTTP:
        return _against_http(transcript) or _BY_NAME_OVER_HTTP.get(transcript.id, "")
    return reason or _BY_NAME.get(transcript.id, "")


def _against_http(transcript: Transcript) -> str:
    for step in transcript.steps:
        if step.kind not in _HTTP_STEPS:
            return _ONE_SHOT
        if step.kind == "send":
            create = step.value.get("create")
            if create is None or "lane" in step.value or create.get("hold"):
                return _ONE_SHOT
            if "generate" in create or "prompt_cache_options" in create:
                return _WARM_UP
    return ""


def skipped(transcripts: Iterable[Transcript]) -> dict[str, dict[str, list[str]]]:
    """Lists what is skipped: ids of transcripts, by reason, by door."""
    found: dict[str, dict[str, list[str]]] = {door: {} for door in DOORS}
    for transcript in transcripts:
        for door in DOORS:
            if reason := reason_against(transcript, door):
                found[door].setdefault(reason, []).append(transcript.id)
    return found


def _creates(transcript: Transcript) -> Iterator[dict[str, Any]]:
    for step in transcript.steps:
        if step.kind == "send" and "create" in step.value:
            yield step.value["create"]


def _against(step: Step) -> str:
    if step.kind == "half_close":
        return _HALF
    if step.kind == "expect":
        for wanted in step.value:
            if wanted == "progress" or (is_object(wanted) and "progress" in wanted):
                return _HEARTBEAT
            if is_object(wanted) and wanted.get("response") == 0:
                return _REQUEST_IDS
    if step.kind == "send":
        return _against_request(step.value)
    return ""


def _against_request(said: dict[str, Any]) -> str:
    if "raw" in said or "context" in said or not set(said) - {"request_id"}:
        return _OUR_EVENTS
    if set(said) & _UNSPEAKABLE:
        return _OUR_EVENTS
    if "open" in said:
        return "" if said["open"] == {"rules": "SESSION_RULES_WEBSOCKET"} else _OPENING
    if said.get("cancel", {}).get("target_request_id"):
        return _REQUEST_IDS
    # Without what is known only in play, and at the verbosity that JSON has.
    shown = _without_names(said)
    shown.get("create", {}).pop("verbosity", None)
    try:
        request = ParseDict(shown, ConnectRequest())
    except ParseError:
        return ""
    request.ClearField("request_id")
    return "" if from_json(ConnectRequest, to_json(request)) == request else _HIDDEN


def _without_names(value: Any) -> Any:
    if is_object(value):
        if set(value) == {"repeat"}:
            return value["repeat"][0]
        return {key: _without_names(each) for key, each in value.items()}
    if is_list(value):
        return [_without_names(each) for each in value]
    return value


def _against_repeats(transcript: Transcript) -> str:
    used: set[str] = set()
    for step in transcript.steps:
        if step.kind != "send" or "request_id" not in step.value:
            continue
        request_id = str(step.value["request_id"])
        if request_id in used or len(request_id) > 128 or " " in request_id:
            return _REQUEST_IDS
        used.add(request_id)
    return ""


if __name__ == "__main__":
    folder = Path(__file__).parents[1]
    (folder / "skipped.json").write_text(json.dumps(skipped(load(folder)), indent=2) + "\n")
