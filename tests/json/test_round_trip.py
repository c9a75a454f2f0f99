"""What goes through the codec comes back: from messages, and from JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.v1 import annotations_pb2 as options
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.error_pb2 import Error
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json, to_json
from turnwire.v1.response_pb2 import Input, Response
from turnwire.v1.server_event_pb2 import ServerEvent
from turnwire.v1.tool_pb2 import Tool, ToolChoice, ToolSet

bounded = settings(max_examples=60, derandomize=True, deadline=None, database=None)
ROOTS = [ConnectRequest, Error, Input, Item, Response, ServerEvent, Tool, ToolChoice, ToolSet]
Messages = Callable[[type[Message]], st.SearchStrategy[Message]]
Documents = Callable[[type[Message]], st.SearchStrategy[tuple[Any, Any]]]


@pytest.mark.parametrize("root", ROOTS)
@bounded
@given(data=st.data())
def test_a_message_comes_back_exactly(root: type[Message], messages: Messages, data: st.DataObject) -> None:
    message = data.draw(messages(root))
    assert from_json(root, to_json(message)) == message


@pytest.mark.parametrize("root", ROOTS)
@bounded
@given(data=st.data())
def test_a_filled_message_comes_back_with_its_defaults(
    root: type[Message], messages: Messages, data: st.DataObject
) -> None:
    message = data.draw(messages(root))
    filled = to_json(message, fill=True)
    back = from_json(root, filled)
    assert json.loads(to_json(back, fill=True)) == json.loads(filled)
    set_defaults(message)
    assert back == message


@pytest.mark.parametrize("root", ROOTS)
@bounded
@given(data=st.data())
def test_json_comes_back_equal(root: type[Message], documents: Documents, data: st.DataObject) -> None:
    document, expected = data.draw(documents(root))
    message = from_json(root, json.dumps(document))
    assert json.loads(to_json(message)) == expected
    # What filled output adds never changes what was there.
    filled = json.loads(to_json(message, fill=True))
    assert not isinstance(expected, dict) or expected.keys() <= filled.keys()


def set_defaults(message: Message) -> None:
    """Sets every unset field that has a json_default to it, at every depth."""
    for field, value in message.ListFields():
        if field.message_type and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else [value]:
                set_defaults(each)
    for unset in message.DESCRIPTOR.fields:
        default = unset.GetOptions().Extensions[options.json_default]
        if not default or not unset.has_presence or message.HasField(unset.name):
            continue
        if unset.message_type:
            inner: Message = getattr(message, unset.name)
            inner.CopyFrom(from_json(type(inner), default))
        else:
            setattr(message, unset.name, json.loads(default))
