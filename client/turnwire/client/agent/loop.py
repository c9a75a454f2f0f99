"""The agent loop: ask the model, run the tools it calls, hand it their outputs, until it calls none.

    agent = Agent(session, model="m", tools=[read_file, run_tests], instructions="Fix the bug.")
    result = await agent.run("The tests fail.")
    print(result.text)

Below: sessions and streams, `tools`, and `report`, which does the sums. Above: applications, the commands, the demo.

A tool starts when its own arguments are complete, whatever else the model still writes. In shape `append` the whole run
is one held response, and each output goes there as soon as it is there; in shape `create` every turn is a response of
its own that continues the one before and inherits its settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from turnwire.client._body import CreateFields, InputLike
from turnwire.client._fold import is_client_call
from turnwire.client.agent.events import AgentEvent, Streamed, ToolFinished, ToolStarted, TurnEnded, TurnStarted
from turnwire.client.agent.report import RunTotals, TokenCounts, TurnReport, TurnTimer, totals
from turnwire.client.agent.tools import Tool, ToolResult, ToolSet
from turnwire.client.exceptions import RequestRejectedError, TurnwireError
from turnwire.client.items import custom_tool_call_output, function_call_output, function_tool
from turnwire.client.session import Session
from turnwire.client.stream import ResponseStream, ToolCall
from turnwire.v1.item_pb2 import CustomToolCall, FunctionCall, Item, ItemStatus
from turnwire.v1.response_pb2 import DoneReason, Response, ResponseStatus
from turnwire.v1.server_event_pb2 import ResponseDone

Shape: TypeAlias = Literal["append", "create"]
"""How a run travels: one held response, or a response per turn."""

DEFAULT_MAX_TURNS: Final = 100

Deliver: TypeAlias = Callable[[str, Item], Awaitable[None]]
"""Hands the output of a call on."""


class AgentError(TurnwireError):
    """A run cannot go on."""


class TurnLimitError(AgentError):
    """The model wanted more turns than `max_turns` allows."""

    def __init__(self, max_turns: int, response_id: str, turns: tuple[TurnReport, ...]) -> None:
        """Takes what there is of the run."""
        super().__init__(f"the model was not done within max_turns={max_turns}; raise it to let it go on")
        self.max_turns = max_turns
        """The limit."""
        self.response_id = response_id
        """The response that was cut off. Its calls of the last turn were not run."""
        self.turns = turns
        """The reports, oldest first."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What came of a run."""

    text: str
    """The model's closing words."""
    turns: tuple[TurnReport, ...]
    """The reports, oldest first."""
    totals: RunTotals
    """The turns added up, with the tokens of all."""
    response: Response
    """The last response: all of the run in shape `append`, its last turn in shape `create`."""

    @property
    def completed(self) -> bool:
        """Whether the model ended as it meant to, rather than by a limit or a cancel."""
        return self.response.status == ResponseStatus.RESPONSE_STATUS_COMPLETED


class Agent:
    """A model with tools, in one lane of a session. Several agents may share a session, each in a lane of its own."""

    def __init__(
        self,
        session: Session,
        *,
        model: str,
        tools: ToolSet | Iterable[Tool | Callable[..., Any]] = (),
        instructions: str | None = None,
        shape: Shape = "append",
        lane: str = "",
        max_turns: int = DEFAULT_MAX_TURNS,
        settings: CreateFields | None = None,
        on_event: Callable[[AgentEvent], None] | None = None,
    ) -> None:
        """Takes what stays the same over all runs.

        Args:
            session: Where to run.
            model: The model to ask.
            tools: A tool set, or functions that become one.
            instructions: What the model is told before everything else.
            shape: How a run travels; the model sees the same either way.
            lane: The lane to run in.
            max_turns: How often the model may be asked in one run.
            settings: Further fields of every create, such as `reasoning` or `timeouts`.
            on_event: Hears what happens, in order; must not block. What it raises ends the run.

        Raises:
            ValueError: `max_turns` is below 1, or there is no such shape.
            AgentError: The server does not take appends.
        """
        if max_turns < 1:
            msg = f"max_turns must be at least 1, not {max_turns}"
            raise ValueError(msg)
        if shape not in ("append", "create"):
            msg = f"no shape {shape!r}; choose append or create"
            raise ValueError(msg)
        if shape == "append" and "append" not in session.opened.features:
            msg = "this server does not take appends; use shape='create'"
            raise AgentError(msg)
        self.session: Final = session
        self.model: Final = model
        self.tools: Final = tools if isinstance(tools, ToolSet) else ToolSet(tools)
        self.instructions: Final = instructions
        self.shape: Final = shape
        self.lane: Final = lane
        self.max_turns: Final = max_turns
        self.settings: Final[CreateFields] = settings or {}
        self.on_event: Final = on_event or _ignore

    async def run(self, prompt: InputLike, *, previous_response_id: str | None = None) -> AgentResult:
        """Works on a prompt until the model calls no more tools.

        Cancelling it is safe: the response is cancelled in band, then the tools that run.

        Args:
            prompt: A text, or items.
            previous_response_id: Continues an earlier response, such as that of an earlier run.

        Raises:
            TurnLimitError: The model wanted more turns than `max_turns`.
            AgentError: The model called a tool of a kind that the agent has none of.
            ResponseFailedError: The response failed.
            RequestRejectedError: The server refused the prompt or an output.
            SessionLost: The session ended; it says which calls were open and which outputs may have been taken.
        """
        try:
            async with asyncio.TaskGroup() as group:
                run = _Run(self, group)
                work = run.held if self.shape == "append" else run.chained
                response = await work(prompt, previous_response_id)
        except BaseExceptionGroup as errors:
            error = _most_telling(errors)
            raise error from error.__cause__
        turns = tuple(run.reports)
        return AgentResult(closing_text(response), turns, totals(turns), response)


class _Run:
    """One run of an agent."""

    def __init__(self, agent: Agent, group: asyncio.TaskGroup) -> None:
        self._agent = agent
        self._group = group
        self._now = asyncio.get_running_loop().time
        self._started = self._now()
        self.reports: list[TurnReport] = []
        self._turn = TurnTimer(0, self._started)
        self._tools: dict[str, asyncio.Task[None]] = {}
        self._passes = 0
        self._tokens = TokenCounts()

    async def held(self, prompt: InputLike, previous_response_id: str | None) -> Response:
        """Runs in one response that is held at every pause."""
        self._ask(self._started)
        fields = self._fields(prompt, previous_response_id)
        fields["hold"] = True
        stream = await self._agent.session.create(lane=self._agent.lane, **fields)

        async def append(call_id: str, output: Item) -> None:
            self._advance()
            try:
                await stream.append(output)
            except RequestRejectedError:
                # The end of the response, which says why it ended, was faster.
                if not stream.ended:
                    raise

        async with stream:
            await self._read(stream, append)
            return await stream.get_final_response()

    async def chained(self, prompt: InputLike, previous_response_id: str | None) -> Response:
        """Runs in one response after the other."""
        self._ask(self._started)
        session, lane = self._agent.session, self._agent.lane
        fields = self._fields(prompt, previous_response_id)
        while True:
            outputs: dict[str, Item] = {}

            async def collect(call_id: str, output: Item, outputs: dict[str, Item] = outputs) -> None:
                outputs[call_id] = output

            self._passes, self._tokens = 0, TokenCounts()
            stream = await session.create(lane=lane, **fields)
            async with stream:
                done, calls = await self._read(stream, collect)
                if not calls or done.reason != DoneReason.DONE_REASON_COMPLETED:
                    return await stream.get_final_response()
            self._ask(self._turn.ended)
            fields = self._continued(stream.id, [outputs[call_id] for call_id in calls])

    def _fields(self, prompt: InputLike, previous_response_id: str | None) -> CreateFields:
        agent = self._agent
        fields: CreateFields = {
            "model": agent.model,
            "instructions": agent.instructions,
            "tools": [
                function_tool(one.name, description=one.description or None, parameters=one.parameters_json)
                for one in agent.tools.definitions()
            ],
        }
        fields.update(agent.settings)
        fields["input"] = prompt
        if previous_response_id is not None:
            fields["previous_response_id"] = previous_response_id
        return fields

    def _continued(self, response_id: str, outputs: list[Item]) -> CreateFields:
        if "inherit" not in self._agent.session.opened.features:
            return self._fields(outputs, response_id)
        fields: CreateFields = {"inherit": True}
        fields.update(self._agent.settings)
        fields["previous_response_id"] = response_id
        fields["input"] = outputs
        return fields

    # One turn after the other.

    def _ask(self, now: float) -> None:
        self._turn = TurnTimer(self._turn.number + 1, now)
        self._agent.on_event(TurnStarted(self._turn.number))

    def _close_turn(self) -> None:
        report = self._turn.report(self._started)
        self.reports.append(report)
        self._agent.on_event(TurnEnded(report))

    def _advance(self) -> None:
        """Goes on to the next turn of a held response, if this one is complete."""
        done = self._turn.done
        if done is not None and done.reason == DoneReason.DONE_REASON_TOOL_CALLS and self._turn.complete:
            self._close_turn()
            self._ask(self._turn.ended)

    async def _read(self, stream: ResponseStream, deliver: Deliver) -> tuple[ResponseDone, list[str]]:
        """Reads a response to its end, starting tools as their calls come, and waits for them.

        Returns:
            The end, and the ids of all calls in order.
        """
        calls: list[str] = []
        done = ResponseDone()
        async for event in stream:
            self._agent.on_event(Streamed(self._turn.number, event))
            if event.kind == "output_item_done":
                self._meet_item(event.proto.output_item_done.item, calls, deliver)
            elif event.kind == "done":
                done = event.proto.done
                for item in done.output:
                    self._meet_item(item, calls, deliver)
                await self._fetch(stream, done, calls, deliver)
                self._answered(stream, done, calls)
        await self._settle()
        self._close_turn()
        return done, calls

    def _meet_item(self, item: Item, calls: list[str], deliver: Deliver) -> None:
        if is_client_call(item):
            call: ToolCall = getattr(item, item.WhichOneof("kind") or "")
            # A part of a message keeps the whole batch alive that it came in.
            copy = type(call)()
            copy.CopyFrom(call)  # type: ignore[arg-type]
            self._meet(copy, calls, deliver)

    def _meet(self, call: ToolCall, calls: list[str], deliver: Deliver) -> None:
        """Starts the tool that is called, unless that is known already or there will be no turn to use its output."""
        if isinstance(call, FunctionCall):
            arguments = call.arguments
        elif isinstance(call, CustomToolCall):
            arguments = call.input
        else:
            msg = f"the model made a {call.DESCRIPTOR.name}, and this agent has functions only"
            raise AgentError(msg)
        # Of a call that was cut off only the beginning is there.
        if call.call_id in calls or call.status == ItemStatus.ITEM_STATUS_INCOMPLETE:
            return
        calls.append(call.call_id)
        if self._turn.number < self._agent.max_turns:
            self._turn.tool_started(self._now(), call.call_id, call.name, arguments)
            self._agent.on_event(ToolStarted(self._turn.number, call.call_id, call.name, arguments))
            self._tools[call.call_id] = self._group.create_task(self._work(self._turn, call, arguments, deliver))

    async def _fetch(self, stream: ResponseStream, done: ResponseDone, calls: list[str], deliver: Deliver) -> None:
        """Meets the calls that were too large to be sent."""
        if not set(done.awaiting_call_ids).issubset(calls):
            async for call in stream.calls():
                self._meet(call, calls, deliver)
        if missing := set(done.awaiting_call_ids).difference(calls):
            msg = f"the server awaits the output of {', '.join(sorted(missing))}, calls that it did not send"
            raise AgentError(msg)

    def _answered(self, stream: ResponseStream, done: ResponseDone, calls: list[str]) -> None:
        """Meets a pause or the end."""
        tokens = TokenCounts.of(done.usage) if done.HasField("usage") else self._tokens
        self._turn.answered(self._now(), done, done.passes - self._passes, tokens - self._tokens)
        self._passes, self._tokens = done.passes, tokens
        goes_on = done.reason in (DoneReason.DONE_REASON_TOOL_CALLS, DoneReason.DONE_REASON_COMPLETED)
        self._stop(done.void_call_ids if goes_on else calls)
        if self._turn.number == self._agent.max_turns and goes_on and done.awaiting_call_ids:
            self._close_turn()
            raise TurnLimitError(self._agent.max_turns, stream.id, tuple(self.reports))
        self._advance()

    # Tools.

    async def _work(
        self, turn: TurnTimer, call: FunctionCall | CustomToolCall, arguments: str, deliver: Deliver
    ) -> None:
        if isinstance(call, FunctionCall):
            result = await self._agent.tools.run(call.name, arguments)
        else:
            result = ToolResult(f"there is no free text tool named {call.name!r}: call a function", failed=True)
        self._finished(turn, call.call_id, call.name, result)
        answer = function_call_output if isinstance(call, FunctionCall) else custom_tool_call_output
        await deliver(call.call_id, answer(call.call_id, result.output))

    def _finished(self, turn: TurnTimer, call_id: str, name: str, result: ToolResult) -> None:
        seconds = turn.tool_ended(self._now(), call_id, failed=result.failed)
        self._agent.on_event(ToolFinished(turn.number, call_id, name, result.output, result.failed, seconds))

    def _stop(self, call_ids: Iterable[str]) -> None:
        """Stops tools whose outputs nobody will take."""
        for call_id in call_ids:
            if (name := self._turn.running(call_id)) is not None:
                self._tools[call_id].cancel()
                self._finished(self._turn, call_id, name, ToolResult("stopped: the response has ended", failed=True))

    async def _settle(self) -> None:
        if pending := [task for task in self._tools.values() if not task.done()]:
            await asyncio.wait(pending)


def closing_text(response: Response) -> str:
    """Returns the visible text after the last call or output, which is what the model ended with."""
    texts: list[str] = []
    for item in reversed(response.output):
        kind = item.WhichOneof("kind")
        if kind == "message":
            parts = item.message.content.parts.parts
            texts.append("".join(part.output_text.text or part.refusal.refusal for part in parts))
        elif kind != "reasoning":
            break
    return "\n\n".join(reversed(texts))


def _most_telling(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the error to raise in place of a group: one of ours if there is one, else the first."""
    errors = list(_leaves(group))
    return next((error for error in errors if isinstance(error, TurnwireError)), errors[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _ignore(event: AgentEvent) -> None:
    """Hears nothing."""
