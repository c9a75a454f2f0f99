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
from turnwire.v1.errors import RequestError
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
    background: bool | None
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
        TypeError: A field does not exist, or is of another type; the text names it.
        ValueError: A value is not one that its field takes; the text names it.
    """
    body = ResponseCreate()
    for name, value in fields.items():
        if name not in ResponseCreate.DESCRIPTOR.fields_by_name:
            msg = f"create has no field {name!r}; see turnwire.v1.ResponseCreate"
            raise TypeError(msg)
        if value is None:
            continue
        try:
            # One by one, since what protobuf says of all together does not name the field.
            body.MergeFrom(ResponseCreate(**{name: _build_field(name, value)}))  # type: ignore[arg-type]
        except TypeError as error:
            msg = f"{name}: {error}"
            raise TypeError(msg) from error
        except (ValueError, OverflowError) as error:
            msg = f"{name}: {error}"
            raise ValueError(msg) from error
    return body


def _build_field(name: str, value: object) -> object:
    if name == "input":
        return build_input(cast("InputLike", value))
    if name == "tools":
        return build_tools(cast("Iterable[ToolLike] | ToolSet", value))
    if name == "tool_choice":
        return _build(ToolChoice, value)
    if name == "text":
        return _build(TextConfig, value)
    if name == "reasoning":
        return _build(ReasoningConfig, value)
    if name == "verbosity":
        return build_verbosity(cast("VerbosityLike", value))
    if name == "timeouts":
        return _build_timeouts(cast("TimeoutsDict | Timeouts", value))
    if isinstance(value, str) and ResponseCreate.DESCRIPTOR.fields_by_name[name].is_repeated:
        # Python would take it for a list of its characters.
        msg = "a list of texts is needed, not str"
        raise TypeError(msg)
    return _json_text(value) if name in _JSON_TEXT else value


def build_input(value: InputLike) -> Input:
    """Builds the input of a create or steer.

    Raises:
        TypeError: It is neither text nor items.
        ValueError: An item is none; the text has the path to what is wrong.
    """
    if isinstance(value, Input):
        return value
    if isinstance(value, str):
        return Input(text=value)
    return Input(items=InputItems(items=build_items(value)))


def build_items(values: Iterable[ItemLike] | ItemLike) -> list[Item]:
    """Builds items; one alone stands for a list of one.

    Raises:
        TypeError: They are no items.
        ValueError: One of them is none; the text has the path to what is wrong.
    """
    if isinstance(values, (Item, Mapping)):
        values = [cast("ItemLike", values)]
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
    if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"a dict of seconds is needed, not {type(value).__name__}"
        raise TypeError(msg)
    return Timeouts(**{name: build_duration(cast("Seconds", seconds)) for name, seconds in value.items()})


def _build(message_type: type[M], value: object) -> M:
    if isinstance(value, message_type):
        return value
    if not isinstance(value, Mapping) and not (message_type is ToolChoice and isinstance(value, str)):
        msg = f"a dict or {message_type.__name__} is needed, not {type(value).__name__}"
        raise TypeError(msg)
    try:
        return from_json(message_type, msgspec.json.encode(value))
    except RequestError as refusal:
        error = refusal.error
        raise ValueError(f"{error.param}: {error.message}" if error.param else error.message) from refusal


def _json_text(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()
    return [one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in cast("list[object]", value)]
