"""Reasoning goes to the client sealed, and what it replays is in the next prompt, also of another server."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.runtime.callers import Client, SilentTokens, client_of, harmony, scripted

from turnwire.server.prompt import vocabulary
from turnwire.server.sealing import Seals
from turnwire.server.store.memory import MemoryStore

THINKS = """
[model]
names = ["m"]
[[turn]]
reasoning = "The colour of the door is teal."
text = "Done."
"""
REASONING_ASKED: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}


def reasoning_of(response: dict[str, Any]) -> dict[str, Any]:
    return next(item for item in response["output"] if item["type"] == "reasoning")


def shown(tokens: SilentTokens) -> str:
    return vocabulary.encoding().decode(tokens.prompts[-1])


async def replay(client: Client, reasoning: dict[str, Any], **body: Any) -> None:
    """Replays reasoning as coding agents do: without its content, in front of a call that is still being answered."""
    bare = {key: value for key, value in reasoning.items() if key != "content"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    question = {"role": "user", "content": "what colour?"}
    done, _ = await client.create(input=[question, bare, call, answer], **body)
    assert done.reason == 2


@pytest.mark.parametrize("body", [REASONING_ASKED, {"store": False}, {"store": False, **REASONING_ASKED}])
async def test_reasoning_is_sealed_where_it_is_asked_for_and_where_nothing_is_stored(body: dict[str, Any]) -> None:
    _, response = await client_of(scripted(THINKS)).create(input="hi", **body)
    assert reasoning_of(response)["encrypted_content"]
    assert "teal" not in reasoning_of(response)["encrypted_content"]


@pytest.mark.parametrize("body", [{}, {"store": True}, {"include": ["message.output_text.logprobs"]}])
async def test_it_is_not_sealed_otherwise(body: dict[str, Any]) -> None:
    _, response = await client_of(scripted(THINKS)).create(input="hi", **body)
    assert "encrypted_content" not in reasoning_of(response)


async def test_what_is_replayed_is_read_also_by_another_server_with_the_same_key() -> None:
    seals = Seals.fresh()
    _, response = await client_of(scripted(THINKS), seals=seals, principal="me").create(input="hi", store=False)
    tokens = SilentTokens()
    other = client_of(harmony(tokens), seals=seals, principal="me")
    await replay(other, reasoning_of(response), store=False)
    assert "<|channel|>analysis<|message|>The colour of the door is teal.<|end|>" in shown(tokens)


@pytest.mark.parametrize(("seals", "principal"), [(None, "me"), ("same", "somebody else")])
async def test_another_key_or_principal_reads_nothing_and_fails_nothing(
    seals: str | None, principal: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    own = Seals.fresh()
    _, response = await client_of(scripted(THINKS), seals=own, principal="me").create(input="hi", store=False)
    tokens = SilentTokens()
    other = client_of(harmony(tokens), seals=own if seals else None, principal=principal)
    await replay(other, reasoning_of(response), store=False)
    assert "teal" not in shown(tokens)
    assert "what colour?" in shown(tokens)
    assert reasoning_of(response)["encrypted_content"] not in caplog.text


async def test_the_input_items_of_a_stored_response_are_as_the_client_sent_them() -> None:
    client = client_of(scripted(THINKS))
    _, response = await client.create(input="hi", **REASONING_ASKED)
    bare = {key: value for key, value in reasoning_of(response).items() if key != "content"}
    done, _ = await client.create(input=[bare, {"role": "user", "content": "go on"}])
    state = await client.services.store.get("", done.response.id)
    assert state is not None
    assert not state.input_items()[0].reasoning.content
    assert state.transcript.new
    assert state.input[0].text() == "The colour of the door is teal."


async def test_a_reference_leads_to_an_item_of_a_stored_response_of_the_same_principal() -> None:
    client = client_of(scripted(THINKS), principal="me")
    store = client.services.store
    assert isinstance(store, MemoryStore)
    _, response = await client.create(input="hi")
    message = response["output"][1]
    assert message["type"] == "message"
    assert list(store.find_items("me", {message["id"], "msg_none"})) == [message["id"]]
    assert not store.find_items("you", {message["id"]})
    reference = {"type": "item_reference", "id": message["id"]}
    done, _ = await client.create(input=[reference, {"role": "user", "content": "a"}])
    state = await store.get("me", done.response.id)
    assert state is not None
    assert state.input[0].text() == "Done."
    assert state.input_items()[0].item_reference.id == message["id"]
