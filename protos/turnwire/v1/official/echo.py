"""What a response repeats of its request: its settings, its tools without secrets, and keys that nobody here knows.

Above it: `stream`, and the server's core for retrieved responses, so that a response is the same in a stream and later.
Below it: the messages.
"""

from __future__ import annotations

from typing import Final

from turnwire.v1.response_pb2 import Response, ResponseCreate
from turnwire.v1.tool_pb2 import ToolSet

ECHOED: Final = (
    "background",
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
"""Fields of a request that its response has too."""


def echo(settings: ResponseCreate, tools: ToolSet | None = None) -> Response:
    """Returns a response with nothing in it but what it repeats of its request.

    Args:
        settings: The request; its `tools` are not looked at.
        tools: The tools in force; what they hold of secrets is left out.
    """
    response = Response(metadata=settings.metadata, extra_json=settings.extra_json)
    for name in ECHOED:
        if settings.HasField(name):
            _set(response, name, getattr(settings, name))
    if tools is not None:
        response.tools.CopyFrom(tools)
        for tool in response.tools.tools:
            if tool.WhichOneof("kind") == "mcp":
                tool.mcp.ClearField("headers")
                tool.mcp.ClearField("authorization")
    return response


def overlay(known: Response, said: Response) -> None:
    """Replaces every field of `known` that `said` has set; lists and maps as a whole."""
    for field, value in said.ListFields():
        known.ClearField(field.name)  # type: ignore[arg-type]
        if field.is_repeated:
            getattr(known, field.name).MergeFrom(value)
        else:
            _set(known, field.name, value)


def _set(response: Response, name: str, value: object) -> None:
    if hasattr(value, "CopyFrom"):
        getattr(response, name).CopyFrom(value)
    else:
        setattr(response, name, value)
