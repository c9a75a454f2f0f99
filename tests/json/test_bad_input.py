"""Bad JSON gets the public API's words and the path to the culprit, and never another exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError
from turnwire.v1.json import from_json, to_json
from turnwire.v1.response_pb2 import Response
from turnwire.v1.server_event_pb2 import ServerEvent

Messages = Callable[[type[Message]], st.SearchStrategy[Message]]
Nonsense = Callable[[type[Message]], st.SearchStrategy[Any]]
bounded = settings(max_examples=60, derandomize=True, deadline=None, database=None)
ROOTS = [ConnectRequest, ServerEvent, Response]


def refusal(text: bytes | str, message_type: type[Message] = ConnectRequest) -> Error:
    """Returns the error that a document is refused with."""
    with pytest.raises(RequestError) as caught:
        from_json(message_type, text)
    return caught.value.error


def create(members: str) -> str:
    return f'{{"type":"response.create",{members}}}'


@pytest.mark.parametrize(
    ("members", "param", "message"),
    [
        ('"model":3', "model", "expected a string, but got an integer instead."),
        ('"store":"yes"', "store", "expected a boolean, but got a string instead."),
        ('"temperature":true', "temperature", "expected a decimal, but got a boolean instead."),
        ('"max_output_tokens":1.5', "max_output_tokens", "expected an integer, but got a decimal instead."),
        ('"input":3', "input", "expected one of a string or an array of objects, but got an integer instead."),
        ('"input":["x"]', "input[0]", "expected an object, but got a string instead."),
        ('"input":[null]', "input[0]", "expected an object, but got null instead."),
        ('"tools":{}', "tools", "expected an array of objects, but got an object instead."),
        ('"tools":[{"type":"function","name":1}]', "tools[0].name", "expected a string, but got an integer instead."),
        ('"text":[]', "text", "expected an object, but got an array instead."),
        ('"include":"a"', "include", "expected an array of strings, but got a string instead."),
        ('"include":["a",1]', "include[1]", "expected a string, but got an integer instead."),
        ('"metadata":{"a":1}', "metadata.a", "expected a string, but got an integer instead."),
        ('"metadata":{"a":null}', "metadata.a", "expected a string, but got null instead."),
        ('"tool_choice":1', "tool_choice", "expected one of a string or an object, but got an integer instead."),
        ('"input":[{"type":7}]', "input[0].type", "expected a string, but got an integer instead."),
        (
            '"input":[{"role":"user","content":[]},{"role":"user","content":[{"type":"input_text","text":{}}]}]',
            "input[1].content[0].text",
            "expected a string, but got an object instead.",
        ),
    ],
)
def test_a_value_of_another_kind_is_named_in_the_official_words(members: str, param: str, message: str) -> None:
    error = refusal(create(members))
    assert error.code == "invalid_type"
    assert error.type == "invalid_request_error"
    assert error.param == param
    assert error.message == f"Invalid type for '{param}': {message}"


@pytest.mark.parametrize(
    ("members", "param", "message"),
    [
        (
            '"input":[{"role":"bob"}]',
            "input[0].role",
            "Invalid value: 'bob'. Supported values are: 'user', 'assistant', 'system', and 'developer'.",
        ),
        (
            '"text":{"format":{"type":"xml"}}',
            "text.format.type",
            "Invalid value: 'xml'. Supported values are: 'text', 'json_object', and 'json_schema'.",
        ),
        (
            '"tool_choice":"any"',
            "tool_choice",
            "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'.",
        ),
        (
            '"max_output_tokens":99999999999',
            "max_output_tokens",
            "Invalid value for 'max_output_tokens': expected a number from -2147483648 to 2147483647.",
        ),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_those_that_are(members: str, param: str, message: str) -> None:
    error = refusal(create(members))
    assert (error.code, error.param, error.message) == ("invalid_value", param, message)


@pytest.mark.parametrize("number", ["1e999", "-1e400", "9" * 400, "9" * 5000])
@pytest.mark.parametrize("key", ["temperature", "seed", "top_k"])
def test_a_number_out_of_range_is_refused(key: str, number: str) -> None:
    error = refusal(create(f'"{key}":{number}'))
    assert (error.code, error.param) == ("invalid_value", key)


def test_an_unknown_event_is_refused_with_the_known_ones() -> None:
    error = refusal('{"type":"response.processed"}')
    assert (error.code, error.param) == ("invalid_value", "type")
    assert "'response.create', 'response.append', 'response.steer', and 'response.cancel'" in error.message


@pytest.mark.parametrize(
    ("text", "param"),
    [("{}", "type"), ('{"type":null}', "type"), (create('"input":[{"content":"x"}]'), "input[0].type")],
)
def test_an_object_that_says_not_what_it_is_is_refused(text: str, param: str) -> None:
    error = refusal(text)
    assert (error.code, error.param) == ("missing_required_parameter", param)
    assert error.message == f"Missing required parameter: '{param}'."


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"1",
        b"{}x",
        b"\xef\xbb\xbf{}",
        b"{'type':1}",
        b'{"type":"response.create","temperature":NaN}',
        b'{"type":"response.create","temperature":Infinity}',
        b'{"type":"response.create","a":01}',
        b'{"type":"response.create","user":"\xff"}',
        b'{"type":"response.create","unknown":"\xff"}',
        b'{"type":"response.create","user":"\\ud800"}',
        b'{"type":"response.create","unknown":{"\\ud800":1}}',
        b'{"type":"response.create","user":"\x00"}',
        '{"type":"response.create","user":"\ud800"}',
        b'{"type":"response.create","unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 100_000,
    ],
)
def test_text_that_is_no_json_object_is_refused(text: bytes | str) -> None:
    error = refusal(text)
    assert error.code == "invalid_json"
    assert not error.HasField("param")


def test_objects_that_nest_without_end_are_refused() -> None:
    depth = 60
    tools = '[{"type":"namespace","tools":' * depth + "[]" + "}]" * depth
    error = refusal(create(f'"tools":{tools}'))
    assert error.code == "invalid_value"
    assert error.param.startswith("tools[0].tools[0]")
    assert "nested" in error.message


def test_the_deepest_accepted_document_survives_the_wire() -> None:
    depth = 30
    tools = '[{"type":"namespace","tools":' * depth + "[]" + "}]" * depth
    request = from_json(ConnectRequest, create(f'"tools":{tools}'))
    assert ConnectRequest.FromString(request.SerializeToString()) == request


def test_text_of_the_client_is_repeated_only_in_part() -> None:
    long = "x" * 10_000
    error = refusal(create(f'"input":[{{"role":"{long}"}}]'))
    assert len(error.message) < 300
    error = refusal(create(f'"metadata":{{"{long}":1}}'))
    assert len(error.message) + len(error.param) < 500


def test_nul_and_other_controls_pass_where_they_are_escaped() -> None:
    assert from_json(ConnectRequest, create('"user":"\\u0000\\u001f\\u2028"')).create.user == "\x00\x1f\u2028"


@pytest.mark.parametrize("root", ROOTS)
@bounded
@given(raw=st.binary(max_size=40))
@example(raw=b'{"type":"error","error":{"code":"\\uD83D\\uDE00"}}')
def test_any_bytes_are_read_or_refused(root: type[Message], raw: bytes) -> None:
    read_or_refuse(root, raw)


@pytest.mark.parametrize("root", ROOTS)
@bounded
@given(data=st.data())
def test_any_json_is_read_or_refused(root: type[Message], nonsense: Nonsense, data: st.DataObject) -> None:
    document = json.dumps(data.draw(nonsense(root)))
    if root is ConnectRequest and document.startswith("{"):
        document = f'{document[:-1]}{", " if len(document) > 2 else ""}"type":"response.create"}}'
    read_or_refuse(root, document.encode())


@pytest.mark.parametrize("root", ROOTS)
@bounded
@given(data=st.data(), junk=st.binary(max_size=4))
def test_a_damaged_document_is_read_or_refused(
    root: type[Message], messages: Messages, data: st.DataObject, junk: bytes
) -> None:
    raw = to_json(data.draw(messages(root)), fill=True)
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 4)))
    read_or_refuse(root, raw[:start] + junk + raw[end:])


def read_or_refuse(root: type[Message], raw: bytes) -> None:
    try:
        message = from_json(root, raw)
    except RequestError:
        return
    # What was read can be said again, and means the same.
    assert from_json(root, to_json(message)) == message
