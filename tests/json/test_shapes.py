"""What the options of the schema mean, one rule at a time."""

from __future__ import annotations

import json

import pytest
from google.protobuf.descriptor import Descriptor

from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.item_pb2 import Item, Logprob, Message, MessageContent
from turnwire.v1.json import decoder, encoder, from_json, to_json
from turnwire.v1.json.encode import encoder_of, source_of
from turnwire.v1.json.plan import SchemaError, reachable, shape_of
from turnwire.v1.response_pb2 import Input, InputItems, Response, ResponseCreate, TextConfig
from turnwire.v1.server_event_pb2 import OutputTextDelta, ResponseInProgress, ServerEvent
from turnwire.v1.session_pb2 import Pong, SessionOpened
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolSet

ODD = '{ "b" : 1,\n\t"a":[ 1.0, 9007199254740993 , "\\u00e9é" ] }'


def test_an_event_starts_with_its_type_and_number() -> None:
    event = ServerEvent(sequence_number=4, lane="a", output_text_delta=OutputTextDelta(item_id="msg_1", delta="Hi"))
    assert to_json(event, fill=True) == (
        b'{"type":"response.output_text.delta","sequence_number":4,"stream_id":"a","item_id":"msg_1",'
        b'"output_index":0,"content_index":0,"delta":"Hi","logprobs":[]}'
    )


def test_exact_output_holds_only_what_is_set() -> None:
    assert to_json(ServerEvent(output_text_delta=OutputTextDelta())) == b'{"type":"response.output_text.delta"}'
    assert to_json(Response()) == b'{"object":"response"}'


def test_json_text_is_kept_byte_for_byte() -> None:
    text = f'{{"type":"function","name":"f","parameters": {ODD} ,"strict":true}}'
    tool = from_json(Tool, text)
    assert tool.function.parameters == ODD
    assert ODD.encode() in to_json(tool)
    assert ODD.encode() in to_json(tool, fill=True)


def test_elements_of_json_text_are_kept_byte_for_byte_and_may_be_null() -> None:
    text = f'{{"type":"shell_call_output","call_id":"c","output":[{ODD}, null ,1]}}'
    item = from_json(Item, text)
    assert list(item.shell_call_output.output) == [ODD, "null", "1"]
    assert json.loads(to_json(item)) == json.loads(text)


def test_unknown_keys_are_kept_in_order_with_their_text_and_written_last() -> None:
    item = from_json(Item, f'{{"z":{ODD},"role":"user","a":null,"content":"x"}}')
    assert item.message.extra_json == f'{{"z":{ODD},"a":null}}'
    assert to_json(item) == f'{{"role":"user","content":"x","z":{ODD},"a":null}}'.encode()


def test_unknown_keys_cannot_stand_in_for_known_ones() -> None:
    item = Item(
        message=Message(content=MessageContent(text="x"), extra_json='{"role":"system","type":"reasoning","k":1}')
    )
    for fill in (False, True):
        assert json.loads(to_json(item, fill=fill)) == {"type": "message", "content": "x", "k": 1}
    tool = Tool(function=FunctionTool(name="f", extra_json='{"strict":true}'))
    assert json.loads(to_json(tool, fill=True))["strict"] is None


def test_a_hidden_field_is_neither_read_nor_written() -> None:
    request = from_json(ConnectRequest, '{"type":"response.create","model":"m","inherit":true,"request_id":"r"}')
    assert not request.request_id
    assert not request.create.HasField("inherit")
    assert request.create.extra_json == '{"inherit":true,"request_id":"r"}'
    request.create.inherit = True
    assert json.loads(to_json(request))["inherit"] is True  # the client's own, from extra_json
    request.create.extra_json = ""
    assert to_json(request, fill=True) == b'{"type":"response.create","model":"m"}'


def test_null_is_the_same_as_absent() -> None:
    nulls = '{"type":"response.create","model":null,"input":null,"tools":null,"metadata":null,"text":{"format":null}}'
    assert from_json(ConnectRequest, nulls) == ConnectRequest(create=ResponseCreate(text=TextConfig()))
    assert from_json(Item, '{"type":null,"role":"user"}').message.untyped


def test_an_empty_list_differs_from_none_only_where_the_schema_says_so() -> None:
    create = from_json(ConnectRequest, '{"type":"response.create","tools":[],"include":[]}').create
    assert create.HasField("tools")
    assert to_json(create) == b'{"tools":[]}'


def test_an_untyped_item_stays_untyped() -> None:
    for text in (b'{"role":"user","content":"x"}', b'{"id":"msg_1"}'):
        item = from_json(Item, text)
        assert to_json(item) == to_json(item, fill=True) == text


def test_an_opaque_object_is_kept_byte_for_byte() -> None:
    text = f'  {{"type": "file_search_call", "x": {ODD} }}  '
    item = from_json(Item, text)
    assert item.opaque.type == "file_search_call"
    assert item.opaque.json == text.strip()
    assert to_json(item) == to_json(item, fill=True) == text.strip().encode()


def test_what_the_parent_says_wins_over_an_opaque_object() -> None:
    text = '{"type":"acme:x", "sequence_number": 7, "stream_id":"a", "k": [ 1 ]}'
    event = from_json(ServerEvent, text)
    assert (event.sequence_number, event.lane) == (7, "a")
    assert to_json(event, fill=True) == text.encode()
    event.sequence_number = 8
    assert to_json(event) == b'{"type":"acme:x","sequence_number":8,"stream_id":"a","k":[ 1 ]}'


def test_of_repeated_keys_the_last_one_counts() -> None:
    assert from_json(Tool, '{"type":"shell","type":"custom","name":"a","name":"b"}').custom.name == "b"


def test_the_constant_member_is_written_and_ignored() -> None:
    response = from_json(Response, '{"object":17,"id":"resp_1"}')
    assert response == Response(id="resp_1")
    assert to_json(response) == b'{"object":"response","id":"resp_1"}'


def test_whole_numbers_look_like_integers_and_are_read_in_either_form() -> None:
    assert b'"created_at":1790113377,' in to_json(Response(created_at=1790113377, model="m"))
    assert from_json(Response, '{"created_at":1790113377}').created_at == 1790113377.0
    assert from_json(ConnectRequest, '{"type":"response.create","seed":1.0}').create.seed == 1
    assert to_json(Logprob(logprob=-0.1)) == b'{"logprob":-0.1}'
    large = ConnectRequest(create=ResponseCreate(seed=2**63 - 1))
    assert to_json(large) == b'{"type":"response.create","seed":9223372036854775807}'


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="no JSON form"):
        to_json(Logprob(logprob=number))


def test_an_event_without_public_form_is_refused() -> None:
    with pytest.raises(ValueError, match="no public JSON form"):
        to_json(ServerEvent(pong=Pong()))


@pytest.mark.parametrize("text", ["[]", "{", '{"a":1}x', "[" * 100_000])
def test_unknown_keys_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="extra_json"):
        to_json(Item(message=Message(extra_json=text)))


def test_a_document_may_be_bytes_text_or_a_view() -> None:
    text = ' {"type":"reasoning","id":"rs_é"} '
    raw = text.encode()
    assert from_json(Item, text) == from_json(Item, raw) == from_json(Item, memoryview(raw)[0:])


def test_unions_and_lists_are_documents_of_their_own() -> None:
    assert from_json(Input, ' "hi" ') == Input(text="hi")
    assert to_json(Input(items=InputItems())) == b"[]"
    assert from_json(ToolSet, "[]") == ToolSet()
    assert to_json(Input()) == b"null"


def test_compiled_functions_do_the_same() -> None:
    event = ServerEvent(sequence_number=1, in_progress=ResponseInProgress(response=Response(id="resp_1")))
    assert encoder(ServerEvent)(event) == to_json(event)
    assert decoder(ServerEvent)(encoder(ServerEvent, fill=True)(event)).in_progress.response.id == "resp_1"


def test_the_generated_source_can_be_read() -> None:
    source = source_of(Item.DESCRIPTOR, fill=False)
    assert "d = {'type': 'function_call'}" in source
    assert "m.HasField('namespace')" in source


@pytest.mark.parametrize("root", [ConnectRequest.DESCRIPTOR, ServerEvent.DESCRIPTOR])
def test_every_message_with_a_public_form_compiles(root: Descriptor) -> None:
    for descriptor in reachable(root):
        assert shape_of(descriptor).descriptor is descriptor
        encoder_of(descriptor, fill=True)


def test_a_message_that_has_no_json_form_is_refused_when_compiled() -> None:
    with pytest.raises(SchemaError, match="resume_token"):
        to_json(SessionOpened())
