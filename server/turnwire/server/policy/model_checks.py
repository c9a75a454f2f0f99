"""Checks of a request against the profile of its model: what it can do, and how much.

Above: `prepare`. Below: refusals, and the profiles of `engine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from turnwire.server.engine.profile import ModelProfile, Takes, unsupported_in
from turnwire.server.media.parts import media_of
from turnwire.server.policy.refusals import above, unsupported
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import ResponseCreate

_WITH_MODEL = "is not supported with this model"


def check_model(settings: ResponseCreate, *, tools: bool, profile: ModelProfile) -> None:
    """Checks the settings of a create.

    Args:
        settings: The settings in force.
        tools: Whether there are tools.
        profile: The model's.

    Raises:
        turnwire.v1.errors.RequestError: The model does not take a parameter.
    """
    if not profile.ignores:
        for path in unsupported_in(settings, tools=tools, profile=profile):
            raise _refused(path)
        most = profile.max_output_tokens
        if most is not None and settings.max_output_tokens > most:
            raise above("max_output_tokens", "integer", f"<= {most}", settings.max_output_tokens)


def check_images(items: Sequence[Item], profile: ModelProfile, takes: Takes) -> None:
    """Checks that the model gets to see the images of new items.

    Refused however lenient the profile is: an answer to what the model did not see would be worth nothing.

    Args:
        items: What is new.
        profile: The model's.
        takes: What its engine can hand on to it.

    Raises:
        turnwire.v1.errors.RequestError: There is an image that it does not get to see.
    """
    if not (profile.capabilities.images and takes.images):
        _refuse(items, "input_image")


def check_files(items: Sequence[Item], takes: Takes) -> None:
    """Checks that the model gets to see the files of new items, once texts were made part of the text.

    Raises:
        turnwire.v1.errors.RequestError: There is a file that it does not get to see.
    """
    if not takes.files:
        _refuse(items, "input_file")


def _refuse(items: Sequence[Item], kind: Literal["input_image", "input_file"]) -> None:
    for index, item in enumerate(items):
        for path, part in media_of(item):
            if part.HasField(kind):
                param = f"input[{index}].{path}"
                raise reject("invalid_value", f"Invalid '{param}': '{kind}' {_WITH_MODEL}.", param=param)


def _refused(path: str) -> RequestError:
    if path == "text.format":
        message = f"Invalid parameter: 'text.format' of type 'json_schema' {_WITH_MODEL}."
        return reject("unsupported_parameter", message, param=path)
    return unsupported(path, _WITH_MODEL)
