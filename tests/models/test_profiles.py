"""What a profile does to requests, which are refused before anything changes, and to passes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.profile import Capabilities, ModelProfile, Price
from turnwire.server.engine.profiled import ProfiledEngine, shape
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.policy.prepare import Preparer
from turnwire.server.session.chunks import Chunk, EngineFailure, Finish
from turnwire.server.session.effects import Prepare
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.toolsets import NO_TOOLS, Tools, ToolSets
from turnwire.server.session.transcript import EMPTY
from turnwire.v1.error_pb2 import Error
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import (
    ContentPart,
    ContentParts,
    FunctionCallOutput,
    InputImage,
    Item,
    Message,
    MessageContent,
    Role,
    ToolOutput,
)
from turnwire.v1.response_pb2 import (
    JsonSchemaFormat,
    ReasoningConfig,
    ResponseCreate,
    TextConfig,
    TextFormat,
    TokenOutputRequest,
)
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolChoice, ToolChoiceMode, ToolSet

TOOLS = ToolSets().intern(ToolSet(tools=[Tool(function=FunctionTool(name="f", parameters='{"type":"object"}'))]))
JSON_SCHEMA = TextConfig(format=TextFormat(json_schema=JsonSchemaFormat(name="n", schema='{"type":"object"}')))
PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgBwAACQAIICPDjAAAAABJRU5ErkJggg=="
)
LOGPROBS = "message.output_text.logprobs"
NOTHING = Capabilities(
    images=False, tools=False, parallel_tools=False, json_schema=False, reasoning=False, logprobs=False
)


class Kept:
    """A sink that keeps the outcome."""

    def __init__(self) -> None:
        self.outcome: Finish | EngineFailure | None = None
        self.over = asyncio.Event()

    def output(self, chunks: Sequence[Chunk]) -> None:
        raise AssertionError(chunks)

    def ended(self, outcome: Finish | EngineFailure) -> None:
        self.outcome = outcome
        self.over.set()


def prompt_of(tools: Tools = NO_TOOLS, tokens: int = 10, **settings: Any) -> Prompt:
    return Prompt(
        pass_id=1,
        response_id="resp_1",
        model="m",
        settings=ResponseCreate(**settings),
        tools=tools,
        transcript=EMPTY,
        turn=0,
        input_tokens=tokens,
        cached_tokens=0,
    )


def prepare(profile: ModelProfile, tools: Tools = NO_TOOLS, items: Sequence[Item] = (), **settings: Any) -> None:
    registry = EngineRegistry([StepEngine([ModelInfo("m", aliases=("short",), profile=profile)])])
    preparer = Preparer(registry.resolve, SessionLimits(), count=len, profile=registry.profile)
    create = ResponseCreate(model="short", **settings)
    prepared = preparer.prepare(Prepare(1, items, create, tools, frozenset(), 0))
    assert prepared.model == "m"


def refused(profile: ModelProfile, tools: Tools = NO_TOOLS, items: Sequence[Item] = (), **settings: Any) -> Error:
    with pytest.raises(RequestError) as caught:
        prepare(profile, tools, items, **settings)
    return caught.value.error


REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"tools": TOOLS}, "tools"),
    ({"parallel_tool_calls": True}, "parallel_tool_calls"),
    ({"text": JSON_SCHEMA}, "text.format"),
    ({"reasoning": ReasoningConfig(effort="high")}, "reasoning.effort"),
    ({"reasoning": ReasoningConfig(summary="auto")}, "reasoning.summary"),
    ({"include": [LOGPROBS]}, "include"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"token_output": TokenOutputRequest(logprobs=True)}, "token_output.logprobs"),
]


@pytest.mark.parametrize(("request_", "param"), REQUESTS)
def test_what_a_model_cannot_do_is_refused_by_its_path(request_: dict[str, Any], param: str) -> None:
    error = refused(ModelProfile(capabilities=NOTHING), **request_)

    assert (error.code, error.param) == ("unsupported_parameter", param)
    assert error.message.endswith("is not supported with this model.")
    prepare(ModelProfile(), **request_)
    prepare(ModelProfile(capabilities=NOTHING, ignores=True), **request_)


def test_the_words_are_those_of_the_public_api() -> None:
    profile = ModelProfile(unsupported=frozenset({"temperature", "text.verbosity"}), capabilities=NOTHING)

    error = refused(profile, temperature=1.0)
    assert error.message == "Unsupported parameter: 'temperature' is not supported with this model."
    assert refused(profile, text=TextConfig(verbosity="low")).param == "text.verbosity"
    schema = "Invalid parameter: 'text.format' of type 'json_schema' is not supported with this model."
    assert refused(profile, text=JSON_SCHEMA).message == schema
    too_many = refused(ModelProfile(max_output_tokens=100), max_output_tokens=101)
    assert too_many.message == (
        "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 100, but got 101 instead."
    )


def test_asking_for_nothing_is_always_fine() -> None:
    profile = ModelProfile(capabilities=NOTHING, unsupported=frozenset({"temperature"}), max_output_tokens=100)

    prepare(profile, parallel_tool_calls=False, reasoning=ReasoningConfig(effort="none"), max_output_tokens=100)


@pytest.mark.parametrize("ignores", [False, True])
def test_images_are_refused_however_lenient_the_profile(ignores: bool) -> None:
    profile = ModelProfile(capabilities=NOTHING, ignores=ignores)
    parts = ContentParts(parts=[ContentPart(input_image=InputImage(image_url=PNG))])
    message = Item(message=Message(role=Role.ROLE_USER, content=MessageContent(parts=parts)))
    output = Item(function_call_output=FunctionCallOutput(call_id="c", output=ToolOutput(parts=parts)))

    assert refused(profile, items=[message]).param == "input[0].content[0]"
    assert refused(profile, items=[output]).param == "input[0].output[0]"
    prepare(ModelProfile(), items=[message])


def test_defaults_stand_in_for_what_a_request_does_not_say() -> None:
    defaults = ResponseCreate(temperature=0.5, top_p=0.9, stop=["END"], reasoning=ReasoningConfig(effort="low"))
    given = prompt_of(temperature=0.0, stop=["x"], reasoning=ReasoningConfig(summary="auto"))

    settings = shape(given, ModelProfile(defaults=defaults)).settings

    assert (settings.temperature, settings.top_p, list(settings.stop)) == (0.0, 0.9, ["x"])
    assert settings.reasoning == ReasoningConfig(effort="low", summary="auto")
    assert given.settings.HasField("top_p") is False
    assert list(shape(prompt_of(), ModelProfile(defaults=defaults)).settings.stop) == ["END"]


def test_what_is_ignored_does_not_reach_the_engine() -> None:
    profile = ModelProfile(
        capabilities=NOTHING, unsupported=frozenset({"temperature"}), max_output_tokens=100, ignores=True
    )
    given = prompt_of(
        TOOLS,
        tool_choice=ToolChoice(mode=ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED),
        parallel_tool_calls=True,
        text=JSON_SCHEMA,
        reasoning=ReasoningConfig(effort="high"),
        include=[LOGPROBS, "reasoning.encrypted_content"],
        top_logprobs=3,
        token_output=TokenOutputRequest(in_done=True, logprobs=True),
        temperature=1.0,
        top_p=0.5,
        max_output_tokens=1000,
    )

    shaped = shape(given, profile)

    assert shaped.tools is NO_TOOLS
    assert shaped.settings == ResponseCreate(
        text=TextConfig(),
        reasoning=ReasoningConfig(),
        include=["reasoning.encrypted_content"],
        token_output=TokenOutputRequest(in_done=True),
        top_p=0.5,
        max_output_tokens=100,
    )


async def test_a_prompt_that_does_not_fit_fails_its_pass() -> None:
    inner = StepEngine([ModelInfo("m")])
    engine = ProfiledEngine(inner, [ModelInfo("m", profile=ModelProfile(context_length=100))])
    sink, gone = Kept(), Kept()

    engine.start(prompt_of(tokens=101), gone).abort()
    engine.start(prompt_of(tokens=60, max_output_tokens=41), sink)
    assert sink.outcome is None
    async with asyncio.timeout(5):
        await sink.over.wait()

    assert gone.outcome is None
    assert sink.outcome == EngineFailure(
        "context_length_exceeded",
        "Your input exceeds the context window of this model: it has 100 tokens, and you asked for 101 (60 in the"
        " input, 41 for the output).",
    )
    assert inner.passes == []
    engine.start(prompt_of(tokens=60, max_output_tokens=40), sink)
    assert len(inner.passes) == 1


async def test_an_engine_that_counts_itself_is_asked_whatever_the_count() -> None:
    inner = StepEngine([ModelInfo("m")])
    engine = ProfiledEngine(inner, [ModelInfo("m", profile=ModelProfile(context_length=100))], counts=True)

    engine.start(prompt_of(tokens=101), Kept())
    await engine.aclose()

    assert len(inner.passes) == 1
    assert inner.closed


def test_the_engine_says_what_the_profile_leaves_open() -> None:
    inner = StepEngine([ModelInfo("m", context_length=5), ModelInfo("hidden")])

    assert ProfiledEngine(inner, [ModelInfo("m")]).models() == [ModelInfo("m", context_length=5)]
    told = ModelInfo("m", context_length=3)
    assert ProfiledEngine(inner, [told]).models() == (told,)


def test_ids_win_over_aliases_and_answers_name_the_id() -> None:
    first = StepEngine([ModelInfo("a", aliases=("b", "c"))])
    second = StepEngine([ModelInfo("b")])
    registry = EngineRegistry([first, second])

    assert [registry.resolve(name) for name in ("a", "b", "c")] == ["a", "b", "a"]
    assert registry.engine(registry.resolve("c")) is first
    assert [info.id for info, _ in registry.models()] == ["a", "b"]
    with pytest.raises(RequestError, match="does not exist"):
        registry.resolve("d")


def test_a_price_counts_cached_tokens_apart() -> None:
    assert Price(input=2.0, cached=0.5, output=8.0).of(1_000_000, 400_000, 250_000) == pytest.approx(3.4)
