"""Parts of messages and reasoning items, and the events that only full verbosity sends about them."""

from __future__ import annotations

from turnwire.server.session.chunks import Channel
from turnwire.v1.item_pb2 import (
    ContentPart,
    Item,
    MessageContent,
    OutputText,
    ReasoningText,
    Refusal,
    SummaryText,
)
from turnwire.v1.server_event_pb2 import (
    ContentPartAdded,
    ContentPartDone,
    OutputItemTruncated,
    OutputTextDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDone,
    ReasoningTextDone,
    RefusalDone,
    ServerEvent,
)


def no_parts() -> MessageContent:
    """Returns content that is a list of parts, with none in it yet."""
    content = MessageContent()
    content.parts.SetInParent()
    return content


def content_part(channel: Channel, text: str) -> ContentPart:
    """Builds the part that text of a channel becomes."""
    match channel:
        case Channel.TEXT:
            return ContentPart(output_text=OutputText(text=text))
        case Channel.REFUSAL:
            return ContentPart(refusal=Refusal(refusal=text))
        case Channel.REASONING:
            return ContentPart(reasoning_text=ReasoningText(text=text))
        case Channel.SUMMARY:
            return ContentPart(summary_text=SummaryText(text=text))


def part_added(channel: Channel, output_index: int, index: int) -> ServerEvent:
    """Announces a part, with its text still empty."""
    part = content_part(channel, "")
    if channel is Channel.SUMMARY:
        added = ReasoningSummaryPartAdded(output_index=output_index, summary_index=index, part=part)
        return ServerEvent(reasoning_summary_part_added=added)
    return ServerEvent(content_part_added=ContentPartAdded(output_index=output_index, content_index=index, part=part))


def part_done(channel: Channel, oi: int, index: int, text: str, part: ContentPart) -> tuple[ServerEvent, ServerEvent]:
    """Tells the whole text of a part, then the part."""
    closing = ServerEvent(content_part_done=ContentPartDone(output_index=oi, content_index=index, part=part))
    match channel:
        case Channel.TEXT:
            text_done = OutputTextDone(
                output_index=oi, content_index=index, text=text, logprobs=part.output_text.logprobs
            )
            return ServerEvent(output_text_done=text_done), closing
        case Channel.REFUSAL:
            refusal_done = RefusalDone(output_index=oi, content_index=index, refusal=text)
            return ServerEvent(refusal_done=refusal_done), closing
        case Channel.REASONING:
            reasoning_done = ReasoningTextDone(output_index=oi, content_index=index, text=text)
            return ServerEvent(reasoning_text_done=reasoning_done), closing
        case Channel.SUMMARY:
            summary_done = ReasoningSummaryTextDone(output_index=oi, summary_index=index, text=text)
            closed = ReasoningSummaryPartDone(output_index=oi, summary_index=index, part=part)
            return ServerEvent(reasoning_summary_text_done=summary_done), ServerEvent(
                reasoning_summary_part_done=closed
            )


def truncated(item: Item, output_index: int, size: int) -> OutputItemTruncated:
    """Announces an item that is too large to send."""
    kind = item.WhichOneof("kind") or ""
    inner = getattr(item, kind)
    return OutputItemTruncated(
        output_index=output_index, item_id=inner.id, type=kind, bytes=size, call_id=getattr(inner, "call_id", "")
    )
