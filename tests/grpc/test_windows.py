"""Counting and compacting over gRPC: the same answers and the same refusals as a create would get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from turnwire.v1 import responses_service_pb2 as pb
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role
from turnwire.v1.response_pb2 import Input, InputItems, ResponseCreate

if TYPE_CHECKING:
    from tests.grpc.conftest import Door


def said(text: str, role: Role.ValueType) -> Item:
    return Item(message=Message(role=role, content=MessageContent(text=text)))


ASKED = ResponseCreate(
    model="stepped",
    input=Input(
        items=InputItems(items=[said("one two", Role.ROLE_USER), said("three four five", Role.ROLE_ASSISTANT)])
    ),
)


async def test_a_create_is_counted(door: Door) -> None:
    answer = await door.ask("CountInputTokens", pb.CountInputTokensRequest(create=ASKED))
    assert isinstance(answer, bytes)
    # A token per word, and four around each item.
    assert pb.CountInputTokensResponse.FromString(answer).input_tokens == 5 + 2 * 4
    assert not door.engine.passes
    await door.emptied()


async def test_a_conversation_is_compacted(door: Door) -> None:
    answer = await door.ask("CompactResponse", pb.CompactResponseRequest(create=ASKED))
    assert isinstance(answer, bytes)
    window = pb.CompactResponseResponse.FromString(answer)
    assert [item.WhichOneof("kind") for item in window.output] == ["message", "compaction"]
    assert window.output[0].message.content.parts.parts[0].input_text.text == "one two"
    assert window.usage.input_tokens == 13
    assert window.created_at > 0
    assert not door.engine.passes
    await door.emptied()


@pytest.mark.parametrize(
    ("create", "code", "param"),
    [
        (ResponseCreate(input=Input(text="a")), "missing_required_parameter", "model"),
        (ResponseCreate(model="stepped"), "missing_required_parameter", "input"),
        (
            ResponseCreate(model="stepped", input=Input(text="a"), previous_response_id="resp_0"),
            "previous_response_not_found",
            "previous_response_id",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_a_create_refuses_is_refused(door: Door, create: Any, code: str, param: str) -> None:
    for name, request in (
        ("CountInputTokens", pb.CountInputTokensRequest(create=create)),
        ("CompactResponse", pb.CompactResponseRequest(create=create)),
    ):
        ended = await door.ask(name, request)
        assert not isinstance(ended, bytes)
        assert ended.error == (code, param)
        assert ended.code is not grpc.StatusCode.INTERNAL
    await door.emptied()
