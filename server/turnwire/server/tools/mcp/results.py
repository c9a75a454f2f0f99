"""From the result of an MCP tool to the text that the model reads.

Above: the room of hosted tools. Below: the SDK's types.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from turnwire.server.session.effects import ToolResult
from turnwire.server.tools.mcp.cutting import CUT_MARK


def outcome(result: CallToolResult, max_bytes: int) -> ToolResult:
    """Returns what the model is told, cut to a size."""
    blocks = list(_texts(result.content))
    if not blocks and result.structured_content is not None:
        blocks.append(msgspec.json.encode(result.structured_content).decode())
    text = "\n".join(blocks) or "The tool returned nothing."
    unread = bool(result.meta and result.meta.get(CUT_MARK))
    return ToolResult(bounded(text, max_bytes, unread=unread), failed=bool(result.is_error))


def _texts(content: list[ContentBlock]) -> Iterator[str]:
    for block in content:
        match block:
            case TextContent():
                yield block.text
            case ImageContent() | AudioContent():
                yield f"[{block.type}, {block.mime_type}, {_size(block.data)} bytes, not shown]"
            case ResourceLink():
                yield f"[resource {block.uri}: {block.description or block.title or block.name}]"
            case EmbeddedResource(resource=TextResourceContents() as resource):
                yield resource.text
            case EmbeddedResource(resource=BlobResourceContents() as resource):
                yield f"[resource {resource.uri}, {resource.mime_type}, {_size(resource.blob)} bytes, not shown]"
            case _:
                yield f"[{block.type}, not shown]"


def _size(data: str) -> int:
    return len(data) * 3 // 4


def bounded(text: str, max_bytes: int, *, unread: bool = False) -> str:
    """Cuts a text to a size in bytes, and says so to whoever reads it.

    Args:
        text: The text.
        max_bytes: Most bytes of UTF-8 that are kept.
        unread: Whether there was more than was read at all.
    """
    data = text.encode(errors="replace")
    if len(data) <= max_bytes and not unread:
        return data.decode()
    shown = data[:max_bytes].decode(errors="ignore")
    whole = f"more than {len(data)}" if unread else f"{len(data)}"
    return f"{shown}\n[The output was cut: it has {whole} bytes, of which the first {len(shown.encode())} are shown.]"
