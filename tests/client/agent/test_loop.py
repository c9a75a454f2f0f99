from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from turnwire.client import ChannelOptions, RequestRejectedError, ResponseFailedError, Session, SessionLost, connect
from turnwire.client.agent import (
    Agent,
    AgentError,
    AgentEvent,
    AgentResult,
    Shape,
    Streamed,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnLimitError,
    TurnStarted,
)
from turnwire.client.testing import FakeServer, custom_tool_call, function_call, message
from turnwire.server.engine.stepped import StepEngine, SteppedPass
from turnwire.server.session.chunks import CallDelta, CallEnd, CallStart, Channel, Chunk, FinishReason, PassUsage
from turnwire.server.session.chunks import TextChunk as Text
from turnwire.server.testing import make_services, serving
from turnwire.v1.item_pb2 import Item, ShellCall
from turnwire.v1.response_pb2 import ResponseStatus

SHAPES: tuple[Shape, ...] = ("append", "create")
both_shapes = pytest.mark.parametrize("shape", SHAPES)


def call(name: str, call_id: str, **arguments: object) -> list[Chunk]:
    return [CallStart(name, call_id=call_id), CallDelta(json.dumps(arguments)), CallEnd()]


def said(text: str) -> list[Chunk]:
    return [Text(Channel.TEXT, text)]


class Gates:
    """Tools that wait at a gate until the test lets them through, and say when they have begun."""

    def __init__(self) -> None:
        self.begun: dict[str, asyncio.Event] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.stopped: list[str] = []
        self.active = 0
        self.most_active = 0

    def _event(self, events: dict[str, asyncio.Event], name: str) -> asyncio.Event:
        return events.setdefault(name, asyncio.Event())

    async def wait(self, gate: str) -> str:
        """Waits at the gate of that name."""
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        self._event(self.begun, gate).set()
        try:
            await self._event(self.gates, gate).wait()
        except asyncio.CancelledError:
            self.stopped.append(gate)
            raise
        finally:
            self.active -= 1
        return f"through {gate}"

    async def reached(self, name: str) -> None:
        await self._event(self.begun, name).wait()

    def open(self, name: str) -> None:
        self._event(self.gates, name).set()


@pytest.fixture
async def engine() -> StepEngine:
    return StepEngine()


@pytest.fixture
async def session(engine: StepEngine) -> AsyncIterator[Session]:
    async with serving(make_services([engine])) as address, connect(address) as session:
        yield session


@pytest.fixture
def gates() -> Gates:
    return Gates()


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def outputs(started: SteppedPass) -> list[str]:
    """What the tool outputs of a prompt say."""
    items = [entry.item() for entry in started.prompt.transcript.walk()]
    return [item.function_call_output.output.text for item in items if item.HasField("function_call_output")]


@asynccontextmanager
async def running(work: Awaitable[AgentResult]) -> AsyncGenerator[asyncio.Task[AgentResult]]:
    async with asyncio.timeout(10):
        task = asyncio.ensure_future(work)
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@both_shapes
async def test_the_model_gets_the_output_of_its_calls_until_it_makes_no_more(
    shape: Shape, session: Session, engine: StepEngine
) -> None:
    agent = Agent(session, model="stepped", tools=[add], instructions="Count.", shape=shape)
    async with running(agent.run("What is 2 + 3?")) as run:
        await engine.started(1)
        engine.emit(0, [*said("Let me see."), *call("add", "call_1", a=2, b=3)])
        engine.finish(0, usage=PassUsage(10, 0, 7, 2))
        await engine.started(2)
        assert outputs(engine.passes[1]) == ["5"]
        engine.emit(1, said("It is 5."))
        engine.finish(1, usage=PassUsage(20, 10, 3, 0))
        result = await run
    assert result.completed
    assert result.text == "It is 5."
    assert [turn.number for turn in result.turns] == [1, 2]
    assert [turn.passes for turn in result.turns] == [1, 1]
    (tool,) = result.turns[0].tools
    assert (tool.name, tool.call_id, tool.failed) == ("add", "call_1", False)
    assert json.loads(tool.arguments) == {"a": 2, "b": 3}
    tokens = result.totals.tokens
    assert (tokens.input, tokens.cached, tokens.output, tokens.reasoning) == (30, 10, 10, 2)
    assert result.totals.turns == 2
    assert result.totals.tool_calls == 1


async def test_a_run_in_shape_append_is_one_response(session: Session, engine: StepEngine) -> None:
    async with running(Agent(session, model="stepped", tools=[add]).run("Add.")) as run:
        for turn in range(3):
            await engine.started(turn + 1)
            engine.emit(turn, call("add", f"call_{turn}", a=turn, b=1))
            engine.finish(turn)
        await engine.started(4)
        engine.emit(3, said("Done."))
        engine.finish(3)
        result = await run
    assert {each.prompt.response_id for each in engine.passes} == {result.response.id}
    kinds = [item.WhichOneof("kind") for item in result.response.output]
    assert kinds == ["function_call", "function_call_output"] * 3 + ["message"]


async def test_a_run_in_shape_create_sends_tools_and_instructions_once(engine: StepEngine) -> None:
    fake = FakeServer()
    for number in range(2):
        fake.answer(function_call("add", {"a": number, "b": 1}, call_id=f"call_{number}"))
    fake.answer(message("Done."))
    async with fake.connect() as session:
        agent = Agent(
            session, model="m", tools=[add], instructions="Count.", shape="create", settings={"metadata": {"k": "v"}}
        )
        result = await agent.run("Add.")
    first, *later = fake.creates
    assert (first.model, first.instructions, len(first.tools.tools)) == ("m", "Count.", 1)
    assert [create.previous_response_id for create in later] != ["", ""]
    for create in later:
        assert create.inherit
        assert not create.HasField("tools")
        assert not create.HasField("instructions")
        assert create.metadata == {"k": "v"}
    assert later[1].input.items.items[0].function_call_output.output.text == "2"
    assert result.text == "Done."
    assert not fake.appends


@both_shapes
async def test_calls_of_one_turn_run_at_the_same_time(
    shape: Shape, session: Session, engine: StepEngine, gates: Gates
) -> None:
    agent = Agent(session, model="stepped", tools=[gates.wait], shape=shape)
    async with running(agent.run("Go.")) as run:
        await engine.started(1)
        engine.emit(0, [*call("wait", "call_a", gate="a"), *call("wait", "call_b", gate="b")])
        engine.finish(0)
        await gates.reached("a")
        await gates.reached("b")
        assert gates.active == 2
        gates.open("b")
        gates.open("a")
        await engine.started(2)
        assert sorted(outputs(engine.passes[1])) == ["through a", "through b"]
        engine.emit(1, said("Both are through."))
        engine.finish(1)
        assert (await run).text == "Both are through."
    assert gates.most_active == 2


@both_shapes
async def test_a_tool_starts_while_the_model_still_writes_the_next_call(
    shape: Shape, session: Session, engine: StepEngine, gates: Gates
) -> None:
    agent = Agent(session, model="stepped", tools=[gates.wait], shape=shape)
    async with running(agent.run("Go.")) as run:
        await engine.started(1)
        engine.emit(0, [*call("wait", "call_a", gate="a"), CallStart("wait", call_id="call_b")])
        await gates.reached("a")
        assert not engine.passes[0].ended
        engine.emit(0, [CallDelta('{"gate": "b"}'), CallEnd()])
        await gates.reached("b")
        engine.finish(0)
        gates.open("a")
        gates.open("b")
        await engine.started(2)
        engine.emit(1, said("Through."))
        engine.finish(1)
        result = await run
    assert all(tool.overlapped > 0 for tool in result.turns[0].tools)


async def test_outputs_are_appended_as_they_come_and_the_model_goes_on_with_the_last_one(gates: Gates) -> None:
    fake = FakeServer()
    fake.answer(
        function_call("wait", {"gate": "a"}, call_id="call_a"), function_call("wait", {"gate": "b"}, call_id="call_b")
    )
    fake.answer(message("Through."))
    appended = asyncio.Event()

    def watch(event: AgentEvent) -> None:
        if isinstance(event, Streamed) and event.event.kind == "appended":
            appended.set()

    async with fake.connect() as session:
        agent = Agent(session, model="m", tools=[gates.wait], on_event=watch)
        async with running(agent.run("Go.")) as run:
            await gates.reached("b")
            gates.open("b")
            await appended.wait()
            assert [append.input[0].function_call_output.call_id for append in fake.appends] == ["call_b"]
            gates.open("a")
            await run
    assert [append.append_index for append in fake.appends] == [0, 1]


async def test_outputs_in_time_for_the_pass_need_no_pause_and_count_as_one_turn(
    session: Session, engine: StepEngine
) -> None:
    appended = asyncio.Event()

    def watch(event: AgentEvent) -> None:
        if isinstance(event, Streamed) and event.event.kind == "appended":
            appended.set()

    agent = Agent(session, model="stepped", tools=[add], on_event=watch)
    async with running(agent.run("Add.")) as run:
        await engine.started(1)
        engine.emit(0, call("add", "call_1", a=1, b=1))
        await appended.wait()
        engine.finish(0, usage=PassUsage(10, 0, 5, 0))
        await engine.started(2)
        engine.emit(1, said("2"))
        engine.finish(1, usage=PassUsage(20, 10, 1, 0))
        result = await run
    (turn,) = result.turns
    assert turn.passes == 2
    assert turn.tokens.output == 6
    assert turn.network == 0
    assert turn.api + turn.inference + turn.client == pytest.approx(turn.wall)


@both_shapes
async def test_a_failed_tool_is_told_to_the_model_and_the_run_goes_on(
    shape: Shape, session: Session, engine: StepEngine
) -> None:
    def explode() -> str:
        """Explodes."""
        msg = "out of luck"
        raise ValueError(msg)

    agent = Agent(session, model="stepped", tools=[explode], shape=shape)
    async with running(agent.run("Go.")) as run:
        await engine.started(1)
        engine.emit(0, [*call("explode", "call_1"), *call("no_such_tool", "call_2")])
        engine.finish(0)
        await engine.started(2)
        assert any("ValueError: out of luck" in output for output in outputs(engine.passes[1]))
        assert any("no tool named 'no_such_tool'" in output for output in outputs(engine.passes[1]))
        engine.emit(1, said("Too bad."))
        engine.finish(1)
        result = await run
    assert result.completed
    assert [tool.failed for tool in result.turns[0].tools] == [True, True]
    assert result.totals.failed_calls == 2


@both_shapes
async def test_the_stages_of_a_turn_add_up_to_its_wall_time(shape: Shape, session: Session, engine: StepEngine) -> None:
    agent = Agent(session, model="stepped", tools=[add], shape=shape)
    async with running(agent.run("Add.")) as run:
        await engine.started(1)
        engine.emit(0, call("add", "call_1", a=1, b=1))
        engine.finish(0)
        await engine.started(2)
        engine.emit(1, said("2"))
        engine.finish(1)
        result = await run
    for turn in result.turns:
        assert turn.api + turn.inference + turn.client == pytest.approx(turn.wall)
        assert min(turn.api, turn.inference, turn.client) >= 0
    first, second = result.turns
    assert second.started == pytest.approx(first.started + first.wall)


@both_shapes
async def test_events_tell_each_turn_and_tool_in_order(shape: Shape, session: Session, engine: StepEngine) -> None:
    events: list[AgentEvent] = []
    agent = Agent(session, model="stepped", tools=[add], shape=shape, on_event=events.append)
    async with running(agent.run("Add.")) as run:
        await engine.started(1)
        engine.emit(0, call("add", "call_1", a=1, b=1))
        engine.finish(0)
        await engine.started(2)
        engine.emit(1, said("2"))
        engine.finish(1)
        await run
    told = [event for event in events if not isinstance(event, Streamed)]
    kinds = [TurnStarted, ToolStarted, ToolFinished, TurnEnded, TurnStarted, TurnEnded]
    assert [type(event) for event in told] == kinds
    streamed = [(event.number, event.event.kind) for event in events if isinstance(event, Streamed)]
    assert (2, "output_text_delta") in streamed
    assert streamed[-1] == (2, "done")


@both_shapes
async def test_cancelling_a_run_cancels_its_response_and_stops_its_tools(
    shape: Shape, session: Session, engine: StepEngine, gates: Gates
) -> None:
    agent = Agent(session, model="stepped", tools=[gates.wait], shape=shape)
    async with running(agent.run("Go.")) as run:
        await engine.started(1)
        engine.emit(0, [*call("wait", "call_a", gate="a"), CallStart("wait", call_id="call_b")])
        await gates.reached("a")
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert gates.stopped == ["a"]
        await engine.told(0, "abort")
        assert await session.ping() >= 0


async def test_an_end_that_makes_calls_void_stops_their_tools(
    session: Session, engine: StepEngine, gates: Gates
) -> None:
    agent = Agent(session, model="stepped", tools=[gates.wait])
    async with running(agent.run("Go.")) as run:
        await engine.started(1)
        engine.emit(0, [*call("wait", "call_a", gate="a"), CallStart("wait", call_id="call_b")])
        await gates.reached("a")
        engine.fail(0, "server_error", "the engine tripped")
        with pytest.raises(ResponseFailedError, match="the engine tripped"):
            await run
    assert gates.stopped == ["a"]


@both_shapes
async def test_a_lost_session_stops_the_tools_and_says_what_was_open(shape: Shape, gates: Gates) -> None:
    fake = FakeServer()
    fake.hang(function_call("wait", {"gate": "a"}, call_id="call_a"))
    session = await connect("memory", transport=fake.transport)
    async with session, running(Agent(session, model="m", tools=[gates.wait], shape=shape).run("Go.")) as run:
        await gates.reached("a")
        fake.drop()
        with pytest.raises(SessionLost) as caught:
            await run
    assert gates.stopped == ["a"]
    (calls,) = caught.value.open_calls.values()
    assert [item.function_call.call_id for item in calls] == ["call_a"]


@both_shapes
async def test_more_turns_than_allowed_end_the_run_before_their_tools_run(
    shape: Shape, session: Session, engine: StepEngine
) -> None:
    ran: list[int] = []

    def note(number: int) -> None:
        """Notes."""
        ran.append(number)

    agent = Agent(session, model="stepped", tools=[note], shape=shape, max_turns=2)
    async with running(agent.run("Go.")) as run:
        for turn in range(2):
            await engine.started(turn + 1)
            engine.emit(turn, call("note", f"call_{turn}", number=turn))
            engine.finish(turn)
        with pytest.raises(TurnLimitError, match="max_turns=2") as caught:
            await run
    assert ran == [0]
    assert [(turn.number, turn.outcome) for turn in caught.value.turns] == [(1, "calls"), (2, "calls")]
    assert caught.value.response_id == engine.passes[1].prompt.response_id


@both_shapes
async def test_an_answer_that_was_cut_off_is_returned_and_says_so(
    shape: Shape, session: Session, engine: StepEngine
) -> None:
    async with running(Agent(session, model="stepped", tools=[add], shape=shape).run("Go.")) as run:
        await engine.started(1)
        engine.emit(0, [*said("Half a"), CallStart("add", call_id="call_1"), CallDelta('{"a": 1')])
        engine.finish(0, FinishReason.LENGTH)
        result = await run
    assert not result.completed
    assert result.response.status == ResponseStatus.RESPONSE_STATUS_INCOMPLETE
    assert result.turns[0].tools == ()
    assert result.turns[0].outcome == "incomplete"


async def test_a_refused_prompt_is_raised_as_it_came(session: Session) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(RequestRejectedError, match="no-such-model"):
            await Agent(session, model="no-such-model").run("Go.")


async def test_agents_in_lanes_of_one_session_work_at_the_same_time(
    session: Session, engine: StepEngine, gates: Gates
) -> None:
    agents = [Agent(session, model="stepped", tools=[gates.wait], lane=f"lane-{number}") for number in range(4)]
    async with asyncio.timeout(10):
        runs = [asyncio.create_task(agent.run("Go.")) for agent in agents]
        for number, started in enumerate(await engine.started(4)):
            started.emit(call("wait", f"call_{number}", gate=str(number)))
            engine.finish(number)
        for number in range(4):
            await gates.reached(str(number))
        assert gates.active == 4
        for number in reversed(range(4)):
            gates.open(str(number))
        for number, started in enumerate((await engine.started(8))[4:], 4):
            started.emit(said("Through."))
            engine.finish(number)
        results = await asyncio.gather(*runs)
    assert [result.text for result in results] == ["Through."] * 4
    assert len({result.response.id for result in results}) == 4


async def test_a_later_run_continues_an_earlier_one(session: Session, engine: StepEngine) -> None:
    agent = Agent(session, model="stepped")
    async with asyncio.timeout(10):
        results: list[AgentResult] = []
        for number in range(2):
            previous = results[-1].response.id if results else None
            run = asyncio.create_task(agent.run(f"Prompt {number}.", previous_response_id=previous))
            await engine.started(number + 1)
            engine.emit(number, said(f"Answer {number}."))
            engine.finish(number)
            results.append(await run)
    assert [result.text for result in results] == ["Answer 0.", "Answer 1."]
    assert engine.passes[1].prompt.turn == 1


@both_shapes
async def test_calls_are_found_at_every_verbosity(shape: Shape, engine: StepEngine) -> None:
    async with serving(make_services([engine])) as address, connect(address, verbosity="done") as session:
        agent = Agent(session, model="stepped", tools=[add], shape=shape)
        async with running(agent.run("Add.")) as run:
            await engine.started(1)
            engine.emit(0, call("add", "call_1", a=1, b=1))
            engine.finish(0)
            await engine.started(2)
            engine.emit(1, said("2"))
            engine.finish(1)
            assert (await run).text == "2"


@both_shapes
async def test_a_call_too_large_to_be_sent_is_fetched(shape: Shape, engine: StepEngine) -> None:
    def measure(text: str) -> int:
        """Measures."""
        return len(text)

    options = ChannelOptions(max_event_bytes=4096)
    async with serving(make_services([engine])) as address, connect(address, options=options) as session:
        agent = Agent(session, model="stepped", tools=[measure], shape=shape, settings={"store": True})
        async with running(agent.run("Measure.")) as run:
            await engine.started(1)
            engine.emit(0, call("measure", "call_1", text="x" * 10_000))
            engine.finish(0)
            await engine.started(2)
            assert outputs(engine.passes[1]) == ["10000"]
            engine.emit(1, said("Long."))
            engine.finish(1)
            assert (await run).text == "Long."


async def test_a_free_text_call_is_answered_with_what_there_is() -> None:
    fake = FakeServer()
    fake.answer(custom_tool_call("write", "text", call_id="call_1"))
    fake.answer(message("Well."))
    async with fake.connect() as session:
        result = await Agent(session, model="m", tools=[add]).run("Go.")
    assert "no free text tool" in fake.appends[0].input[0].custom_tool_call_output.output.text
    assert result.text == "Well."


async def test_a_call_of_a_kind_nobody_offered_ends_the_run() -> None:
    fake = FakeServer()
    fake.hang(Item(shell_call=ShellCall(call_id="call_1")))
    async with fake.connect() as session:
        with pytest.raises(AgentError, match="ShellCall"):
            await Agent(session, model="m").run("Go.")


async def test_without_appends_on_the_server_the_shape_is_refused() -> None:
    fake = FakeServer()
    session = await connect("memory", transport=fake.transport, features=["fork"])
    async with session:
        with pytest.raises(AgentError, match="shape='create'"):
            Agent(session, model="m")
        Agent(session, model="m", shape="create")


async def test_without_inherit_on_the_server_every_create_is_whole() -> None:
    fake = FakeServer()
    fake.answer(function_call("add", {"a": 1, "b": 1}, call_id="call_1"))
    fake.answer(message("2"))
    session = await connect("memory", transport=fake.transport, features=["append"])
    async with session:
        await Agent(session, model="m", tools=[add], shape="create").run("Add.")
    assert not fake.creates[1].inherit
    assert fake.creates[1].tools == fake.creates[0].tools


def test_max_turns_below_one_make_no_sense() -> None:
    with pytest.raises(ValueError, match="max_turns"):
        Agent(Any, model="m", max_turns=0)  # type: ignore[arg-type]
