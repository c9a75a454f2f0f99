"""Checks of content: the text and parts of messages, of reasoning and of tool outputs.

Above: `item_checks`. Below: refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwire.server.policy.refusals import missing, not_among, too_long
from turnwire.v1.item_pb2 import ContentPart, InputFile, InputImage, MessageContent, ToolOutput

MAX_TEXT: Final = 10_485_760
"""Characters of one text: instructions, a message's text, a tool's output."""

INPUT_PARTS: Final = ("input_text", "input_image", "input_file")
OUTPUT_PARTS: Final = ("output_text", "refusal")
REASONING_PARTS: Final = ("reasoning_text",)
SUMMARY_PARTS: Final = ("summary_text",)

_DETAILS: Final = ("low", "high", "auto", "original")
_TEXTS: Final = {
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "text",
    "summary_text": "text",
}
"""Key of the text in the parts that have one."""


def check_content(content: MessageContent | ToolOutput, kinds: Sequence[str], path: str) -> None:
    """Checks text or parts.

    Args:
        content: What was said or returned.
        kinds: The kinds of parts that may stand there.
        path: Path of the content.

    Raises:
        turnwire.v1.errors.RequestError: It is unset, too long, or holds a part that may not stand there.
    """
    match content.WhichOneof("form"):
        case "text":
            check_length(content.text, path)
        case "parts":
            check_parts(content.parts.parts, kinds, path)
        case _:
            raise missing(path)


def check_parts(parts: Sequence[ContentPart], kinds: Sequence[str], path: str) -> None:
    """Checks a list of parts; see `check_content`. Opaque parts may stand anywhere."""
    for index, part in enumerate(parts):
        kind = part.WhichOneof("kind")
        if kind is None:
            raise missing(f"{path}[{index}].type")
        if kind in kinds:
            _check_part(part, kind, f"{path}[{index}]")
        elif kind != "opaque":
            raise not_among(f"{path}[{index}]", kind, kinds)


def check_length(text: str, path: str) -> None:
    """Checks the length of one text.

    Raises:
        turnwire.v1.errors.RequestError: It is too long.
    """
    if len(text) > MAX_TEXT:
        raise too_long(path, MAX_TEXT, len(text))


def _check_part(part: ContentPart, kind: str, path: str) -> None:
    key = _TEXTS.get(kind)
    if key is not None:
        check_length(getattr(getattr(part, kind), key), f"{path}.{key}")
    elif kind == "input_image":
        _check_image(part.input_image, path)
    elif kind == "input_file":
        _check_file(part.input_file, path)


def _check_image(image: InputImage, path: str) -> None:
    if not (image.image_url or image.file_id):
        raise missing(f"{path}.image_url")
    if image.HasField("detail") and image.detail not in _DETAILS:
        raise not_among(f"{path}.detail", image.detail, _DETAILS)


def _check_file(file: InputFile, path: str) -> None:
    if not (file.file_id or file.file_data or file.file_url):
        raise missing(f"{path}.file_id")
