from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from turnwire.client.commands.transcript import (
    REDACTED,
    Recorder,
    TranscriptError,
    parse_request,
    read_transcript,
    redact,
)
from turnwire.client.testing import message
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.response_pb2 import Input, ResponseCreate
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import OutputItemDone, ServerEvent

REQUEST = ConnectRequest(request_id="r1", lane="a", create=ResponseCreate(model="m", input=Input(text="hi")))
BATCH = ConnectResponse(
    first_event_id=1, events=[ServerEvent(response=1, output_item_done=OutputItemDone(item=message("Hi")))]
)


def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    moments = iter([10.0, 10.5, 11.0, 12.0])
    file = io.StringIO()
    recorder = Recorder(file, address="localhost:1", clock=lambda: next(moments))
    recorder.said(REQUEST)
    recorder.said(BATCH)
    recorder.ended("OK")
    path = tmp_path / "record.jsonl"
    path.write_text(file.getvalue())
    transcript = read_transcript(path)
    assert transcript.header["address"] == "localhost:1"
    assert {"turnwire", "grpcio", "protobuf", "python"} <= set(transcript.header)
    assert [entry.seconds for entry in transcript.entries] == [0.5, 1.0, 2.0]
    assert [entry.message for entry in transcript.entries] == [REQUEST, BATCH, "OK"]


def test_keys_are_not_recorded() -> None:
    secret = "a-very-own-key"
    body = ResponseCreate(model="m", input=Input(text=f"my key is {secret}, theirs is sk-abcdefghijklmnop1234"))
    file = io.StringIO()
    Recorder(file, address="x", secrets=[secret, ""]).said(ConnectRequest(create=body))
    assert secret not in file.getvalue()
    assert "sk-abc" not in file.getvalue()
    line = json.loads(file.getvalue().splitlines()[1])
    assert line["client"]["create"]["input"]["text"] == f"my key is {REDACTED}, theirs is {REDACTED}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"authorization": "whatever"}, {"authorization": REDACTED}),
        ({"tools": [{"Authorization": "x"}]}, {"tools": [{"Authorization": REDACTED}]}),
        ({"authorization": ""}, {"authorization": ""}),
        ("Bearer abcdefghijklmnopqrstuvwxyz", REDACTED),
        ("bearer of good news", "bearer of good news"),
        ("ghp_abcdefghijklmnopqrst", REDACTED),
        ("sky-high expectations", "sky-high expectations"),
        (3, 3),
        (None, None),
    ],
)
def test_what_looks_like_a_key_is_redacted(value: object, expected: object) -> None:
    assert redact(value) == expected


@pytest.mark.parametrize(
    "line",
    [
        '{"create": {"model": "m", "input": {"text": "hi"}}, "request_id": "r1", "lane": "a"}',
        '{"create": {"model": "m", "input": {"text": "hi"}}, "requestId": "r1", "lane": "a"}',
    ],
)
def test_events_are_read_in_protobufs_json(line: str) -> None:
    assert parse_request(line, "x") == REQUEST


def test_events_are_read_in_the_official_json() -> None:
    official = parse_request('{"type": "response.create", "model": "m", "input": "hi", "stream_id": "a"}', "x")
    assert (official.create, official.lane) == (REQUEST.create, "a")


def test_a_field_that_does_not_exist_is_told_from_those_that_do() -> None:
    with pytest.raises(TranscriptError) as raised:
        parse_request('{"crate": {}}', "x")
    assert str(raised.value).startswith("x: not an event: ConnectRequest has no field crate; it has request_id, lane, ")
    with pytest.raises(TranscriptError, match="Item has no field messag; it has message, reasoning, function_call, "):
        parse_request('{"create": {"input": {"items": {"items": [{"messag": {}}]}}}}', "x")


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"creat": {}}', '{"type": "nonsense"}', '{"create": {"hold": 3}}'])
def test_a_line_that_is_no_event_is_named(line: str) -> None:
    with pytest.raises(TranscriptError, match=r"^input, line 7: not an event: "):
        parse_request(line, "input, line 7")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ":1: not a transcript"),
        ('{"create": {}}\n', ":1: not a transcript"),
        ('{"turnwire_transcript": 99}\n', ":1: a transcript of format 99"),
        ('{"turnwire_transcript": 1}\n{"t": 1}\n', ":2: not an entry"),
        ('{"turnwire_transcript": 1}\nnonsense\n', ":2: not an entry"),
    ],
)
def test_a_file_that_is_no_transcript_is_refused_with_its_line(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text(text)
    with pytest.raises(TranscriptError, match=complaint):
        read_transcript(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match=r"nothing\.jsonl: cannot be read"):
        read_transcript(tmp_path / "nothing.jsonl")
