from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.engine.chat.names import wire_name
from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.engine.chat.tools import NOTHING, Target, ToolCache
from turnwire.server.session.chunks import CallKind
from turnwire.server.session.toolsets import NO_TOOLS

from .scene import tool_set


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, **more}


def encoded(*tools: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ToolCache().get(tool_set(*tools)).json)
    return found


def test_functions_keep_their_schema_byte_for_byte() -> None:
    tools = tool_set({"type": "function", "name": "f", "description": "d", "strict": True})
    tools.parsed().tools[0].function.parameters = '{"b": 1.0,  "a": {}}'
    assert b'"parameters":{"b": 1.0,  "a": {}}' in ToolCache().get(tools).json
    assert json.loads(ToolCache().get(tools).json)[0]["function"]["strict"] is True


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    tools = tool_set({"type": "custom", "name": "patch", "description": "Patches.", "format": grammar})
    made = json.loads(ToolCache().get(tools).json)[0]["function"]
    assert list(made["parameters"]["properties"]) == ["input"]
    assert "Patches." in made["description"]
    assert "start: x" in made["description"]
    assert ToolCache().get(tools).targets == {"patch": Target("patch", CallKind.CUSTOM)}


def test_a_namespace_is_a_prefix_and_its_purpose_is_said_once() -> None:
    group = {
        "type": "namespace",
        "name": "fs",
        "description": "Files.",
        "tools": [function("read", description="Reads."), function("write")],
    }
    tools = tool_set(function("read"), group)
    kept = ToolCache().get(tools)
    assert list(kept.targets.values()) == [
        Target("read", CallKind.FUNCTION),
        Target("fs.read", CallKind.FUNCTION),
        Target("fs.write", CallKind.FUNCTION),
    ]
    made = [tool["function"] for tool in json.loads(kept.json)]
    assert [tool["name"] for tool in made] == ["read", "fs__read", "fs__write"]
    assert made[1]["description"] == "Files.\n\nReads."
    assert "description" not in made[2]
    assert (kept.find("read"), kept.find("fs.write"), kept.find("write"), kept.find("x")) == (
        "read",
        "fs__write",
        "fs__write",
        None,
    )


def test_tools_that_are_no_functions_are_left_out_and_counted() -> None:
    kept = ToolCache().get(tool_set({"type": "local_shell"}, function("f"), {"type": "file_search"}))
    assert (list(kept.functions), kept.skipped) == (["f"], 2)
    assert ToolCache().get(tool_set({"type": "local_shell"})).json == b""
    assert ToolCache().get(NO_TOOLS) is NOTHING


def test_tools_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(Refusal, match=r"'a__b' and 'a\.b'"):
        encoded(function("a__b"), function("a.b"))


def test_a_set_is_encoded_once_however_often_it_is_used() -> None:
    cache = ToolCache(max_sets=2)
    sets = [tool_set(function(name)) for name in ("a", "b")]
    for _ in range(100):
        for tools in sets:
            cache.get(tools)
    assert cache.encoded == 2
    cache.get(tool_set(function("c")))
    cache.get(sets[1])
    assert cache.encoded == 3
    cache.get(sets[0])
    assert cache.encoded == 4


def test_names_fit_every_upstream_and_stay_different() -> None:
    names = ["f", "a.b", "a:b", "a b", "x" * 64, "x" * 65, "x" * 128, "é", "è", ""]
    wires = [wire_name(name) for name in names]
    assert len(set(wires)) == len(names)
    assert all(1 <= len(wire) <= 64 and wire.replace("_", "").replace("-", "").isascii() for wire in wires)
    assert wires[:2] == ["f", "a__b"]
