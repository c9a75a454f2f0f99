"""Counting and compacting say what a create would start from, and refuse what it would refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.runtime.callers import Client, SilentTokens, client_of, harmony, kinds, scripted

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.profile import ModelProfile
from turnwire.server.engine.profiled import ProfiledEngine
from turnwire.server.engine.spread import SpreadEngine
from turnwire.server.prompt import vocabulary
from turnwire.server.routing.pool import Pool
from turnwire.server.sealing import Seals
from turnwire.v1.errors import RequestError

SAYS = """
[model]
names = ["m"]
[[turn]]
reasoning = "Thinking aloud."
text = "Here you are, in a few words."
"""
TOOLS = [
    {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
]
BODIES: list[dict[str, Any]] = [
    {"input": "hello there"},
    {
        "input": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}],
        "instructions": "Be brief.",
    },
    {"input": "x", "tools": TOOLS, "tool_choice": "auto", "reasoning": {"effort": "high"}},
    {"input": "long " * 20_000},
    {"input": "hi", "stream": True, "store": False, "generate": False},
]


def engines() -> dict[str, Any]:
    def rendered() -> Any:
        return harmony(SilentTokens())

    return {
        "scripted": lambda: scripted(SAYS),
        "tokens": rendered,
        "profiled": lambda: ProfiledEngine(rendered(), [ModelInfo("m", profile=ModelProfile())], counts=True),
        "several": lambda: SpreadEngine(Pool([("a", rendered(), 1.0), ("b", rendered(), 1.0)])),
    }


@pytest.fixture(params=engines())
async def client(request: pytest.FixtureRequest) -> Client:
    return client_of(engines()[request.param]())


@pytest.mark.parametrize("body", BODIES, ids=lambda body: json.dumps(body)[:50])
async def test_the_count_is_what_the_usage_of_the_create_says(client: Client, body: dict[str, Any]) -> None:
    counted = await client.count(**body)
    done, _ = await client.create(**{**body, "generate": True})
    assert counted == done.usage.input_tokens > 0


async def test_the_count_includes_the_chain(client: Client) -> None:
    first, _ = await client.create(input="tell me something")
    body = {"input": "and more", "previous_response_id": first.response.id}
    counted = await client.count(**body)
    second, _ = await client.create(**body)
    assert counted == second.usage.input_tokens > first.usage.input_tokens


async def test_counting_leaves_nothing_behind(client: Client) -> None:
    await client.count(input="hi")
    assert not client.services.sessions
    first, _ = await client.create(input="hi")
    assert first.passes == 1


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"model": "", "input": "a"}, "missing_required_parameter", "model"),
    ({"model": "none", "input": "a"}, "model_not_found", "model"),
    ({"input": []}, "missing_required_parameter", "input"),
    ({"input": "a", "previous_response_id": "resp_0"}, "previous_response_not_found", "previous_response_id"),
    ({"input": [{"role": "user", "content": []}], "temperature": 3}, "invalid_value", "temperature"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        "invalid_request_error",
        "input",
    ),
]


@pytest.mark.parametrize(("body", "code", "param"), REFUSED, ids=lambda value: str(value)[:40])
async def test_what_a_create_refuses_is_refused(client: Client, body: dict[str, Any], code: str, param: str) -> None:
    for ask in (client.count, client.compact, client.create):
        with pytest.raises(RequestError) as caught:
            await ask(**body)
        assert (caught.value.error.code, caught.value.error.param) == (code, param)


CONVERSATION: list[dict[str, Any]] = [
    {"role": "developer", "content": "Obey the style guide."},
    {"role": "user", "content": "Fix the parser."},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hmm hmm."}]},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"parser.py"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "def parse(): ..."},
    {"role": "assistant", "content": "The parser is fixed."},
    {"type": "acme:step", "id": "x1"},
    {"type": "compaction", "encrypted_content": "of-another-server"},
    {"role": "user", "id": "msg_mine", "content": [{"type": "input_text", "text": "Now the printer."}]},
]


class TestCompaction:
    """The window is what people said and one item, which the next prompt shows as an extract."""

    async def test_the_window_keeps_what_people_said_and_ends_in_one_item(self) -> None:
        client = client_of(scripted(SAYS))
        answer = await client.compact(input=CONVERSATION, instructions="x")
        assert answer["object"] == "response.compaction"
        assert answer["id"].startswith("resp_")
        output = answer["output"]
        assert kinds(output) == ["message", "message", "compaction", "message", "compaction"]
        texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
        assert texts == ["Obey the style guide.", "Fix the parser.", "Now the printer."]
        assert output[2]["encrypted_content"] == "of-another-server"
        assert output[3]["id"] == "msg_mine"
        assert all(item["id"] for item in output if item["type"] == "message")
        assert output[-1]["id"].startswith("cmp_")
        usage = answer["usage"]
        assert usage["input_tokens"] == await client.count(input=CONVERSATION, instructions="x")
        assert usage["output_tokens"] > 0
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]

    async def test_the_next_prompt_shows_the_extract_also_on_another_server_with_the_key(self) -> None:
        seals, tokens = Seals.fresh(), SilentTokens()
        answer = await client_of(scripted(SAYS), seals=seals).compact(input=CONVERSATION)
        other = client_of(harmony(tokens), seals=seals)
        done, _ = await other.create(input=[*answer["output"], {"role": "user", "content": "Go on."}])
        assert done.reason == 2
        prompt = vocabulary.encoding().decode(tokens.prompts[-1])
        for said in (
            "<|start|>developer<|message|># Instructions\n\nEarlier parts of this conversation were compacted.",
            'called read {"path":"parser.py"}\nreturned: def parse(): ...\nassistant: The parser is fixed.',
            "step of type acme:step",
            "<|start|>user<|message|>Fix the parser.<|end|>",
        ):
            assert said in prompt
        assert "Hmm hmm." not in prompt
        assert "of-another-server" not in prompt

    async def test_a_stored_chain_is_compacted_whole_and_a_digest_goes_into_the_next_one(self) -> None:
        seals, tokens = Seals.fresh(), SilentTokens()
        client = client_of(scripted(SAYS), seals=seals)
        first, _ = await client.create(input="First question.")
        once = await client.compact(previous_response_id=first.response.id, input="Second question.")
        texts = [item["content"][0]["text"] for item in once["output"] if item["type"] == "message"]
        assert texts == ["First question.", "Second question."]
        second, _ = await client.create(input=[*once["output"], {"role": "user", "content": "Third question."}])
        twice = await client.compact(previous_response_id=second.response.id)
        assert kinds(twice["output"]).count("compaction") == 1
        other = client_of(harmony(tokens), seals=seals)
        await other.create(input=twice["output"])
        prompt = vocabulary.encoding().decode(tokens.prompts[-1])
        assert prompt.count("assistant: Here you are, in a few words.") == 2

    async def test_a_trigger_among_the_input_asks_for_what_is_done_anyway(self) -> None:
        answer = await client_of(scripted(SAYS)).compact(input=[*CONVERSATION, {"type": "compaction_trigger"}])
        assert kinds(answer["output"])[-1] == "compaction"

    async def test_a_large_conversation_is_compacted_to_the_budget(self) -> None:
        client = client_of(scripted(SAYS))
        steps: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        for n in range(300):
            steps.append(
                {"type": "function_call", "call_id": f"c{n}", "name": "run", "arguments": json.dumps({"n": n})}
            )
            steps.append({"type": "function_call_output", "call_id": f"c{n}", "output": "word " * 2000})
        answer = await client.compact(input=steps)
        assert answer["usage"]["input_tokens"] > 600_000
        assert answer["usage"]["output_tokens"] <= 4096 + 10
        assert kinds(answer["output"]) == ["message", "compaction"]
