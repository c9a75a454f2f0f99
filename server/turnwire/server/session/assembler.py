"""From an engine's chunks to items and their events: the one state machine that both the stream and the final object
come from.

Items are strictly one after the other. Open text is a list of pieces and becomes a message once, when the item is done
(growing a message field piece by piece costs 80 µs a token).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from turnwire.server.session.chunks import CallDelta, CallEnd, CallKind, CallStart, Channel, Chunk, TextChunk
from turnwire.server.session.outbox import Delta, Outbox, Queue
from turnwire.server.session.parts import content_part, no_parts, part_added, part_done, truncated
from turnwire.v1.item_pb2 import (
    ContentPart,
    CustomToolCall,
    FunctionCall,
    Item,
    ItemStatus,
    Logprob,
    Message,
    Reasoning,
    Role,
)
from turnwire.v1.response_pb2 import Verbosity
from turnwire.v1.server_event_pb2 import (
    CustomToolCallInputDone,
    FunctionCallArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    ServerEvent,
)

_IN_PROGRESS: Final = ItemStatus.ITEM_STATUS_IN_PROGRESS
_COMPLETED: Final = ItemStatus.ITEM_STATUS_COMPLETED
_INCOMPLETE: Final = ItemStatus.ITEM_STATUS_INCOMPLETE
_FULL: Final = Verbosity.VERBOSITY_FULL
_DELTAS: Final = Verbosity.VERBOSITY_DELTAS
_ITEMS: Final = Verbosity.VERBOSITY_ITEMS

_DELTA_OF: Final = {
    Channel.TEXT: Delta.TEXT,
    Channel.REASONING: Delta.REASONING,
    Channel.SUMMARY: Delta.SUMMARY,
    Channel.REFUSAL: Delta.REFUSAL,
}
_MESSAGE_CHANNELS: Final = (Channel.TEXT, Channel.REFUSAL)
_ENVELOPE: Final = 64
"""Most bytes of an event around the item or text that it carries."""


class Listener(Protocol):
    """Who hears of finished items and calls."""

    def new_item_id(self, kind: str) -> str:
        """Returns a fresh id for an item of a kind: message, reasoning, function or custom."""
        ...

    def new_call_id(self, wished: str) -> str:
        """Returns the id for a call: the engine's own where it is free, else a fresh one."""
        ...

    def seal(self, reasoning: Reasoning) -> str | None:
        """Returns reasoning sealed for its client to replay, None where that is not wanted."""
        ...

    def item_done(self, item: Item, data: bytes, tokens: int) -> None:
        """Hears of a finished item; `data` is the item serialized."""
        ...

    def hosted_call(self, call_id: str, name: str, arguments: str, tokens: int) -> None:
        """Hears of a finished call of a hosted tool, which becomes an item when its tool has finished."""
        ...

    def is_hosted(self, name: str) -> bool:
        """Whether the server runs the tool."""
        ...

    def split(self, name: str) -> tuple[str, str]:
        """Returns the namespace, if any, and the name of a tool as it was declared."""
        ...


class _Part:
    """One part of the open message or reasoning item."""

    __slots__ = ("channel", "index", "logprobs", "phase", "pieces")

    def __init__(self, channel: Channel, index: int, phase: str) -> None:
        self.phase = phase
        self.logprobs: list[Logprob] = []
        self.channel = channel
        self.index = index
        self.pieces: list[str] = []


class _Call:
    """The open call."""

    __slots__ = ("call_id", "hosted", "kind", "name", "pieces")

    def __init__(self, name: str, kind: CallKind, call_id: str, hosted: bool) -> None:
        self.name = name
        self.kind = kind
        self.call_id = call_id
        self.hosted = hosted
        self.pieces: list[str] = []


class Assembler:
    """Assembles one response's output."""

    __slots__ = (
        "_call",
        "_delta",
        "_item_id",
        "_listener",
        "_max_event",
        "_outbox",
        "_part",
        "_parts",
        "_piece",
        "_queue",
        "_tokens",
        "_verbosity",
        "output_index",
    )

    def __init__(
        self,
        outbox: Outbox,
        queue: Queue,
        verbosity: Verbosity.ValueType,
        max_event_bytes: int,
        listener: Listener,
    ) -> None:
        """Takes where events go, how many are wanted, and who hears of items."""
        self._outbox = outbox
        self._queue = queue
        self._verbosity = verbosity
        self._max_event = max_event_bytes - _ENVELOPE
        # A character has at most four bytes.
        self._piece = self._max_event // 4
        self._listener = listener
        self.output_index = 0
        """Position of the open item, or of the next one."""
        self._item_id = ""
        self._parts: list[ContentPart] = []
        self._part: _Part | None = None
        self._delta = Delta.TEXT
        self._call: _Call | None = None
        self._tokens = 0

    @property
    def open_call_id(self) -> str:
        """The id of the call that is being written; empty where none is."""
        return self._call.call_id if self._call else ""

    def feed(self, chunks: Sequence[Chunk]) -> None:
        """Takes chunks, in order. The hot path: about a microsecond per chunk."""
        for chunk in chunks:
            if isinstance(chunk, TextChunk):
                part = self._part
                if part is None or part.channel is not chunk.channel or part.phase != chunk.phase:
                    part = self._open_part(chunk.channel, chunk.phase)
                self._tokens += chunk.tokens
                text = chunk.text
                if not text:
                    continue
                part.pieces.append(text)
                if chunk.logprobs:
                    part.logprobs.extend(chunk.logprobs)
                self._emit_text(self._delta, part.index, text, chunk.ids, chunk.logprobs)
            elif isinstance(chunk, CallDelta):
                self._call_delta(chunk)
            elif isinstance(chunk, CallStart):
                self._open_call(chunk)
            elif (self._call is not None) == isinstance(chunk, CallEnd):
                # An end of what is not open says nothing.
                self._close_item(_COMPLETED)

    def finish(self, *, complete: bool) -> None:
        """Closes the open item, as incomplete where the output was cut."""
        self._close_item(_COMPLETED if complete else _INCOMPLETE)

    def announce(self, item: Item) -> None:
        """Sends that a hosted item has begun."""
        self._emit(_DELTAS, ServerEvent(output_item_added=OutputItemAdded(output_index=self.output_index, item=item)))

    @property
    def open_tokens(self) -> int:
        """Tokens of the item that is open."""
        return self._tokens

    def deliver(self, item: Item, tokens: int) -> None:
        """Sends a finished item and moves to the next position."""
        data = item.SerializeToString()
        if self._verbosity <= _ITEMS:
            if len(data) > self._max_event:
                event = ServerEvent(output_item_truncated=truncated(item, self.output_index, len(data)))
            else:
                event = ServerEvent(output_item_done=OutputItemDone(output_index=self.output_index, item=item))
            self._outbox.event(self._queue, event, len(data))
        else:
            self._outbox.skip(self._queue)
        self.output_index += 1
        self._listener.item_done(item, data, tokens)

    def emit_full(self, event: ServerEvent) -> None:
        """Sends an event that only full verbosity wants."""
        self._emit(_FULL, event)

    def emit_progress(self, event: ServerEvent) -> None:
        """Sends an event that tells how far an item has come."""
        self._emit(_DELTAS, event)

    def _emit(self, least: Verbosity.ValueType, event: ServerEvent) -> None:
        size = event.ByteSize()
        # Only events that repeat what was said can be too large for the client.
        if self._verbosity <= least and size <= self._max_event:
            self._outbox.event(self._queue, event, size)
        else:
            self._outbox.skip(self._queue)

    def _emit_text(
        self,
        kind: Delta,
        part_index: int,
        text: str,
        ids: tuple[int, ...] = (),
        logprobs: tuple[Logprob, ...] = (),
    ) -> None:
        if len(text) > self._piece:
            for start in range(0, len(text), self._piece):
                self._emit_text(kind, part_index, text[start : start + self._piece])
        elif self._verbosity <= _DELTAS:
            self._outbox.text(self._queue, kind, self.output_index, part_index, text, ids, logprobs)
        else:
            self._outbox.skip(self._queue)

    def _open_part(self, channel: Channel, phase: str) -> _Part:
        message = channel in _MESSAGE_CHANNELS
        current = self._part
        same_item = (
            current is not None
            and self._call is None
            and (current.channel in _MESSAGE_CHANNELS) == message
            and current.phase == phase
        )
        if same_item:
            self._close_part()
        else:
            self._close_item(_COMPLETED)
            self._item_id = self._listener.new_item_id("message" if message else "reasoning")
            if message:
                item = Item(
                    message=Message(
                        id=self._item_id,
                        role=Role.ROLE_ASSISTANT,
                        status=_IN_PROGRESS,
                        content=no_parts(),
                        phase=phase or None,
                    )
                )
            else:
                item = Item(reasoning=Reasoning(id=self._item_id))
            self.announce(item)
        if channel is Channel.SUMMARY:
            index = sum(1 for part in self._parts if part.HasField("summary_text"))
        else:
            index = sum(1 for part in self._parts if not part.HasField("summary_text"))
        self._part = _Part(channel, index, phase)
        self._delta = _DELTA_OF[channel]
        if self._verbosity == _FULL:
            self.emit_full(part_added(channel, self.output_index, index))
        else:
            self._outbox.skip(self._queue)
        return self._part

    def _close_part(self) -> None:
        part = self._part
        if part is None:
            return
        text = "".join(part.pieces)
        content = content_part(part.channel, text)
        if part.logprobs and part.channel is Channel.TEXT:
            content.output_text.logprobs.extend(part.logprobs)
        if self._verbosity == _FULL:
            for event in part_done(part.channel, self.output_index, part.index, text, content):
                self.emit_full(event)
        else:
            self._outbox.skip(self._queue, 2)
        self._parts.append(content)
        self._part = None

    def _open_call(self, start: CallStart) -> None:
        self._close_item(_COMPLETED)
        self._tokens = start.tokens
        hosted = self._listener.is_hosted(start.name)
        call_id = self._listener.new_call_id(start.call_id)
        self._call = _Call(start.name, start.kind, call_id, hosted)
        if hosted:
            # Announced when its turn comes: items never overlap, and its outcome is not known yet.
            return
        if start.kind is CallKind.FUNCTION:
            self._item_id = self._listener.new_item_id("function")
            self._delta = Delta.ARGUMENTS
        else:
            self._item_id = self._listener.new_item_id("custom")
            self._delta = Delta.CUSTOM_INPUT
        self.announce(self._call_item(self._call, "", _IN_PROGRESS))

    def _call_delta(self, chunk: CallDelta) -> None:
        call = self._call
        if call is None:
            # An engine that says arguments outside a call is broken; its words are kept as text rather than lost.
            self.feed((TextChunk(Channel.TEXT, chunk.text, chunk.tokens),))
            return
        self._tokens += chunk.tokens
        if not chunk.text:
            return
        call.pieces.append(chunk.text)
        if not call.hosted:
            self._emit_text(self._delta, 0, chunk.text, chunk.ids)

    def _call_item(self, call: _Call, text: str, status: ItemStatus.ValueType) -> Item:
        namespace, name = self._listener.split(call.name)
        if call.kind is CallKind.FUNCTION:
            function = FunctionCall(
                id=self._item_id,
                call_id=call.call_id,
                name=name,
                arguments=text,
                status=status,
                namespace=namespace or None,
            )
            return Item(function_call=function)
        custom = CustomToolCall(
            id=self._item_id, call_id=call.call_id, name=name, input=text, status=status, namespace=namespace or None
        )
        return Item(custom_tool_call=custom)

    def _close_call(self, call: _Call, status: ItemStatus.ValueType) -> None:
        self._call = None
        text = "".join(call.pieces)
        tokens, self._tokens = self._tokens, 0
        if call.hosted:
            if status == _COMPLETED:
                self._listener.hosted_call(call.call_id, call.name, text, tokens)
            return
        index = self.output_index
        if self._verbosity == _FULL:
            if call.kind is CallKind.FUNCTION:
                done = FunctionCallArgumentsDone(output_index=index, arguments=text)
                self.emit_full(ServerEvent(function_call_arguments_done=done))
            else:
                custom = CustomToolCallInputDone(output_index=index, input=text)
                self.emit_full(ServerEvent(custom_tool_call_input_done=custom))
        else:
            self._outbox.skip(self._queue)
        self.deliver(self._call_item(call, text, status), tokens)

    def _close_item(self, status: ItemStatus.ValueType) -> None:
        if self._call is not None:
            self._close_call(self._call, status)
            return
        if self._part is None:
            return
        message = self._part.channel in _MESSAGE_CHANNELS
        phase = self._part.phase or None
        self._close_part()
        parts, self._parts = self._parts, []
        tokens, self._tokens = self._tokens, 0
        if message:
            content = no_parts()
            content.parts.parts.extend(parts)
            said = Message(id=self._item_id, role=Role.ROLE_ASSISTANT, status=status, content=content, phase=phase)
            item = Item(message=said)
        else:
            reasoning = Reasoning(
                id=self._item_id,
                summary=[p for p in parts if p.HasField("summary_text")],
                content=[p for p in parts if not p.HasField("summary_text")],
                # Reasoning items carry a status only where they were cut short.
                status=status if status == _INCOMPLETE else ItemStatus.ITEM_STATUS_UNSPECIFIED,
            )
            sealed = self._listener.seal(reasoning)
            if sealed is not None:
                reasoning.encrypted_content = sealed
            item = Item(reasoning=reasoning)
        self.deliver(item, tokens)
