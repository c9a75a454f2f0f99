"""The settings of a request after inheritance."""

from __future__ import annotations

from typing import Final

from turnwire.server.session.state import State
from turnwire.server.session.toolsets import NO_TOOLS, Tools, ToolSets
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import reject
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Role
from turnwire.v1.json.refusal import shown
from turnwire.v1.response_pb2 import Input, ResponseCreate

INHERITABLE: Final = (
    "model",
    "instructions",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "temperature",
    "top_p",
    "truncation",
    "include",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "seed",
    "logit_bias",
)
"""Settings that `inherit` takes from the previous response, besides tools."""
_RESETTABLE: Final = frozenset({*INHERITABLE, "tools"})
_REPEATED: Final = frozenset({"include", "stop", "logit_bias"})


def check_reset(create: ResponseCreate) -> None:
    """Checks the names in `reset`.

    Raises:
        RequestError: A name that cannot be inherited, or `reset` without `inherit`.
    """
    if create.reset and not create.inherit:
        raise reject("invalid_value", "'reset' needs 'inherit': without it nothing is inherited.", param="reset")
    for index, name in enumerate(create.reset):
        if name not in _RESETTABLE:
            names = ", ".join(sorted(_RESETTABLE))
            message = f"Invalid value: '{shown(name)}'. Settings that can be reset are: {names}."
            raise reject("invalid_value", message, param=f"reset[{index}]", value=shown(name))


def effective(create: ResponseCreate, parent: State | None, sets: ToolSets) -> tuple[ResponseCreate, Tools]:
    """Returns the settings in force for a request, without input, tools and parent, and its tools.

    Costs the settings and what is new, never the history.
    """
    settings = ResponseCreate()
    # Copy field by field: the input may hold megabytes that the settings must not pin.
    for field, value in create.ListFields():
        # The parent neither, so that the settings of a chain are the same bytes.
        if field.name in ("input", "tools", "previous_response_id"):
            continue
        if field.is_repeated or field.message_type is not None:
            getattr(settings, field.name).MergeFrom(value)
        else:
            setattr(settings, field.name, value)
    tools = sets.intern(create.tools) if create.HasField("tools") else NO_TOOLS
    if create.inherit and parent is not None:
        _inherit(settings, parent.parsed_settings(), frozenset(create.reset))
        if not create.HasField("tools") and "tools" not in create.reset:
            tools = sets.again(parent.tools)
    return settings, tools


def _inherit(settings: ResponseCreate, previous: ResponseCreate, reset: frozenset[str]) -> None:
    for name in INHERITABLE:
        if name in reset:
            continue
        if name in _REPEATED:
            if not getattr(settings, name):
                getattr(settings, name).MergeFrom(getattr(previous, name))
        elif not settings.HasField(name) and previous.HasField(name):  # type: ignore[arg-type]
            value = getattr(previous, name)
            if hasattr(value, "CopyFrom"):
                getattr(settings, name).CopyFrom(value)
            else:
                setattr(settings, name, value)


def input_items(given: Input) -> list[Item]:
    """Returns the items that an input stands for; text is one user message."""
    match given.WhichOneof("form"):
        case "text":
            return [Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=given.text)))]
        case "items":
            return list(given.items.items)
        case _:
            return []


def stores(settings: ResponseCreate) -> bool:
    """Whether a response is stored: it is, where nothing is said."""
    return settings.store or not settings.HasField("store")


def seals_reasoning(settings: ResponseCreate) -> bool:
    """Whether reasoning items carry `encrypted_content`: where it is asked for, and where nothing is stored."""
    return "reasoning.encrypted_content" in settings.include or not stores(settings)


def prewarms(request: ConnectRequest) -> bool:
    """Whether a create only prepares state."""
    create = request.create
    return (create.HasField("generate") and not create.generate) or '"prewarm":true' in "".join(
        create.prompt_cache_options.split()
    )
