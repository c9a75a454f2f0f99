"""Where images and files stand in items.

Above it: `reader`, and whoever has to know whether there are any. Below it: the items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnwire.v1.item_pb2 import ContentPart, Item


def parts_of(item: Item) -> tuple[str, Sequence[ContentPart]]:
    """Returns the parts of an item, and the field that they stand in; no parts for items that have none."""
    match item.WhichOneof("kind"):
        case "message":
            return "content", item.message.content.parts.parts
        case "function_call_output":
            return "output", item.function_call_output.output.parts.parts
        case "custom_tool_call_output":
            return "output", item.custom_tool_call_output.output.parts.parts
        case _:
            return "", ()


def media_of(item: Item) -> Iterator[tuple[str, ContentPart]]:
    """Yields the images and files of an item, with their paths within it, such as `content[1]`."""
    field, parts = parts_of(item)
    for index, part in enumerate(parts):
        if part.HasField("input_image") or part.HasField("input_file"):
            yield f"{field}[{index}]", part


def has_media(items: Sequence[Item]) -> bool:
    """Whether there is an image or a file in some items. Costs a microsecond for each part."""
    return any(True for item in items for _ in media_of(item))
