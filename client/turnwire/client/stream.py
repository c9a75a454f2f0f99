"""A response as it streams.

Below: `_fold` keeps what is known, `_connection` moves messages. Above: the application, the agent loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias, TypeVar, Unpack, cast

from turnwire.client._body import CreateFields, InputLike, ItemLike, build_input, build_items
from turnwire.client._connection import Connection, Signal
from turnwire.client._fold import Arrived, ResponseState
from turnwire.client.events import Event
from turnwire.client.exceptions import ResponseFailedError
from turnwire.v1.item_pb2 import (
    ApplyPatchCall,
    ComputerCall,
    CustomToolCall,
    FunctionCall,
    Item,
    LocalShellCall,
    ShellCall,
    ToolSearchCall,
)
from turnwire.v1.response_pb2 import DoneReason, Response
from turnwire.v1.server_event_pb2 import ResponseDone
from turnwire.v1.usage_pb2 import Usage

if TYPE_CHECKING:
    from turnwire.client.session import Session

ToolCall: TypeAlias = (
    FunctionCall | CustomToolCall | LocalShellCall | ShellCall | ApplyPatchCall | ToolSearchCall | ComputerCall
)
"""A call the client has to answer; each has a `call_id`."""

T = TypeVar("T")


class ResponseStream:
    """A response of a session: an iterator over its events, and what can be done with it.

    All ways to read share one place in the stream: the iterator, `calls`, `text_deltas`, `until_done` and
    `get_final_response` each go on where another stopped, and skip what they do not hand out. Use one at a time. What
    is *known* (`output_text`, `done`, `open_calls`) is ahead of that place: it is what has arrived.

    The server stops sampling when too much waits to be read, so read, or `cancel`. Left as a context manager, a
    response that still runs is cancelled.
    """

    def __init__(self, state: ResponseState, connection: Connection, session: Session) -> None:
        """Made by `Session.create`."""
        self._state: Final = state
        self._connection: Final = connection
        self._session: Final = session
        self._changed: Final = Signal()
        self._calls_taken = 0
        self._share: Final = connection.protocol.credit.response_share
        state.listener = self._changed.notify

    @property
    def id(self) -> str:
        """The id of the response, to be named as `previous_response_id`."""
        return self._state.id

    @property
    def lane(self) -> str:
        """The lane it runs in; empty is the default lane."""
        return self._state.lane

    @property
    def request_id(self) -> str:
        """The request that created it."""
        return self._state.request_id

    @property
    def duplicate(self) -> bool:
        """Whether the request had been sent before, so that this is the response it created then."""
        return self._state.duplicate

    @property
    def done(self) -> ResponseDone | None:
        """The latest pause, or the end; None before either."""
        return self._state.done

    @property
    def paused(self) -> bool:
        """Whether the response is held and waits for outputs."""
        return self._state.paused

    @property
    def ended(self) -> bool:
        """Whether the response has ended, whether or not all of it was read."""
        return self._state.ended

    @property
    def usage(self) -> Usage | None:
        """Tokens of all passes up to the latest pause or the end."""
        done = self._state.done
        return done.usage if done is not None and done.HasField("usage") else None

    @property
    def output_text(self) -> str:
        """The visible text so far."""
        return self._state.output_text

    @property
    def output(self) -> list[Item]:
        """The finished items and the outputs that were appended, in order."""
        return self._state.output()

    @property
    def open_calls(self) -> list[ToolCall]:
        """Finished calls whose outputs were neither sent nor made void."""
        return [_call(item) for item in self._state.open_calls()]

    @property
    def response(self) -> Response:
        """The response as far as it is known, as a message of the caller's own."""
        return self._state.snapshot()

    # Reading.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Returns the next event; the last one is the terminal `response.done`.

        Cancelling it is safe: no event is lost.

        Raises:
            SessionLost: The session ended before the response; everything that arrived was returned first.
        """
        while True:
            arrived = self._state.take()
            if arrived is not None:
                if self._state.consumed >= self._share:
                    self._connection.return_credit(self._state)
                return Event(*arrived)
            if self._state.ended:
                raise StopAsyncIteration
            await self._more()

    async def until_done(self) -> ResponseDone:
        """Reads up to the next pause that waits for an answer, or the end, and returns it. Cancelling it is safe.

        Called again without an answer in between, and after the end, it returns the same one.

        Raises:
            SessionLost: The session ended before.
        """
        while await self._next_within_pass() is not None:
            pass
        self._state.take()
        return cast("ResponseDone", self._state.done)

    async def get_final_response(self, *, raise_on_failure: bool = True) -> Response:
        """Reads to the end and returns the whole response. Cancelling it is safe.

        A held response ends only when its calls are answered, so somebody has to append meanwhile.

        Args:
            raise_on_failure: Whether a response that failed raises. Cancelled and incomplete ones are returned.

        Raises:
            ResponseFailedError: The response failed.
            SessionLost: The session ended before.
        """
        state = self._state
        while not state.ended or state.events:
            state.drop()
            if not state.ended:
                await self._more()
        if state.truncated:
            response = await self._session.get_response(self.id, connection=self._connection)
        else:
            response = state.snapshot()
        done = state.done
        if raise_on_failure and done is not None and done.reason == DoneReason.DONE_REASON_FAILED:
            raise ResponseFailedError(done.error, response)
        return response

    def calls(self) -> CallIterator:
        """Iterates over tool calls, each as soon as its arguments are complete, up to the next pause or the end.

        Each call is handed out once, so that outputs can be appended while the model goes on. The pause itself stays to
        be read; `done` and `until_done` have it. After it was answered, another `calls` goes on from there.
        """
        return CallIterator(self)

    def text_deltas(self) -> TextIterator:
        """Iterates over pieces of visible text, up to the next pause or the end, which stays to be read."""
        return TextIterator(self)

    def _more(self) -> asyncio.Future[None]:
        """Returns a future for when something concerned this response. Cancelling it is safe.

        Raises:
            SessionLost: Nothing will.
        """
        if self._state.consumed:
            self._connection.return_credit(self._state)
        self._connection.check()
        return self._changed.wait()

    async def _next_within_pass(self) -> Arrived | None:
        """Takes the next event; None, leaving it where it is, at a pause that nobody has answered and at the end."""
        state = self._state
        while True:
            if not state.events:
                if state.ended or state.standing:
                    return None
                await self._more()
                continue
            proto, kind = state.events[0]
            if kind == "done" and proto.sequence_number == state.done_sequence and (state.ended or state.standing):
                return None
            arrived = state.take()
            if state.consumed >= self._share:
                self._connection.return_credit(state)
            return arrived

    def _take_call(self) -> Item | None:
        calls = self._state.calls
        if self._calls_taken == len(calls):
            return None
        self._calls_taken += 1
        return calls[self._calls_taken - 1]

    async def _fetch_calls(self) -> None:
        """Fetches calls that were too large to be sent, which a server has from the next pause on.

        Cancelling it is safe: they are fetched the next time.
        """
        if not self._state.truncated_calls:
            return
        response = await self._session.get_response(self.id, connection=self._connection)
        by_index = dict(enumerate(response.output))
        for truncated in list(self._state.truncated_calls):
            self._state.fetched(truncated, by_index.get(truncated.output_index))

    # Acting.

    async def append(self, outputs: Iterable[ItemLike] | ItemLike) -> None:
        """Delivers tool outputs and returns when the server has taken them.

        Outputs may be sent as soon as their call is finished, in any order and in any number of appends; the library
        numbers them, so that none is taken twice.

        Cancelling it is safe, but the outputs may have been sent: they are then taken or refused without anybody
        hearing of it, and `open_calls` does not list their calls any more unless they were refused.

        Raises:
            TypeError: The outputs are no items. Nothing was sent.
            ValueError: A dict is no item. Nothing was sent.
            RequestRejectedError: The server refused them; the response is as it was.
            SessionLost: The session ended before; `unacknowledged_appends` has the outputs.
        """
        items = build_items(outputs)
        await self._connection.room()
        await self._connection.settled(self._connection.protocol.append(self._state, items))

    async def steer(self, text_or_messages: InputLike) -> None:
        """Adds user input to a held response, to be read with its next pass. Cancelling it is as with `append`.

        Raises:
            TypeError: It is neither text nor items. Nothing was sent.
            ValueError: A dict is no item. Nothing was sent.
            RequestRejectedError: The server refused it.
            SessionLost: The session ended before.
        """
        what = build_input(text_or_messages)
        await self._connection.room()
        await self._connection.settled(self._connection.protocol.steer(self._state, what))

    async def cancel(self) -> ResponseDone:
        """Cancels the response and returns its end, which may be another one if it came first.

        Events that arrived before stay to be read. A held response stays continuable from its last pause. Cancelling
        this call is safe; the response is then cancelled all the same.

        Raises:
            RequestRejectedError: The server refused.
            SessionLost: The session ended before.
        """
        state = self._state
        if not state.ended:
            await self._connection.room()
            await self._connection.settled(self._connection.protocol.cancel(state))
            await self._connection.until(self._changed, lambda: state.ended)
        return cast("ResponseDone", state.done)

    async def fork(self, *, lane: str, **fields: Unpack[CreateFields]) -> ResponseStream:
        """Creates a response that continues this one in another lane, from its latest pause or its end.

        Before either there is nothing to continue, so this waits for the first; it takes no events, and somebody has
        to read a response of more than what may wait unread. Otherwise as `Session.create`, and raises what that does.
        Cancelling it is safe: the new response is cancelled.
        """
        while self._state.done is None:
            await self._more()
        fields.setdefault("previous_response_id", self.id)
        return await self._session.create(lane=lane, connection=self._connection, **fields)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancels the response if it still runs, without waiting, and drops what was not read."""
        self._connection.abandon(self._state)

    def __repr__(self) -> str:
        how = "ended" if self.ended else "paused" if self.paused else "running"
        return f"<ResponseStream {self.id} {how}>"


class CallIterator:
    """Iterates over the tool calls of a pass; see `ResponseStream.calls`."""

    def __init__(self, stream: ResponseStream) -> None:
        """Made by `ResponseStream.calls`."""
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ToolCall:
        """Returns the next call. Cancelling it is safe: no call is lost.

        Raises:
            SessionLost: The session ended before.
        """
        stream = self._stream
        while True:
            item = stream._take_call()  # pyright: ignore[reportPrivateUsage]
            if item is not None:
                return _call(item)
            if await stream._next_within_pass() is not None:  # pyright: ignore[reportPrivateUsage]
                continue
            # Calls may have come with the pause, or have been too large to come at all.
            await stream._fetch_calls()  # pyright: ignore[reportPrivateUsage]
            item = stream._take_call()  # pyright: ignore[reportPrivateUsage]
            if item is None:
                raise StopAsyncIteration
            return _call(item)


class TextIterator:
    """Iterates over the visible text of a pass; see `ResponseStream.text_deltas`."""

    def __init__(self, stream: ResponseStream) -> None:
        """Made by `ResponseStream.text_deltas`."""
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Returns the next piece of text. Cancelling it is safe.

        Raises:
            SessionLost: The session ended before.
        """
        while True:
            arrived = await self._stream._next_within_pass()  # pyright: ignore[reportPrivateUsage]
            if arrived is None:
                raise StopAsyncIteration
            if arrived[1] == "output_text_delta":
                return arrived[0].output_text_delta.delta


def _call(item: Item) -> ToolCall:
    return cast("ToolCall", getattr(item, item.WhichOneof("kind") or ""))
