"""Builds the body of a create from what an application writes.

Below: the generated messages and the JSON codec. Above: sessions, lanes and streams. Pure. Messages are taken as they
are; dicts and lists in the official JSON shape go through the codec, so that whatever works with the public API works
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal, TypeAlias, TypedDict, TypeVar, cast

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from turnwire.v1 import annotations_pb2
from turnwire.v1.item_pb2 import Item
from turnwire.v1.json import from_json
from turnwire.v1.response_pb2 import (
    Input,
    InputItems,
    ReasoningConfig,
    ResponseCreate,
    TextConfig,
    Timeouts,
    TokenOutputRequest,
    Verbosity,
)
from turnwire.v1.tool_pb2 import Tool, ToolChoice, ToolSet

M = TypeVar("M", bound=Message)

JsonObject: TypeAlias = Mapping[str, object]
"""An object in the official JSON shape."""

ItemLike: TypeAlias = Item | JsonObject
"""An item as a message or as a dict in the official JSON shape."""

InputLike: TypeAlias = str | Iterable[ItemLike] | Input
"""Text of one user message, or items, oldest first."""

ToolLike: TypeAlias = Tool | JsonObject
"""A tool as a message or as a dict in the official JSON shape."""

VerbosityLike: TypeAlias = Literal["full", "deltas", "items", "done"] | Verbosity.ValueType
"""How much of a stream to send."""

Seconds: TypeAlias = float | timedelta
"""A length of time."""


class TimeoutsDict(TypedDict, total=False):
    """Time-outs of a response, each capped by the server."""

    total: Seconds
    """From acceptance to the end, holds included."""
    first_token: Seconds
    """From the start of a pass to its first token."""
    hold: Seconds
    """How long a held response waits for appends at one pause."""


class CreateFields(TypedDict, total=False):
    """What a create may say; None means unset. See `ResponseCreate` for each."""

    model: str | None
    input: InputLike | None
    instructions: str | None
    previous_response_id: str | None
    tools: Iterable[ToolLike] | ToolSet | None
    tool_choice: Literal["none", "auto", "required"] | JsonObject | ToolChoice | None
    parallel_tool_calls: bool | None
    store: bool | None
    metadata: Mapping[str, str] | None
    include: Sequence[str] | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    temperature: float | None
    top_p: float | None
    top_logprobs: int | None
    text: JsonObject | TextConfig | None
    reasoning: JsonObject | ReasoningConfig | None
    truncation: Literal["auto", "disabled"] | None
    service_tier: str | None
    prompt: str | JsonObject | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    prompt_cache_options: str | JsonObject | None
    context_management: Sequence[str | JsonObject] | None
    safety_identifier: str | None
    user: str | None
    conversation: str | JsonObject | None
    client_metadata: str | JsonObject | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    stop: Sequence[str] | None
    seed: int | None
    logit_bias: Mapping[str, float] | None
    generate: bool | None
    hold: bool | None
    inherit: bool | None
    reset: Sequence[str] | None
    verbosity: VerbosityLike | None
    timeouts: TimeoutsDict | Timeouts | None
    token_output: TokenOutputRequest | None
    echo: bool | None


_JSON_TEXT: Final = frozenset(
    field.name for field in ResponseCreate.DESCRIPTOR.fields if field.GetOptions().Extensions[annotations_pb2.json_text]
)
_VERBOSITIES: Final = {
    "full": Verbosity.VERBOSITY_FULL,
    "deltas": Verbosity.VERBOSITY_DELTAS,
    "items": Verbosity.VERBOSITY_ITEMS,
    "done": Verbosity.VERBOSITY_DONE,
}


def build_create(fields: CreateFields) -> ResponseCreate:
    """Builds the body.

    Raises:
        TypeError: A field does not exist.
        ValueError: A value cannot be read as what it stands for.
    """
    values: dict[str, object] = {}
    for name, value in fields.items():
        if name not in ResponseCreate.DESCRIPTOR.fields_by_name:
            msg = f"create has no field {name!r}; see turnwire.v1.ResponseCreate"
            raise TypeError(msg)
        if value is None:
            continue
        if name == "input":
            values[name] = build_input(cast("InputLike", value))
        elif name == "tools":
            values[name] = build_tools(cast("Iterable[ToolLike] | ToolSet", value))
        elif name == "tool_choice":
            values[name] = _build(ToolChoice, value)
        elif name == "text":
            values[name] = _build(TextConfig, value)
        elif name == "reasoning":
            values[name] = _build(ReasoningConfig, value)
        elif name == "verbosity":
            values[name] = build_verbosity(cast("VerbosityLike", value))
        elif name == "timeouts":
            values[name] = _build_timeouts(cast("TimeoutsDict | Timeouts", value))
        elif name in _JSON_TEXT:
            values[name] = _json_text(value)
        else:
            values[name] = value
    return ResponseCreate(**values)  # type: ignore[arg-type]


def build_input(value: InputLike) -> Input:
    """Builds the input of a create or steer."""
    if isinstance(value, Input):
        return value
    if isinstance(value, str):
        return Input(text=value)
    return Input(items=InputItems(items=build_items(value)))


def build_items(values: Iterable[ItemLike] | ItemLike) -> list[Item]:
    """Builds items; one alone stands for a list of one."""
    if isinstance(values, Item):
        return [values]
    if isinstance(values, Mapping):
        return [_build(Item, cast("JsonObject", values))]
    return [_build(Item, value) for value in values]


def build_tools(values: Iterable[ToolLike] | ToolSet) -> ToolSet:
    """Builds a tool set."""
    return values if isinstance(values, ToolSet) else ToolSet(tools=[_build(Tool, value) for value in values])


def build_verbosity(value: VerbosityLike) -> Verbosity.ValueType:
    """Reads a verbosity.

    Raises:
        ValueError: There is no such verbosity.
    """
    if not isinstance(value, str):
        return value
    try:
        return _VERBOSITIES[value]
    except KeyError:
        msg = f"no verbosity {value!r}; choose one of {', '.join(_VERBOSITIES)}"
        raise ValueError(msg) from None


def build_duration(value: Seconds) -> Duration:
    """Builds a length of time from seconds or a timedelta."""
    duration = Duration()
    duration.FromTimedelta(value if isinstance(value, timedelta) else timedelta(seconds=value))
    return duration


def _build_timeouts(value: TimeoutsDict | Timeouts) -> Timeouts:
    if isinstance(value, Timeouts):
        return value
    return Timeouts(**{name: build_duration(cast("Seconds", seconds)) for name, seconds in value.items()})


def _build(message_type: type[M], value: object) -> M:
    return value if isinstance(value, message_type) else from_json(message_type, msgspec.json.encode(value))


def _json_text(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()
    return [one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in cast("list[object]", value)]
