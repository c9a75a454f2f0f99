"""The body of a chat request, put together from pieces that are encoded already.

Above it: `engine`. Below it: `history`, `tools` and `flavours`. The settings were checked before; what an upstream of
this flavour does not know is left out.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnwire.server.engine.chat.config import ChatEngineConfig
from turnwire.server.engine.chat.flavours import Flavour
from turnwire.server.engine.chat.history import History
from turnwire.server.engine.chat.messages import encode
from turnwire.server.engine.chat.tools import EncodedTools
from turnwire.server.prompt.parts import json_object
from turnwire.v1.response_pb2 import ResponseCreate, TextConfig
from turnwire.v1.tool_pb2 import NamedToolChoice, ToolChoiceMode

LOGPROBS: Final = "message.output_text.logprobs"
"""The value of `include` that asks for log-probabilities."""

_PLAIN: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed")
"""Settings that the chat API has under the same name."""

_MODES: Final = {
    ToolChoiceMode.TOOL_CHOICE_MODE_NONE: "none",
    ToolChoiceMode.TOOL_CHOICE_MODE_AUTO: "auto",
    ToolChoiceMode.TOOL_CHOICE_MODE_REQUIRED: "required",
}

_OWN: Final = frozenset({"model", "messages", "stream", "tools", "n", "store"})
"""Members of the body that extra members do not replace: the answer could not be read otherwise."""


class BodyWriter:
    """Writes the bodies of requests to one upstream."""

    def __init__(self, config: ChatEngineConfig) -> None:
        """Takes what is the same for all requests."""
        self._flavour = config.kind
        self._max_tokens = config.max_tokens_field or config.kind.max_tokens
        self._extra = {key: value for key, value in config.extra_body.items() if key not in _OWN}

    def write(self, model: str, settings: ResponseCreate, history: History, tools: EncodedTools) -> list[bytes]:
        """Returns the body in pieces. Costs the encoding of the settings; nothing of the history is copied."""
        parameters: dict[str, Any] = {
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
            **sampling(settings, self._flavour, self._max_tokens),
        }
        offered, choice = tool_choice(settings, tools, self._flavour)
        if offered:
            parameters |= choice
            parameters["tools"] = msgspec.Raw(offered)
        parameters.update(self._extra)
        pieces = [encode(parameters)[:-1], b',"messages":[']
        first = _instructions(settings, history, self._flavour)
        if first:
            pieces += (first, b",")
        for message in history.joined():
            pieces += (message, b",")
        if pieces[-1] == b",":
            pieces.pop()
        pieces.append(b"]}")
        return pieces


def _instructions(settings: ResponseCreate, history: History, flavour: Flavour) -> bytes:
    texts = [settings.instructions, *history.lead] if settings.instructions else list(history.lead)
    if not texts:
        return b""
    role = "developer" if flavour.developer_role else "system"
    return encode({"role": role, "content": "\n\n".join(texts)})


def sampling(settings: ResponseCreate, flavour: Flavour, max_tokens: str) -> dict[str, Any]:
    """Returns the parameters for what a request's settings say, tools apart."""
    found: dict[str, Any] = {}
    for name in _PLAIN:
        if settings.HasField(name):
            found[name] = getattr(settings, name)
    for name, known_as in flavour.extensions.items():
        if settings.HasField(name):  # type: ignore[arg-type]
            found[known_as] = getattr(settings, name)
    if settings.HasField("max_output_tokens"):
        found[max_tokens] = settings.max_output_tokens
    if settings.stop:
        found["stop"] = list(settings.stop)
    if settings.logit_bias and flavour.logit_bias:
        found["logit_bias"] = dict(settings.logit_bias)
    if LOGPROBS in settings.include:
        found["logprobs"] = True
        if settings.top_logprobs:
            found["top_logprobs"] = settings.top_logprobs
    if settings.reasoning.effort:
        found["reasoning_effort"] = settings.reasoning.effort
    if settings.HasField("text"):
        found |= _text(settings.text, flavour)
    if settings.user or settings.safety_identifier:
        found["user"] = settings.user or settings.safety_identifier
    if flavour.official and settings.prompt_cache_key:
        found["prompt_cache_key"] = settings.prompt_cache_key
    return found


def _text(text: TextConfig, flavour: Flavour) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if flavour.official and text.verbosity:
        found["verbosity"] = text.verbosity
    match text.format.WhichOneof("kind"):
        case "json_object":
            found["response_format"] = {"type": "json_object"}
        case "json_schema":
            wanted = text.format.json_schema
            shape: dict[str, Any] = {"name": wanted.name, "schema": msgspec.Raw(wanted.schema.encode())}
            if wanted.description:
                shape["description"] = wanted.description
            if wanted.HasField("strict"):
                shape["strict"] = wanted.strict
            found["response_format"] = {"type": "json_schema", "json_schema": shape}
        case _:
            pass
    return found


def tool_choice(settings: ResponseCreate, tools: EncodedTools, flavour: Flavour) -> tuple[bytes, dict[str, Any]]:
    """Returns the functions to offer, as JSON, and the parameters that say how to choose among them."""
    if not tools.json:
        return b"", {}
    found: dict[str, Any] = {}
    if settings.HasField("parallel_tool_calls"):
        found["parallel_tool_calls"] = settings.parallel_tool_calls
    choice = settings.tool_choice
    match choice.WhichOneof("form"):
        case "mode" if choice.mode in _MODES:
            return tools.json, found | {"tool_choice": _MODES[choice.mode]}
        case "named" if choice.named.type == "allowed_tools":
            offered, rule = _allowed(choice.named, tools, flavour)
            return offered, found | rule
        case "named":
            wire = tools.find(choice.named.name)
            if wire is None:
                # A tool that is no function here, such as a shell: no upstream can be made to call it.
                return tools.json, found
            if flavour.named_choice:
                return tools.json, found | {"tool_choice": {"type": "function", "function": {"name": wire}}}
            return tools.only({wire}), found | {"tool_choice": "required"}
        case _:
            return tools.json, found


def _allowed(choice: NamedToolChoice, tools: EncodedTools, flavour: Flavour) -> tuple[bytes, dict[str, Any]]:
    mode = choice.mode or "auto"
    named = [tools.find(str(json_object(text).get("name", ""))) for text in choice.tools]
    wires = [wire for wire in named if wire is not None]
    if not wires:
        return b"", {}
    if flavour.allowed_tools:
        listed = [{"type": "function", "function": {"name": wire}} for wire in wires]
        return tools.json, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}}
    return tools.only(set(wires)), {"tool_choice": mode}
