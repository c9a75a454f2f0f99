"""A server in memory for the tests of applications.

    fake = FakeServer()
    fake.answer(function_call("weather", {"city": "Oslo"}, call_id="call_1"))
    fake.answer(message("It rains."))
    async with fake.connect() as session:
        ...
    assert fake.appends[0].input[0].function_call_output.output.text == "rain"

Answers are played in order: one for each create, and one for each append that completes a held response's outputs. What
was asked without an answer in store is refused, and leaving `connect` raises for it, as for answers nobody asked for.
No model, no queueing in lanes, no limits: those are the real server's.

Below: `_transport`'s seam. Above: tests. It follows the protocol's comments and knows nothing of the real server.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from turnwire.client._body import VerbosityLike
from turnwire.client._channel import ChannelOptions
from turnwire.client._connection import Signal
from turnwire.client._fake import Answer, FakeSession, MemoryTransport
from turnwire.client.client import connect
from turnwire.client.exceptions import TurnwireError
from turnwire.client.session import Session
from turnwire.v1.client_event_pb2 import ConnectRequest, ResponseAppend, ResponseCancel
from turnwire.v1.errors import make_error
from turnwire.v1.item_pb2 import (
    ContentPart,
    ContentParts,
    CustomToolCall,
    FunctionCall,
    Item,
    ItemStatus,
    Message,
    MessageContent,
    OutputText,
    Role,
)
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.server_event_pb2 import (
    ServerEvent,
)
from turnwire.v1.session_pb2 import SessionGoAway
from turnwire.v1.usage_pb2 import Usage

_SESSION_CREDIT: Final = 256 * 1024


def message(text: str) -> Item:
    """Returns a message of the model, for `FakeServer.answer`."""
    part = ContentPart(output_text=OutputText(text=text))
    content = MessageContent(parts=ContentParts(parts=[part]))
    return Item(message=Message(role=Role.ROLE_ASSISTANT, status=_COMPLETED, content=content))


def function_call(name: str, arguments: Mapping[str, object] | str, *, call_id: str) -> Item:
    """Returns a call of a function tool, for `FakeServer.answer`."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Item(function_call=FunctionCall(call_id=call_id, name=name, arguments=text, status=_COMPLETED))


def custom_tool_call(name: str, text: str, *, call_id: str) -> Item:
    """Returns a call of a custom tool, for `FakeServer.answer`."""
    return Item(custom_tool_call=CustomToolCall(call_id=call_id, name=name, input=text, status=_COMPLETED))


_COMPLETED: Final = ItemStatus.ITEM_STATUS_COMPLETED


class FakeServer:
    """Plays answers and records what was asked, over all sessions with it."""

    def __init__(self, *, session_credit_bytes: int = _SESSION_CREDIT, response_credit_bytes: int = 0) -> None:
        """Takes the credits to announce; the fake never waits for credit."""
        self.session_credit_bytes: Final = session_credit_bytes
        self.response_credit_bytes: Final = response_credit_bytes
        self.requests: list[ConnectRequest] = []
        """Everything clients sent, acknowledgements, credit, pings and the opening included."""
        self.sessions: list[FakeSession] = []
        """The sessions that were opened, one per stream."""
        self.complaints: list[str] = []
        """What clients asked that no answer was in store for."""
        self._numbers: Final = itertools.count(1)
        self._answers: deque[Answer] = deque()
        self._arrived: Final = Signal()

    # What will happen.

    def answer(self, *items: Item, usage: Usage | None = None) -> None:
        """The next pass brings these items; with calls in it, a held response pauses."""
        self._answers.append(Answer(items, usage))

    def fail(self, code: str, text: str, *items: Item) -> None:
        """The next pass brings these items, then fails."""
        self._answers.append(Answer(items, error=make_error(code, text)))

    def reject(self, code: str, text: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        """The next create or append is refused."""
        error = make_error(code, text, param=param, retry_after=retry_after)
        self._answers.append(Answer(rejection=error))

    def hang(self, *items: Item) -> None:
        """The next pass brings these items and then nothing, until it is cancelled or the session ends."""
        self._answers.append(Answer(items, hang=True))

    def go_away(self, reason: str = "shutdown") -> None:
        """Asks all clients to move to another connection."""
        for session in self.sessions:
            session.send(ServerEvent(go_away=SessionGoAway(reason=reason)))

    def drop(self, error: TurnwireError | None = None) -> None:
        """Ends all streams: in order, or with an error such as `RpcFailedError("UNAVAILABLE", "gone")`."""
        for session in self.sessions:
            session.end(error)

    # What happened.

    @property
    def creates(self) -> list[ResponseCreate]:
        """The bodies of all creates."""
        return [request.create for request in self.requests if request.HasField("create")]

    @property
    def appends(self) -> list[ResponseAppend]:
        """All appends, refused ones too."""
        return [request.append for request in self.requests if request.HasField("append")]

    @property
    def cancels(self) -> list[ResponseCancel]:
        """All cancels."""
        return [request.cancel for request in self.requests if request.HasField("cancel")]

    async def asked(self, kind: str) -> ConnectRequest:
        """Waits until a client has sent a message of a kind, such as `cancel`, and returns the first one.

        Cancelling it is safe; give it a time-out.
        """
        while True:
            for request in self.requests:
                if request.WhichOneof("event") == kind:
                    return request
            await self._arrived.wait()

    def verify(self) -> None:
        """Checks that everything went as planned.

        Raises:
            AssertionError: Answers were not asked for, or something was asked without an answer in store.
        """
        problems = list(self.complaints)
        if self._answers:
            problems.append(f"{len(self._answers)} answers were not asked for")
        if problems:
            raise AssertionError("; ".join(problems))

    @asynccontextmanager
    async def connect(
        self, *, verbosity: VerbosityLike | None = None, streams: int = 1, options: ChannelOptions | None = None
    ) -> AsyncGenerator[Session]:
        """Opens a session with this server, and verifies when it is left without an error. Cancelling it is safe."""
        async with connect(
            "memory", verbosity=verbosity, streams=streams, options=options, transport=self.transport
        ) as session:
            yield session
        self.verify()

    def transport(self) -> MemoryTransport:
        """Returns a transport to this server, for `connect(transport=fake.transport)`."""
        session = FakeSession(self)
        self.sessions.append(session)
        transport = MemoryTransport(session.receive)
        session.deliver, session.end = transport.deliver, transport.end
        return transport

    def record(self, request: ConnectRequest) -> None:
        """Notes what a client sent."""
        self.requests.append(request)
        self._arrived.notify()

    def next_number(self) -> int:
        """Returns a number that was not used before."""
        return next(self._numbers)

    def next_answer(self, asked: str) -> Answer:
        """Takes the next answer out; complains when there is none."""
        if self._answers:
            return self._answers.popleft()
        self.complaints.append(f"no answer was in store for {asked}")
        return Answer(rejection=make_error("not_implemented", f"no answer was in store for {asked}"))


__all__ = ["FakeServer", "FakeSession", "MemoryTransport", "custom_tool_call", "function_call", "message"]
