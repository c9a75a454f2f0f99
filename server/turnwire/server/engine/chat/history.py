"""A chain as chat messages, encoded once: each segment of a transcript keeps the JSON of what it added.

Above it: `body`. Below it: `messages`. The JSON is kept in the transcript's memo, so a turn encodes only what is new
and forks share all they have in common. What is still open at the end of a segment (an assistant's message to which the
next segment may add) is kept apart and encoded when it is closed, or sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from turnwire.server.engine.chat.messages import (
    Media,
    OpenAssistant,
    OpenMessage,
    OpenOutputs,
    OpenUser,
    Part,
    call_piece,
    content_of,
    encode,
    text_part,
    tool_piece,
)
from turnwire.server.prompt.hosted_calls import hosted_exchange
from turnwire.server.prompt.parts import Output, call_of, output_of, reasoning_texts
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.transcript import Transcript
from turnwire.v1.item_pb2 import ContentPart, Item, Message, Role, ToolOutput

LARGE: Final = 256 * 1024
"""Bytes of new items from which they are encoded in a thread, so that one large request does not delay the others."""

_SEEN_ELSEWHERE: Final = frozenset({"mcp_list_tools", "mcp_approval_request", "mcp_approval_response"})
"""Items that say nothing of their own to the model: their functions are offered, their calls follow."""

M = TypeVar("M", OpenUser, OpenAssistant, OpenOutputs)


@dataclass(frozen=True, slots=True, eq=False)
class Style:
    """How messages are written for one model of one upstream; the same object means the same JSON."""

    media: Media
    reasoning_field: str | None
    developer_role: bool
    joined_lead: bool
    merged_roles: bool
    flat_text: bool
    late_system_as_user: bool


class History:
    """A chain up to one segment; a value."""

    __slots__ = ("_tail", "closed", "lead", "open", "parent", "started", "style")

    def __init__(
        self,
        style: Style,
        parent: History | None,
        closed: bytes,
        lead: tuple[str, ...],
        open_message: OpenMessage | None,
        started: bool,
    ) -> None:
        """Takes what the segment added to its parent's, and what the chain is now."""
        self.style = style
        self.parent = parent
        self.closed = closed
        """The messages this segment closed, separated by commas; empty where there are none."""
        self.lead = lead
        """System messages that stand before everything else, where they become one message."""
        self.open = open_message
        """The message that the next segment may add to."""
        self.started = started
        """Whether anything but leading system messages was said."""
        self._tail: bytes | None = None

    @property
    def tail(self) -> bytes:
        """The open message as it stands, encoded; empty where there is none."""
        if self._tail is None:
            self._tail = b",".join(self.open.pieces()) if self.open else b""
        return self._tail

    def joined(self) -> list[bytes]:
        """Returns the JSON of all messages, oldest first, as pieces to be joined by commas."""
        pieces = [self.tail] if self.tail else []
        history: History | None = self
        while history is not None:
            if history.closed:
                pieces.append(history.closed)
            history = history.parent
        pieces.reverse()
        return pieces


@dataclass(slots=True)
class Encoded:
    """What writing a chain's messages took."""

    items: int = 0
    """Items encoded."""
    bytes: int = 0
    """Bytes of the items they were made from."""
    skipped: Counter[str] | None = None
    """Items left out, by type; None where there were none."""

    def skip(self, kind: str) -> None:
        """Counts an item that was left out."""
        self.skipped = self.skipped or Counter()
        self.skipped[kind] += 1


async def history_of(prompt: Prompt, style: Style) -> tuple[History, Encoded]:
    """Encodes what is new of a prompt's chain, much of it in a thread; returns the chain and what that took. Safe to
    cancel.

    Raises:
        Refusal: The model cannot take an item.
    """
    parent, segments = missing(prompt.transcript, style, cached=prompt.switches.item_cache)
    tally = Encoded()
    if sum(len(entry.data) for segment in segments for entry in segment.new) > LARGE:
        history = await asyncio.to_thread(extend, parent, segments, style, tally)
    else:
        history = extend(parent, segments, style, tally)
    prompt.visits.note("encode", tally.items, tally.bytes)
    return history, tally


def missing(transcript: Transcript, style: Style, *, cached: bool = True) -> tuple[History | None, list[Transcript]]:
    """Returns the newest history that is kept of a chain, unless none is wanted, and the segments behind it, oldest
    first."""
    segments: list[Transcript] = []
    for segment in transcript.segments():
        kept = segment.rendering
        if cached and isinstance(kept, History) and kept.style is style:
            segments.reverse()
            return kept, segments
        segments.append(segment)
    segments.reverse()
    return None, segments


def extend(parent: History | None, segments: Sequence[Transcript], style: Style, tally: Encoded) -> History:
    """Encodes segments behind a history and keeps the result with each. May run in a thread.

    Raises:
        Refusal: The model cannot take an item.
    """
    history = parent
    for segment in segments:
        writer = _Writer(style, history)
        for entry in segment.new:
            writer.add(entry.item(), tally)
            tally.bytes += len(entry.data)
        history = writer.finish()
        segment.rendering = history
        # Its JSON is about as long as the items.
        segment.kept = sum(len(entry.data) for entry in segment.new)
    return history or History(style, None, b"", (), None, started=False)


class _Writer:
    """Writes one segment."""

    def __init__(self, style: Style, parent: History | None) -> None:
        self._style = style
        self._parent = parent
        self._closed: list[bytes] = []
        self._lead = list(parent.lead) if parent else []
        self._started = parent.started if parent else False
        self._open = parent.open if parent else None
        self._inherited = self._open is not None
        """Whether the open message is the parent's own, which must not change."""

    def finish(self) -> History:
        closed = b",".join(self._closed)
        return History(self._style, self._parent, closed, tuple(self._lead), self._open, self._started)

    def add(self, item: Item, tally: Encoded) -> None:
        kind = item.WhichOneof("kind")
        match kind:
            case "message":
                self._message(item.message)
            case "reasoning":
                self._reasoning(reasoning_texts(item.reasoning))
            case "function_call_output":
                self._output(item.function_call_output.call_id, item.function_call_output.output)
            case "custom_tool_call_output":
                self._output(item.custom_tool_call_output.call_id, item.custom_tool_call_output.output)
            case _:
                if not self._call(item):
                    if kind not in _SEEN_ELSEWHERE:
                        tally.skip(item.opaque.type if kind == "opaque" else str(kind))
                    return
        tally.items += 1

    # Kinds of items

    def _message(self, message: Message) -> None:
        match message.role:
            case Role.ROLE_ASSISTANT:
                text = "".join(part["text"] for part in self._parts(message) if part["type"] == "text")
                if text:
                    self._speaking().texts.append(text)
            case Role.ROLE_SYSTEM | Role.ROLE_DEVELOPER:
                self._system(message)
            case _:
                self._user(self._parts(message))

    def _parts(self, message: Message) -> list[Part]:
        if message.content.WhichOneof("form") == "text":
            return [text_part(message.content.text)]
        return self._all(message.content.parts.parts)

    def _all(self, parts: Sequence[ContentPart]) -> list[Part]:
        made = [self._style.media.part(part) for part in parts]
        return [part for part in made if part is not None]

    def _user(self, parts: Sequence[Part]) -> None:
        if not parts:
            return
        self._started = True
        if not self._style.merged_roles:
            self._close()
            self._closed.append(encode({"role": "user", "content": content_of(parts, self._style.flat_text)}))
            return
        current = self._own(OpenUser) or self._begin(OpenUser(self._style.flat_text))
        current.add(parts)

    def _system(self, message: Message) -> None:
        parts = self._parts(message)
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        if not text:
            return
        if not self._started and self._style.joined_lead:
            self._lead.append(text)
        elif self._started and self._style.late_system_as_user:
            self._user([text_part(text)])
        else:
            self._close()
            developer = message.role == Role.ROLE_DEVELOPER and self._style.developer_role
            self._closed.append(encode({"role": "developer" if developer else "system", "content": text}))

    def _reasoning(self, texts: Sequence[str]) -> None:
        if texts:
            self._speaking().reasoning.extend(texts)

    def _call(self, item: Item) -> bool:
        """Takes a call or an output of the kinds that have no branch of their own; False where it is neither."""
        call = call_of(item)
        if call is None:
            output = output_of(item)
            if output is None:
                return False
            self._plain_output(output)
            return True
        # Whoever calls in a later segment has seen the outputs of the earlier ones.
        if self._inherited and isinstance(self._open, OpenAssistant) and self._open.outputs:
            self._close()
        current = self._assistant()
        current.calls.append(call_piece(call))
        exchange = hosted_exchange(item)
        if exchange is not None:
            current.outputs.append(tool_piece(call.call_id, exchange.output))
        return True

    def _output(self, call_id: str, output: ToolOutput) -> None:
        if output.WhichOneof("form") == "text":
            self._tool(call_id, output.text, [])
            return
        parts = self._all(output.parts.parts)
        texts = [part["text"] for part in parts if part["type"] == "text"]
        media = [part for part in parts if part["type"] != "text"]
        # An output without text would look like a tool that returned nothing.
        self._tool(call_id, "\n".join(texts) if texts or not media else "The output is shown below.", media)

    def _plain_output(self, output: Output) -> None:
        call_id = next((each for each in output.call_ids if each), "")
        self._tool(call_id, "\n".join(output.texts), [])

    def _tool(self, call_id: str, text: str, media: list[Part]) -> None:
        self._started = True
        current = self._own(OpenOutputs) or self._begin(OpenOutputs())
        self._closed.append(tool_piece(call_id, text))
        current.images.extend(media)

    # The open message

    def _speaking(self) -> OpenAssistant:
        """Returns the assistant's message for thoughts and words, which stand before its calls."""
        current = self._open
        if isinstance(current, OpenAssistant) and (current.calls or (current.texts and not self._style.merged_roles)):
            self._close()
        return self._assistant()

    def _assistant(self) -> OpenAssistant:
        self._started = True
        return self._own(OpenAssistant) or self._begin(OpenAssistant(self._style.reasoning_field))

    def _own(self, kind: type[M]) -> M | None:
        """Returns the open message as one that may change, None where none of this kind is open."""
        current = self._open
        if not isinstance(current, kind):
            return None
        if self._inherited:
            self._open = current = current.copy()
            self._inherited = False
        return current

    def _begin(self, message: M) -> M:
        self._close()
        self._open = message
        return message

    def _close(self) -> None:
        if self._open is not None:
            # The parent's is encoded once, however many forks close it.
            pieces = [self._parent.tail] if self._inherited and self._parent else self._open.pieces()
            self._closed.extend(piece for piece in pieces if piece)
        self._open = None
        self._inherited = False
