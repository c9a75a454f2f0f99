"""The shapes of the public API, each in JSON and as the message it stands for, checked both ways.

A case has the public `json`, the message as canonical ProtoJSON in `proto`, and a `mode`: what `to_json` must be asked
for to write `json` again (`exact` or `filled`). Where something else is written, such as nothing for null, it stands in
`rewritten`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message

from turnwire.v1 import client_event_pb2, error_pb2, item_pb2, response_pb2, server_event_pb2, tool_pb2
from turnwire.v1.json import from_json, to_json
from turnwire.v1.json.plan import shape_of
from turnwire.v1.server_event_pb2 import ServerEvent

MODULES = (client_event_pb2, error_pb2, item_pb2, response_pb2, server_event_pb2, tool_pb2)
FILES = sorted((Path(__file__).parent / "golden").glob("*.json"))
CASES: list[dict[str, Any]] = [
    {"id": f"{path.stem}: {case['name']}", **case}
    for path in FILES
    for case in json.loads(path.read_text(encoding="utf-8"))
]
cases = pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])


def build(case: dict[str, Any]) -> Message:
    """Builds the message of a case by another codec than ours."""
    (module,) = (module for module in MODULES if hasattr(module, case["message"]))
    message: Message = getattr(module, case["message"])()
    json_format.ParseDict(case["proto"], message)
    return message


@cases
def test_public_json_reads_as_the_message(case: dict[str, Any]) -> None:
    expected = build(case)
    assert from_json(type(expected), json.dumps(case["json"])) == expected


@cases
def test_the_message_writes_as_public_json(case: dict[str, Any]) -> None:
    written = json.loads(to_json(build(case), fill=case["mode"] == "filled"))
    assert written == case.get("rewritten", case["json"])


def test_every_typed_item_event_and_tool_has_a_golden_case() -> None:
    seen = {case["json"]["type"] for case in CASES if "type" in case["json"]}
    roots = (ServerEvent, client_event_pb2.ConnectRequest, item_pb2.Item, tool_pb2.Tool)
    missing = {member.type for root in roots for member in shape_of(root.DESCRIPTOR).members if member.type not in seen}
    assert missing == {""}  # the opaque members have no type of their own
