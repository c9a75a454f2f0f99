from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.server.engine.chat.body import BodyWriter
from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import style_of
from turnwire.server.engine.chat.history import Encoded, extend, missing
from turnwire.server.engine.chat.tools import ToolCache
from turnwire.server.session.transcript import EMPTY, Transcript

from .scene import create, grown, tool_set

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "read", "parameters": {}},
    {"type": "function", "name": "list", "parameters": {}},
    {"type": "custom", "name": "patch"},
]
HI = grown(EMPTY, {"role": "user", "content": "Hi"})


def body(
    *,
    flavour: str = "generic",
    tools: list[dict[str, Any]] | None = None,
    chain: Transcript = HI,
    config: dict[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    made = ChatEngineConfig("http://x/v1", flavour=flavour, **(config or {}))
    style = style_of(made, ChatModel("m"))
    parent, segments = missing(chain, style)
    history = extend(parent, segments, style, Encoded())
    text = b"".join(BodyWriter(made).write("m", create(**settings), history, ToolCache().get(tool_set(*(tools or [])))))
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_plain_request_says_no_more_than_it_must() -> None:
    assert body() == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Hi"}],
    }


def test_sampling_settings_are_passed_on_as_they_are() -> None:
    settings: dict[str, Any] = {
        "temperature": 0.0,
        "top_p": 0.5,
        "presence_penalty": -1.0,
        "frequency_penalty": 1.0,
        "seed": 7,
        "stop": ["a", "b"],
        "logit_bias": {"12": -5.0},
    }
    found = body(**settings)
    assert {name: found[name] for name in settings} == settings


def test_extensions_go_to_the_flavours_that_know_them() -> None:
    settings: dict[str, Any] = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2}
    assert settings.items() <= body(flavour="vllm", **settings).items()
    assert {"top_k": 5, "min_p": 0.1, "repeat_penalty": 1.2}.items() <= body(flavour="llamacpp", **settings).items()
    for flavour in ("openai", "ollama", "generic"):
        assert not {"top_k", "min_p", "repetition_penalty", "repeat_penalty"} & body(flavour=flavour, **settings).keys()
    assert "logit_bias" not in body(flavour="ollama", logit_bias={"1": 1.0})


@pytest.mark.parametrize(
    ("flavour", "name"),
    [("openai", "max_completion_tokens"), ("vllm", "max_completion_tokens"), ("llamacpp", "max_tokens")],
)
def test_the_output_limit_has_the_flavours_name(flavour: str, name: str) -> None:
    assert body(flavour=flavour, max_output_tokens=50)[name] == 50


def test_the_output_limit_can_be_given_another_name() -> None:
    assert body(config={"max_tokens_field": "n_predict"}, max_output_tokens=50)["n_predict"] == 50


def test_settings_of_this_server_are_never_forwarded() -> None:
    found = body(
        generate=True, hold=True, store=True, metadata={"a": "b"}, previous_response_id="resp_0", service_tier="flex"
    )
    assert found.keys() == body().keys()


def test_effort_user_and_the_official_parameters() -> None:
    settings: dict[str, Any] = {
        "reasoning": {"effort": "low"},
        "safety_identifier": "u1",
        "prompt_cache_key": "k",
        "text": {"verbosity": "low"},
    }
    found = body(flavour="openai", **settings)
    assert (found["reasoning_effort"], found["user"], found["prompt_cache_key"], found["verbosity"]) == (
        "low",
        "u1",
        "k",
        "low",
    )
    assert not {"prompt_cache_key", "verbosity"} & body(**settings).keys()


def test_text_formats_become_response_formats() -> None:
    assert "response_format" not in body(text={"format": {"type": "text"}})
    assert body(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    schema: dict[str, Any] = {"type": "object", "properties": {"z": {}, "a": {}}}
    wanted: dict[str, Any] = {"type": "json_schema", "name": "n", "schema": schema, "strict": True, "description": "d"}
    assert body(text={"format": wanted})["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": schema, "strict": True, "description": "d"},
    }


def test_logprobs_are_asked_for_where_the_request_includes_them() -> None:
    found = body(include=["message.output_text.logprobs"], top_logprobs=3)
    assert (found["logprobs"], found["top_logprobs"]) == (True, 3)
    assert not {"logprobs", "top_logprobs"} & body(top_logprobs=3).keys()


def test_instructions_stand_first_together_with_leading_system_messages() -> None:
    chain = grown(EMPTY, {"role": "system", "content": "Be good."}, {"role": "user", "content": "Hi"})
    assert body(chain=chain, instructions="Be brief.")["messages"][0] == {
        "role": "system",
        "content": "Be brief.\n\nBe good.",
    }
    assert body(chain=chain)["messages"][0] == {"role": "system", "content": "Be good."}
    official = body(chain=chain, flavour="openai", instructions="Be brief.")["messages"]
    assert [each["role"] for each in official] == ["developer", "system", "user"]


def test_a_request_without_items_has_its_instructions_alone() -> None:
    assert body(chain=EMPTY, instructions="x")["messages"] == [{"role": "system", "content": "x"}]


@pytest.mark.parametrize("mode", ["none", "auto", "required"])
def test_general_tool_choices_are_the_same_words(mode: str) -> None:
    found = body(tools=TOOLS, tool_choice=mode, parallel_tool_calls=False)
    assert (found["tool_choice"], found["parallel_tool_calls"], len(found["tools"])) == (mode, False, 3)


def test_without_tools_nothing_is_said_about_them() -> None:
    assert body(tool_choice="auto", parallel_tool_calls=True).keys() == body().keys()


@pytest.mark.parametrize("choice", [{"type": "function", "name": "read"}, {"type": "custom", "name": "patch"}])
def test_a_forced_tool_is_named(choice: dict[str, Any]) -> None:
    found = body(tools=TOOLS, tool_choice=choice)
    assert found["tool_choice"] == {"type": "function", "function": {"name": choice["name"]}}
    assert len(found["tools"]) == 3


def test_a_forced_tool_stands_alone_where_names_are_not_obeyed() -> None:
    found = body(flavour="llamacpp", tools=TOOLS, tool_choice={"type": "function", "name": "list"})
    assert found["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in found["tools"]] == ["list"]


def test_allowed_tools_are_named_or_stand_alone() -> None:
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "list"}, {"type": "custom", "name": "patch"}],
    }
    found = body(tools=TOOLS, tool_choice=choice)
    assert found["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in found["tools"]] == ["list", "patch"]
    official = body(flavour="openai", tools=TOOLS, tool_choice=choice)
    assert official["tool_choice"]["allowed_tools"]["mode"] == "required"
    assert len(official["tools"]) == 3


def test_a_choice_that_is_no_function_is_left_to_the_model() -> None:
    tools: list[dict[str, Any]] = [*TOOLS, {"type": "local_shell"}]
    assert "tool_choice" not in body(tools=tools, tool_choice={"type": "local_shell"})


def test_extra_members_win_but_not_over_what_the_answer_depends_on() -> None:
    extra: dict[str, Any] = {
        "temperature": 0.1,
        "chat_template_kwargs": {"x": 1},
        "stream": False,
        "messages": [],
        "stream_options": None,
    }
    found = body(config={"extra_body": extra}, temperature=1.0)
    assert found["temperature"] == 0.1
    assert found["chat_template_kwargs"] == {"x": 1}
    assert found["stream"] is True
    assert found["stream_options"] is None
    assert len(found["messages"]) == 1
