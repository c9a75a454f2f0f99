"""The session of the service `turnwire.v1` from the client's side, over whatever carries its messages.

Above it: `grpc_session`, `native` and `null`. Below it: the generated messages. One reader takes all batches and hands
events to the turns they belong to. No credits are asked for: flow control is the transport's, as for clients without
`open`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from turnwire.bench.drivers.port import IDS, LOGPROBS, Called, Conversation, Failed, New, Turn, UserMessage
from turnwire.bench.metrics.turns import Stages
from turnwire.bench.scenario.compiling import MODEL, Rollout
from turnwire.v1.client_event_pb2 import ConnectRequest, ResponseAppend
from turnwire.v1.item_pb2 import FunctionCallOutput, Item, Message, MessageContent, Role, ToolOutput
from turnwire.v1.response_pb2 import DoneReason, Input, InputItems, ResponseCreate, TokenOutput, Verbosity
from turnwire.v1.responses_service_pb2 import ConnectResponse
from turnwire.v1.server_event_pb2 import ResponseDone, ServerEvent
from turnwire.v1.session_pb2 import SessionOpen
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolSet

OPENING: Final = ConnectRequest(open=SessionOpen(session_credit_bytes=0, response_credit_bytes=0))
_DELTAS: Final = frozenset(
    ("output_text_delta", "function_call_arguments_delta", "reasoning_text_delta", "reasoning_summary_text_delta")
)
_ENDS_WELL: Final = (DoneReason.DONE_REASON_COMPLETED, DoneReason.DONE_REASON_TOOL_CALLS)


def items(new: Sequence[New]) -> list[Item]:
    """Returns what is new as items."""
    return [
        Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=each.text)))
        if isinstance(each, UserMessage)
        else Item(function_call_output=FunctionCallOutput(call_id=each.call_id, output=ToolOutput(text=each.output)))
        for each in new
    ]


def create(rollout: Rollout, new: Sequence[New], previous: str, *, store: bool, hold: bool = False) -> ResponseCreate:
    """Returns a create: with all settings at the beginning of a conversation, and inheriting them later."""
    if previous:
        request = ResponseCreate(previous_response_id=previous, inherit=True)
    else:
        tools = [
            Tool(function=FunctionTool(name=tool.name, description=tool.description, parameters=tool.parameters))
            for tool in rollout.tools
        ]
        request = ResponseCreate(model=MODEL, instructions=rollout.instructions, tools=ToolSet(tools=tools))
        new = (*(UserMessage(text) for text in rollout.history), *new)
    request.input.CopyFrom(Input(items=InputItems(items=items(new))))
    request.store = store
    if hold:
        request.hold = True
    output = rollout.output
    if output.done_only:
        request.verbosity = Verbosity.VERBOSITY_DONE
    if output.token_ids or output.logprobs:
        request.token_output.in_done = True
        request.token_output.logprobs = output.logprobs
    return request


def asked(rollout: Rollout) -> dict[str, int]:
    """Returns the counts of what is asked for beside text, none of which is there yet."""
    output = rollout.output
    return ({IDS: 0} if output.token_ids else {}) | ({LOGPROBS: 0} if output.logprobs else {})


def stages(done: ResponseDone) -> Stages | None:
    """Returns what a `done` tells of the server's stages."""
    if not done.HasField("times"):
        return None
    times = done.times
    return Stages(times.queued + times.pre_inference, times.inference, times.post_inference)


def take(turn: Turn, event: ServerEvent, kind: str, now: float) -> bool:
    """Puts an event of a response into its turn; returns whether that ends the turn.

    Raises:
        Failed: The response did not end well.
    """
    if kind in _DELTAS:
        turn.arrivals.append(now)
        if kind == "output_text_delta":
            turn.text.append(event.output_text_delta.delta)
    elif kind == "output_item_done":
        _take_call(turn, event.output_item_done.item)
    elif kind == "done":
        turn.done = now
        turn.told = stages(event.done)
        for item in event.done.output:
            _take_call(turn, item)
            if item.WhichOneof("kind") == "message":
                turn.text += [part.output_text.text for part in item.message.content.parts.parts]
        if event.done.HasField("token_output"):
            _count(turn, event.done.token_output)
        if event.done.reason not in _ENDS_WELL:
            raise Failed(f"{DoneReason.Name(event.done.reason)}: {event.done.error.message}")
        return True
    return False


def _take_call(turn: Turn, item: Item) -> None:
    if item.WhichOneof("kind") == "function_call":
        call = item.function_call
        turn.calls.append(Called(call.call_id, call.name, call.arguments))


def _count(turn: Turn, output: TokenOutput) -> None:
    for span in output.spans:
        # As lists: whoever asks for them reads them, those of what was rendered as well.
        ids, logprobs = list(span.ids), list(span.logprobs)
        for what, values in ((IDS, ids), (LOGPROBS, logprobs)):
            if span.sampled and what in turn.counts:
                turn.counts[what] += len(values)


class _Waiting:
    """A turn that is being played, and who waits for it."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.turn = Turn(counts=counts)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.handle = 0

    def fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)


class Wire(Protocol):
    """What carries a session's messages."""

    async def send(self, request: ConnectRequest) -> None:
        """Sends a message. Cancelling it leaves the session unusable."""
        ...

    async def receive(self) -> tuple[ConnectResponse, float]:
        """Returns the next batch, and the moment at which it had come. Cancelling it leaves the session unusable.

        Raises:
            Failed: There are no more.
        """
        ...


class Serialized:
    """Messages as bytes, over whatever writes and reads these."""

    def __init__(self, write: Callable[[bytes], Awaitable[object]], read: Callable[[], Awaitable[bytes]]) -> None:
        """Takes how messages are written and read; reading raises at the end."""
        self._write = write
        self._read = read

    async def send(self, request: ConnectRequest) -> None:
        """Serializes and writes; see `Wire`."""
        await self._write(request.SerializeToString())

    async def receive(self) -> tuple[ConnectResponse, float]:
        """Reads and parses; see `Wire`."""
        data = await self._read()
        now = time.perf_counter()
        return ConnectResponse.FromString(data), now


class Session:
    """One session: its lanes, and the turns that are played in them."""

    def __init__(self, rollout: Rollout, wire: Wire) -> None:
        """Takes the rollout, and what carries messages."""
        self._rollout = rollout
        self._wire = wire
        self._lanes: dict[str, _Waiting] = {}
        self._handles: dict[int, tuple[str, CompactConversation]] = {}
        self._conversations: dict[str, CompactConversation] = {}
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Opens the session, and waits for the answer. When cancelled, `close` has to follow."""
        await self._wire.send(OPENING)
        await self._wire.receive()
        self._reading = asyncio.create_task(self._receive())

    def conversation(self, name: str, *, hold: bool) -> CompactConversation:
        """Begins a conversation in a lane."""
        made = self._conversations[name] = CompactConversation(self, name, hold=hold)
        return made

    async def play(self, lane: str, request: Callable[[], ConnectRequest]) -> Turn:
        """Sends a request and waits for its turn to end; see `Conversation.turn`."""
        waiting = self._lanes[lane] = _Waiting(asked(self._rollout))
        waiting.turn.send()
        try:
            await self._wire.send(request())
            await waiting.ended
        finally:
            self._lanes.pop(lane, None)
        return waiting.turn

    def create(self, lane: str, new: Sequence[New], previous: str, *, hold: bool) -> ConnectRequest:
        """Returns a create in a lane; its response exists for this session only."""
        return ConnectRequest(lane=lane, create=create(self._rollout, new, previous, store=False, hold=hold))

    async def _receive(self) -> None:
        try:
            while True:
                batch, now = await self._wire.receive()
                for event in batch.events:
                    self._take(event, now)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Whatever it was, those who wait have to hear of it: each in an exception of its own, since all are raised.
            for waiting in self._lanes.values():
                waiting.fail(Failed(f"{type(error).__name__}: {error}"))

    def _take(self, event: ServerEvent, now: float) -> None:
        kind = event.WhichOneof("event") or ""
        if kind == "created":
            lane = event.created.lane
            conversation = self._conversations[lane]
            conversation.response_id = event.created.response.id
            self._handles[event.response] = lane, conversation
        elif kind == "rejected":
            rejected = event.rejected
            refused = self._lanes.get(rejected.lane)
            if refused is not None:
                refused.fail(Failed(f"{rejected.error.code}: {rejected.error.message}"))
        elif event.response in self._handles:
            lane, conversation = self._handles[event.response]
            waiting = self._lanes.get(lane)
            if waiting is None:
                # `appended` may follow the pause that it led to, and nobody waits for it.
                return
            try:
                ended = take(waiting.turn, event, kind, now)
            except Failed as error:
                waiting.fail(error)
                return
            if ended:
                conversation.held = event.done.reason == DoneReason.DONE_REASON_TOOL_CALLS
                if not conversation.held:
                    del self._handles[event.response]
                if not waiting.ended.done():
                    waiting.ended.set_result(None)

    async def close(self) -> None:
        """Reads no more. Cancelling it is safe."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


class CompactConversation:
    """A chain in one lane: by creates, or by appends into held responses."""

    def __init__(self, session: Session, lane: str, *, hold: bool, response_id: str = "") -> None:
        """Takes its session and lane, the shape, and the response that it goes on from."""
        self._session = session
        self._lane = lane
        self._hold = hold
        self.response_id = response_id
        """The latest response."""
        self.held = False
        """Whether that waits for outputs."""

    async def turn(self, new: Sequence[New]) -> Turn:
        """Plays one turn; see `Conversation`."""
        if self.held:
            return await self._session.play(self._lane, lambda: self._append(new))
        return await self._session.play(
            self._lane, lambda: self._session.create(self._lane, new, self.response_id, hold=self._hold)
        )

    def _append(self, new: Sequence[New]) -> ConnectRequest:
        append = ResponseAppend(response_id=self.response_id, input=items(new))
        return ConnectRequest(lane=self._lane, append=append)

    def fork(self, name: str) -> Conversation:
        """Goes on from here in another lane; see `Conversation`."""
        forked = self._session.conversation(name, hold=self._hold)
        forked.response_id = self.response_id
        return forked
