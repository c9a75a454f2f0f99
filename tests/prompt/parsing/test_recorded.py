"""Outputs that models and templates really produced, from the `canitoolcall` suite where it is installed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.prompt.parsing import parser_for

fixtures = pytest.importorskip("canitoolcall.fixtures")

FAMILIES = {
    "gpt-oss": {"": "harmony"},
    "llama": {"llama/l3": "llama", "llama/l4": "pythonic"},
    "mistral": {"": "mistral"},
    "qwen3-hermes": {"": "hermes"},
    "qwen3-xml": {"": "qwen-coder"},
    "glm": {"": "glm"},
    "deepseek": {
        "deepseek/v3-": "deepseek",
        "deepseek/vllm-v3-": "deepseek",
        "deepseek/v31-": "deepseek",
        "deepseek/vllm-v31-": "deepseek",
        "": "dsml",
    },
    "kimi": {"kimi/k2": "kimi"},
}
BY_DESIGN = {
    "gpt-oss/llamacpp-builtin-python-recipient": "what is meant for a tool nobody offers is kept, as reasoning",
    "mistral/vllm-v11-think-text": "reasoning has one pair of marks in each format",
    "glm/glm47-vllm-reasoning-without-open-tag": "nothing tells that what was said is reasoning",
    "qwen3-xml/bug-coder-text-after-call": "text behind a call is an item of its own",
    "kimi/k2i-vllm-noise-between-markers": "text between marks is kept",
    "kimi/k2i-vllm-content-after-tool-section": "text behind calls is kept",
}


def recorded() -> list[Any]:
    found: list[Any] = []
    for fixture in fixtures.load_fixtures():
        for start, output_format in FAMILIES.get(fixture.family, {}).items():
            if fixture.id.startswith(start):
                found.append(pytest.param(output_format, fixture, id=fixture.id))
                break
    return found


@pytest.mark.parametrize(("output_format", "fixture"), recorded())
def test_recorded_outputs_are_read_as_their_collectors_expect(run: Any, output_format: str, fixture: Any) -> None:
    if fixture.id in BY_DESIGN:
        pytest.skip(BY_DESIGN[fixture.id])
    opened = fixture.generation_prompt or ""
    if not opened and fixture.thinking and not fixture.raw_output.lstrip().startswith("<think>"):
        opened = {"kimi": "<think>", "glm": "<think>"}.get(output_format, "")
    schemas = {tool["function"]["name"]: json.dumps(tool["function"].get("parameters", {})) for tool in fixture.tools}
    parser = parser_for(output_format, prompt_text=opened, tools=schemas, schemas=schemas)
    pieces = [[token] for token in fixture.output_token_ids] if output_format == "harmony" else list(fixture.raw_output)
    items = run(parser, pieces, "length" if fixture.truncated else "stop")
    expected = fixture.expected
    if expected is None:
        # Broken on purpose: no more is asked than that nothing raises, and that no call looks complete and is not.
        return
    assert _joined(items, "text") == (expected.content or "").strip()
    assert _joined(items, "reasoning") == (expected.reasoning_content or "").strip()
    calls = [(item.name, json.loads(item.text or "{}")) for item in items if item.kind == "call" and item.ended]
    assert calls == [(call.name, call.arguments) for call in expected.tool_calls]


def _joined(items: list[Any], kind: str) -> str:
    return "\n".join(item.text for item in items if item.kind == kind).strip()
