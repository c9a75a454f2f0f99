"""A session with a stand-in for everything around it, all by plain calls: the tests say what happens and when.

Above: the tests of this folder. Below: the session core.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from google.protobuf.json_format import ParseDict

from turnwire.server.session.accounts import Keep
from turnwire.server.session.budget import Budget
from turnwire.server.session.calls import pair, require_answered
from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallStart,
    Channel,
    Chunk,
    EngineFailure,
    Finish,
    FinishReason,
    TextChunk,
)
from turnwire.server.session.context import SessionConfig
from turnwire.server.session.effects import (
    AbortPass,
    CancelTools,
    Close,
    Effect,
    Hydrate,
    ListTools,
    PausePass,
    Persist,
    Prepare,
    PrepareAppend,
    Prepared,
    ResumePass,
    RunTool,
    StartPass,
)
from turnwire.server.session.hosted import approvals, listings
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.prompt import Prompt
from turnwire.server.session.screens import Classify, Hit, Safety, Verdict
from turnwire.server.session.session import Session
from turnwire.server.session.state import State
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.session.transcript import Entry, Origin, count_turns
from turnwire.v1.client_event_pb2 import ConnectRequest
from turnwire.v1.errors import RequestError
from turnwire.v1.ids import IdSource
from turnwire.v1.server_event_pb2 import ServerEvent

HOSTED = "hosted_"


class Core:
    """One session; functions and MCP servers whose names begin with `hosted_` are run by the server."""

    def __init__(
        self,
        *,
        manual: bool = False,
        store: dict[str, State] | None = None,
        keep: Keep | None = None,
        safety: Safety | None = None,
        budget: Budget | None = None,
        moment: Callable[[], float] | None = None,
        **limits: Any,
    ) -> None:
        """Takes limits, whether preparation waits for `answer`, what the store holds, who keeps records, how responses
        are guarded, what is shared with other sessions, and a clock that goes on while the core works."""
        numbers = itertools.count(1)
        self.now = 0.0
        self.manual = manual
        self.store = {} if store is None else store
        config = SessionConfig(
            session_id="sess_1",
            principal="",
            ids=IdSource(lambda size: next(numbers).to_bytes(size, "big")),
            epoch=1_800_000_000.0,
            limits=replace(SessionLimits(), **limits),
            tool_sets=ToolSets(),
            features=("append",),
            keep=keep,
            safety=safety,
            budget=budget,
            moment=moment,
        )
        self.session = Session(config, self.now)
        self.events: list[ServerEvent] = []
        self.first_ids: list[int] = []
        self.effects: list[Effect] = []
        """All effects so far."""
        self.todo: list[Prepare | PrepareAppend | Hydrate] = []
        """What waits for an answer."""
        self.questions: list[Classify] = []
        """What is to be classified elsewhere."""
        self.prompts: dict[int, Prompt] = {}
        """Passes that an engine works on, by id."""
        self.engine_paused: set[int] = set()
        self.tools: list[RunTool | ListTools] = []
        """Hosted tools that run, and servers whose tools are listed."""
        self.closed: Close | None = None
        self.pulling = True
        self._requests = itertools.count(1)

    # The client

    def send(self, event: dict[str, Any], *, request_id: str | None = None, lane: str | None = None) -> str:
        """Sends a client event in proto JSON and returns its request id."""
        request = ParseDict(event, ConnectRequest())
        request.request_id = f"req_{next(self._requests)}" if request_id is None else request_id
        if lane is not None:
            request.lane = lane
        self.session.receive(self.now, request, request.ByteSize())
        self.settle()
        return request.request_id

    def create(self, text: str = "hi", *, lane: str | None = None, request_id: str | None = None, **body: Any) -> str:
        """Sends a create and returns its request id."""
        create: dict[str, Any] = {"model": "stepped", **body}
        create.setdefault("input", {"text": text})
        return self.send({"create": create}, lane=lane, request_id=request_id)

    def append(self, response_id: str, *answered: str, index: int | None = None, text: str = "done") -> str:
        """Appends outputs of function calls."""
        outputs = [{"function_call_output": {"call_id": call, "output": {"text": text}}} for call in answered]
        append: dict[str, Any] = {"response_id": response_id, "input": outputs}
        if index is not None:
            append["append_index"] = index
        return self.send({"append": append})

    def id_of(self, request_id: str) -> str:
        """Returns the response that a create became."""
        return self.created(request_id).created.response.id

    def handle_of(self, request_id: str) -> int:
        """Returns the handle of the response that a create became."""
        return self.created(request_id).response

    def created(self, request_id: str) -> ServerEvent:
        """Returns the announcement of a create."""
        for event in self.events:
            if event.created.request_id == request_id and not event.created.duplicate:
                return event
        msg = f"{request_id} was not created"
        raise LookupError(msg)

    def kinds(self, handle: int | None = None) -> list[str]:
        """Lists the kinds of the events so far, of one response or of all."""
        return [e.WhichOneof("event") or "" for e in self.events if handle is None or e.response == handle]

    def last(self, kind: str) -> Any:
        """Returns the last event of a kind."""
        for event in reversed(self.events):
            if event.WhichOneof("event") == kind:
                return getattr(event, kind)
        msg = f"no {kind} among {self.kinds()}"
        raise LookupError(msg)

    # The engine

    @property
    def newest(self) -> int:
        """The newest pass."""
        return max(self.prompts)

    def say(self, *texts: str, pass_id: int | None = None, channel: Channel = Channel.TEXT) -> None:
        """Lets an engine output text."""
        self.output([TextChunk(channel, text) for text in texts], pass_id)

    def call(self, name: str, call_id: str, arguments: str = "{}", pass_id: int | None = None) -> None:
        """Lets an engine call a function."""
        self.output([CallStart(name, call_id=call_id), CallDelta(arguments), CallEnd()], pass_id)

    def output(self, chunks: Sequence[Chunk], pass_id: int | None = None) -> None:
        """Lets an engine output chunks."""
        self.session.engine_output(self.now, self.newest if pass_id is None else pass_id, chunks)
        self.settle()

    def finish(self, reason: FinishReason = FinishReason.STOP, pass_id: int | None = None) -> None:
        """Lets an engine stop."""
        self.end(Finish(reason), pass_id)

    def end(self, outcome: Finish | EngineFailure, pass_id: int | None = None) -> None:
        """Lets an engine end a pass."""
        ended = self.newest if pass_id is None else pass_id
        self.prompts.pop(ended, None)
        self.engine_paused.discard(ended)
        self.session.engine_ended(self.now, ended, outcome)
        self.settle()

    # The surroundings

    def advance(self, seconds: float) -> None:
        """Moves the clock from deadline to deadline."""
        end = self.now + seconds
        while (due := self.session.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.session.tick(self.now)
            self.settle()
        self.now = end

    def settle(self) -> None:
        """Carries out effects, and takes batches while `pulling`."""
        while True:
            while effects := self.session.effects():
                self.effects += effects
                for effect in effects:
                    self._carry_out(effect)
            if not self.pulling or (batch := self.session.pull(self.now)) is None:
                return
            self.session.sent(batch.ByteSize())
            self.first_ids.append(batch.first_event_id)
            self.events += batch.events

    def answer(self, index: int = 0) -> None:
        """Answers what waits for an answer."""
        self._answer(self.todo.pop(index))
        self.settle()

    def judge(self, *hits: Hit, failed: bool = False, index: int = 0) -> None:
        """Answers what was to be classified elsewhere."""
        asked = self.questions.pop(index)
        verdict = Verdict(hits, failed)
        self.session.verdict(self.now, asked.handle, asked.ticket, verdict, asked.direction)
        self.settle()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Prepare() | PrepareAppend() | Hydrate():
                if self.manual:
                    self.todo.append(effect)
                else:
                    self._answer(effect)
            case StartPass(prompt=prompt):
                self.prompts[prompt.pass_id] = prompt
            case AbortPass(pass_id=pass_id):
                del self.prompts[pass_id]
                self.engine_paused.discard(pass_id)
            case PausePass(pass_id=pass_id):
                self.engine_paused.add(pass_id)
            case ResumePass(pass_id=pass_id):
                self.engine_paused.remove(pass_id)
            case RunTool() | ListTools():
                self.tools.append(effect)
            case CancelTools(pass_id=pass_id):
                self.tools = [tool for tool in self.tools if tool.pass_id != pass_id]
            case Classify():
                self.questions.append(effect)
            case Persist(state=state):
                self.store[state.id] = state
            case Close():
                self.closed = effect
            case _:
                pass

    def _answer(self, effect: Prepare | PrepareAppend | Hydrate) -> None:
        session = self.session
        match effect:
            case Hydrate():
                session.hydrated(self.now, effect.handle, self.store.get(effect.response_id))
            case PrepareAppend():
                entries = self._entries(effect, Origin.APPEND)
                session.append_prepared(self.now, effect.handle, effect.ticket, entries)
            case Prepare():
                names = (tool.function.name for tool in effect.tools.parsed().tools)
                effect.tools.hosted = frozenset(name for name in names if name.startswith(HOSTED))
                labels = (tool.mcp.server_label for tool in effect.tools.parsed().tools)
                effect.tools.servers = tuple(label for label in labels if label.startswith(HOSTED))
                try:
                    open_calls = pair(effect.open_calls, effect.items)
                    require_answered(open_calls)
                except RequestError as refusal:
                    session.refused(self.now, effect.handle, refusal.error)
                    return
                entries = self._entries(effect, Origin.INPUT)
                turns = count_turns(effect.items)
                listed, answered = listings(effect.items, entries), approvals(effect.items)
                ready = Prepared(effect.settings.model, entries, open_calls, turns, listed, answered)
                session.prepared(self.now, effect.handle, ready)

    @staticmethod
    def _entries(effect: Prepare | PrepareAppend, origin: Origin) -> tuple[Entry, ...]:
        return tuple(Entry(item.SerializeToString(), origin, 1) for item in effect.items)


def tool(name: str) -> dict[str, Any]:
    """A function declared in a create."""
    return {"function": {"name": name}}
