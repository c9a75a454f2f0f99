"""Chat messages as JSON, and the message that is still open: its parts may be spread over several items.

Above it: `history`. Below it: `names`. An assistant's reasoning, text and calls are one message in the chat API and
several items here; whoever has begun one cannot know whether more follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec

from turnwire.server.engine.chat.names import full_name, wire_name
from turnwire.server.engine.chat.refusal import Refusal
from turnwire.server.media.data_url import is_data_url
from turnwire.server.prompt.parts import Call
from turnwire.v1.item_pb2 import ContentPart, InputFile, InputImage

encode: Final = msgspec.json.Encoder().encode

Part = dict[str, Any]
"""A part of a message's content."""


class OpenUser:
    """A user's message that a neighbour may join."""

    __slots__ = ("_flat", "_parts")

    def __init__(self, flat: bool) -> None:
        """Takes whether several texts become one."""
        self._parts: list[Part] = []
        self._flat = flat

    def copy(self) -> Self:
        """Returns one that can grow apart from this."""
        copied = type(self)(self._flat)
        copied._parts.extend(self._parts)
        return copied

    def add(self, parts: Sequence[Part]) -> None:
        """Takes what a message says."""
        self._parts.extend(parts)

    def pieces(self) -> list[bytes]:
        """Returns the message, encoded."""
        return [encode({"role": "user", "content": content_of(self._parts, self._flat)})]


class OpenAssistant:
    """An assistant's message: what it thought, said and called, and outputs of calls that were answered at once."""

    __slots__ = ("_reasoning_field", "calls", "outputs", "reasoning", "texts")

    def __init__(self, reasoning_field: str | None) -> None:
        """Takes the field for reasoning; None leaves reasoning out."""
        self._reasoning_field = reasoning_field
        self.reasoning: list[str] = []
        self.texts: list[str] = []
        self.calls: list[bytes] = []
        self.outputs: list[bytes] = []

    def copy(self) -> Self:
        """Returns one that can grow apart from this."""
        copied = type(self)(self._reasoning_field)
        copied.reasoning.extend(self.reasoning)
        copied.texts.extend(self.texts)
        copied.calls.extend(self.calls)
        copied.outputs.extend(self.outputs)
        return copied

    def pieces(self) -> list[bytes]:
        """Returns the message and the outputs, encoded; nothing where there is nothing to say."""
        message: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(self.texts) if self.texts else None}
        if self.reasoning and self._reasoning_field:
            message[self._reasoning_field] = "\n".join(self.reasoning)
            # A message without calls must have a content.
            message["content"] = message["content"] or ("" if not self.calls else None)
        elif not self.texts and not self.calls:
            return []
        if self.calls:
            message["tool_calls"] = [msgspec.Raw(call) for call in self.calls]
        return [encode(message), *self.outputs]


class OpenOutputs:
    """Images of tool outputs: tool messages take only text, so the images follow them as the user's."""

    __slots__ = ("images",)

    def __init__(self) -> None:
        """Starts without an image."""
        self.images: list[Part] = []

    def copy(self) -> Self:
        """Returns one that can grow apart from this."""
        copied = type(self)()
        copied.images.extend(self.images)
        return copied

    def pieces(self) -> list[bytes]:
        """Returns the images' message, encoded; nothing where there are none."""
        return [encode({"role": "user", "content": self.images})] if self.images else []


OpenMessage = OpenUser | OpenAssistant | OpenOutputs
"""What the next item may still belong to."""


def text_part(text: str) -> Part:
    """Returns a part of text."""
    return {"type": "text", "text": text}


def content_of(parts: Sequence[Part], flat: bool) -> str | list[Part]:
    """Returns the content that parts make: a text where that says everything."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    if flat and all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)


def call_piece(call: Call) -> bytes:
    """Returns a call, encoded; free text goes as the one argument of its function."""
    arguments = encode({"input": call.text}).decode() if call.free_text else call.text or "{}"
    name = wire_name(full_name(call.namespace, call.name))
    return encode({"id": call.call_id, "type": "function", "function": {"name": name, "arguments": arguments}})


def tool_piece(call_id: str, text: str) -> bytes:
    """Returns a tool's output, encoded."""
    return encode({"role": "tool", "tool_call_id": call_id, "content": text})


class Media:
    """Turns parts into those of the chat API; what the model cannot take is refused, since it was meant to be seen."""

    __slots__ = ("_files", "_images", "_model")

    def __init__(self, model: str, *, images: bool, files: bool) -> None:
        """Takes the model's name, for messages, and what it takes."""
        self._model = model
        self._images = images
        self._files = files

    def part(self, part: ContentPart) -> Part | None:
        """Returns what a part is in the chat API; None where it has no place there.

        Raises:
            Refusal: The model cannot take it.
        """
        match part.WhichOneof("kind"):
            case "input_text":
                return text_part(part.input_text.text)
            case "output_text":
                return text_part(part.output_text.text)
            case "refusal":
                return text_part(part.refusal.refusal)
            case "input_image":
                return self._image(part.input_image)
            case "input_file":
                return self._file(part.input_file)
            case _:
                return None

    def _image(self, image: InputImage) -> Part:
        if not self._images:
            raise Refusal("invalid_value", f"The model '{self._model}' does not take images.")
        if not image.image_url:
            raise Refusal("invalid_value", f"The model '{self._model}' takes images by image_url, not by file_id.")
        if not is_data_url(image.image_url):
            # Whatever stands at URLs was brought by the server: upstreams are never made to fetch.
            raise Refusal("invalid_image_url", f"The model '{self._model}' takes images as data: URLs only.")
        url: Part = {"url": image.image_url}
        if image.detail:
            # The chat API has no word for the original size.
            url["detail"] = "high" if image.detail == "original" else image.detail
        return {"type": "image_url", "image_url": url}

    def _file(self, file: InputFile) -> Part:
        if not self._files:
            raise Refusal("invalid_value", f"The model '{self._model}' does not take files.")
        if file.file_data:
            return {"type": "file", "file": {"filename": file.filename or "file", "file_data": file.file_data}}
        if file.file_id:
            return {"type": "file", "file": {"file_id": file.file_id}}
        raise Refusal("invalid_value", f"The model '{self._model}' takes files as file_data, not by file_url.")
