"""Checks of a request against the profile of its model: what it can do, and how much.

Above: `prepare`. Below: refusals, and the profiles of `engine`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnwire.server.engine.profile import ModelProfile, unsupported_in
from turnwire.server.policy.refusals import above, unsupported
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.item_pb2 import ContentPart, Item
from turnwire.v1.response_pb2 import ResponseCreate

_WITH_MODEL = "is not supported with this model"


def check_model(settings: ResponseCreate, items: Sequence[Item], *, tools: bool, profile: ModelProfile) -> None:
    """Checks a create.

    Args:
        settings: The settings in force.
        items: What is new.
        tools: Whether there are tools.
        profile: The model's.

    Raises:
        turnwire.v1.errors.RequestError: The model does not take a parameter or an image.
    """
    if not profile.ignores:
        for path in unsupported_in(settings, tools=tools, profile=profile):
            raise _refused(path)
        most = profile.max_output_tokens
        if most is not None and settings.max_output_tokens > most:
            raise above("max_output_tokens", "integer", f"<= {most}", settings.max_output_tokens)
    if not profile.capabilities.images:
        # Refused however lenient the profile is: an answer to what the model did not see would be worth nothing.
        for path in _images(items):
            message = f"Invalid '{path}': 'input_image' {_WITH_MODEL}."
            raise reject("invalid_value", message, param=path)


def _refused(path: str) -> RequestError:
    if path == "text.format":
        message = f"Invalid parameter: 'text.format' of type 'json_schema' {_WITH_MODEL}."
        return reject("unsupported_parameter", message, param=path)
    return unsupported(path, _WITH_MODEL)


def _images(items: Sequence[Item]) -> Iterator[str]:
    """Yields the paths of images."""
    for index, item in enumerate(items):
        for field, parts in _parts(item):
            for at, part in enumerate(parts):
                if part.HasField("input_image"):
                    yield f"input[{index}].{field}[{at}]"


def _parts(item: Item) -> Iterator[tuple[str, Sequence[ContentPart]]]:
    match item.WhichOneof("kind"):
        case "message":
            yield "content", item.message.content.parts.parts
        case "function_call_output":
            yield "output", item.function_call_output.output.parts.parts
        case "custom_tool_call_output":
            yield "output", item.custom_tool_call_output.output.parts.parts
        case _:
            pass
