"""Anything may happen at any time: whatever a client, an engine and the clock do, the session stays whole.

Each seed is one session of random but likely moves; a failure names its seed and the moves so far.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from turnwire.server.session.calls import CallKey
from turnwire.server.session.chunks import (
    CallDelta,
    CallEnd,
    CallKind,
    CallStart,
    Channel,
    Chunk,
    EngineFailure,
    Finish,
    FinishReason,
    PassUsage,
    TextChunk,
)
from turnwire.server.session.context import Context
from turnwire.server.session.effects import Hydrate, ListTools, PrepareAppend, RunTool, StartPass, ToolResult
from turnwire.server.session.hosted import Listed
from turnwire.server.session.run import Run
from turnwire.server.session.screens import Direction, Hit, Safety
from turnwire.server.session.states import TRANSITIONS, Fact, Phase
from turnwire.v1.error_pb2 import Error
from turnwire.v1.response_pb2 import DoneReason
from turnwire.v1.server_event_pb2 import ServerEvent

from .core import Core, tool
from .screening import LetterScreener

LANES = ("", "a", "b", "c")
ROUNDS = 6
SEEDS_A_ROUND = 25
MOVES = 120
RARE = frozenset({(Phase.PREPARING, Fact.OVERTAKEN, Phase.QUEUED)})
"""Ways that chance hardly ever goes; other tests of this folder do."""

Moves = list[tuple[int, Callable[[], None]]]


class Machine:
    """One session, with everything around it in the hands of chance."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.log: list[str] = []
        limits: dict[str, Any] = {"queue_high_water": 4_000, "queue_low_water": 1_000, "total_timeout": 300.0}
        if random.random() < 0.3:
            limits |= {
                "max_in_flight": 2,
                "max_queued": 3,
                "max_held": 2,
                "max_lanes": 2,
                "max_responses": 2,
                "request_memory": 3,
            }
        # A disk that is full now and then.
        fails = 0.1 if random.random() < 0.2 else 0.0
        self.core = Core(
            manual=random.random() < 0.4,
            keep=lambda spent, state: random.random() >= fails,
            safety=_safety(random),
            **limits,
        )
        self.bodies: dict[str, tuple[dict[str, Any], str]] = {}
        self.open_handles: dict[int, int] = {}
        """Last sequence number by handle, of responses that have not ended."""
        self.ended_handles: set[int] = set()
        self.checked = 0
        self.credit = random.choice([0, 0, 16_384])
        if random.random() < 0.7:
            wish: dict[str, Any] = {
                "session_credit_bytes": self.credit,
                "response_credit_bytes": self.credit // 4,
                "verbosity": random.randint(0, 4),
                "max_event_bytes": 4_096,
            }
            if random.random() < 0.3:
                wish["batch_window"] = "0.010s"
            self.core.send({"open": wish})

    @property
    def context(self) -> Context:
        return self.core.session._context

    def runs(self, *phases: Phase) -> list[Run]:
        return [run for run in self.context.runs.values() if not phases or run.phase in phases]

    def play(self) -> None:
        likely: Moves = [
            (14, self.create),
            (14, self.go_on),
            (2, self.repeat),
            (14, self.append),
            (4, self.append_anything),
            (4, self.steer),
            (4, self.cancel),
            (2, self.cancel_request),
            (6, self.return_credit),
            (6, self.acknowledge),
            (2, self.ping),
            (3, self.stop_or_go_on_reading),
            (16, self.answer),
            (22, self.output),
            (20, self.end),
            (3, self.dead_pass),
            (12, self.finish_tool),
            (16, self.judge),
            (4, self.advance),
        ]
        weights = [weight for weight, _ in likely]
        for _ in range(MOVES):
            ((_, move),) = self.random.choices(likely, weights)
            self.log.append(move.__name__)
            move()
            self.events_are_in_order()
            self.books_are_kept()
        self.leave()
        self.finish_everything()

    # The client

    def known(self) -> str:
        ids = [e.created.response.id for e in self.core.events if e.WhichOneof("event") == "created"]
        return self.random.choice([*ids[-6:], "resp_unknown"])

    def send_create(self, body: dict[str, Any], lane: str) -> None:
        random = self.random
        whole: dict[str, Any] = {
            "model": "stepped",
            "tools": {"tools": [tool("f"), tool("hosted_h"), *random.choice([[], [_SERVER], [_SERVER]])]},
            "hold": random.random() < 0.8,
            "generate": random.random() < 0.9,
            "verbosity": random.choice([0, 0, 0, 1, 2, 3, 4, 9]),
            "echo": random.random() < 0.1,
            "inherit": random.random() < 0.2,
            **body,
        }
        if random.random() < 0.3:
            whole["timeouts"] = {"hold": "5s", "first_token": "60s", "total": "200s"}
        if random.random() < 0.3:
            whole["max_tool_calls"] = 1
        request_id = self.core.send({"create": whole}, lane=lane)
        self.bodies[request_id] = (whole, lane)

    def create(self) -> None:
        text = self.random.choice(["hi", "hi", "hi", "hi" * 500, "z"])
        body: dict[str, Any] = {"input": {"text": text}}
        if self.random.random() < 0.2:
            body["previous_response_id"] = self.known()
        self.send_create(body, self.random.choice(LANES))

    def go_on(self) -> None:
        """Continues from a response with the outputs that it leaves open, in its own lane or as a fork."""
        paused = [run.id for run in self.runs(Phase.PAUSED)]
        previous = self.random.choice(paused) if paused and self.random.random() < 0.7 else self.known()
        state = self.core.session.find(previous)
        missing = sorted(state.transcript.open_calls) if state else []
        lane = state.lane if state and self.random.random() < 0.85 else self.random.choice(LANES)
        items = [self.answer_to(key) for key in missing] or [_message()]
        self.send_create({"previous_response_id": previous, "input": {"items": {"items": items}}}, lane)

    def repeat(self) -> None:
        if self.bodies:
            request_id = self.random.choice(sorted(self.bodies))
            body, lane = self.bodies[request_id]
            memory = self.context.requests
            known = request_id in memory._open or request_id in memory._settled
            runs = set(self.context.runs)
            self.core.send({"create": body}, request_id=request_id, lane=lane)
            assert not known or set(self.context.runs) <= runs

    def append(self) -> None:
        """Answers some or all of what a response awaits, or will await."""
        held = [run for run in self.runs() if run.hold and run.created_sent and run.awaiting()]
        if not held:
            return
        run = self.random.choice(held)
        awaiting = run.awaiting()
        some = awaiting if self.random.random() < 0.6 else awaiting[:1]
        items = [self.answer_to(key) for key in some]
        if self.random.random() < 0.2:
            items.append(_message())
        append: dict[str, Any] = {"response_id": run.id, "input": items}
        if self.random.random() < 0.5:
            append["append_index"] = len(run.appends) + len(run.inbox)
        self.core.send({"append": append})

    def answer_to(self, key: CallKey) -> dict[str, Any]:
        if key.family == "mcp_approval":
            approve = self.random.random() < 0.7
            return {"mcp_approval_response": {"approval_request_id": key.id, "approve": approve}}
        return _output(key.family, key.id)

    def append_anything(self) -> None:
        items = [_output("function", f"call_{self.random.randint(1, 5)}")] * self.random.randint(0, 2)
        index = self.random.randint(0, 3)
        self.core.send({"append": {"response_id": self.known(), "append_index": index, "input": items}})

    def steer(self) -> None:
        paused = [run.id for run in self.runs(Phase.PAUSED)]
        target = self.random.choice(paused) if paused and self.random.random() < 0.8 else self.known()
        self.core.send({"steer": {"previous_response_id": target, "input": {"text": "listen"}}})

    def cancel(self) -> None:
        self.core.send({"cancel": {"response_id": self.known()}})

    def cancel_request(self) -> None:
        if self.bodies:
            self.core.send({"cancel": {"target_request_id": self.random.choice(sorted(self.bodies))}})

    def return_credit(self) -> None:
        for handle in list(self.open_handles):
            self.core.send({"credit": {"response": handle, "bytes": self.random.choice([10, 2_000, 100_000])}})

    def acknowledge(self) -> None:
        self.core.send({"ack": {"last_event_id": len(self.core.events) + (self.random.random() < 0.1)}})

    def ping(self) -> None:
        self.core.send({"ping": {"nonce": 1, "describe": True}})

    def stop_or_go_on_reading(self) -> None:
        self.core.pulling = not self.core.pulling
        self.core.settle()

    # The surroundings

    def answer(self) -> None:
        if not self.core.todo:
            return
        index = self.random.randrange(len(self.core.todo))
        if self.random.random() < 0.85:
            self.core.answer(index)
            return
        effect = self.core.todo.pop(index)
        error = Error(code="invalid_value", message="no")
        match effect:
            case PrepareAppend():
                self.core.session.append_refused(self.core.now, effect.handle, effect.ticket, error)
            case Hydrate():
                self.core.session.hydrated(self.core.now, effect.handle, None)
            case _:
                self.core.session.refused(self.core.now, effect.handle, error)
        self.core.settle()

    def output(self) -> None:
        if self.core.prompts:
            self.core.output(self.said(), self.random.choice(sorted(self.core.prompts)))

    def said(self) -> list[Chunk]:
        random = self.random
        said: list[Chunk] = []
        for _ in range(random.randint(0, 3)):
            if random.random() < 0.3:
                text = random.choice("yyyyyyyyxxxz") * random.choice([0, 1, 10, 3_000])
                said.append(TextChunk(random.choice(list(Channel)), text))
                continue
            name = random.choice(["f", "f", "hosted_h", "hosted_m__ask", "hosted_m__ask", "hosted_m__run"])
            kind = random.choice(list(CallKind)) if name == "f" else CallKind.FUNCTION
            said += [CallStart(name, kind, random.choice(["", "call_1", "call_2"])), CallDelta("{}")]
            if random.random() < 0.8:
                said.append(CallEnd())
        return said

    def end(self) -> None:
        if not self.core.prompts:
            return
        usage = PassUsage(self.random.randint(0, 9), self.random.randint(0, 9), self.random.randint(0, 9))
        outcomes: list[Finish | EngineFailure] = [
            *[Finish(FinishReason.STOP, usage)] * 6,
            Finish(FinishReason.LENGTH, usage),
            EngineFailure("server_error", "broken"),
            EngineFailure("made_up", "broken"),
        ]
        self.core.end(self.random.choice(outcomes), self.random.choice(sorted(self.core.prompts)))

    def dead_pass(self) -> None:
        pass_id = self.random.randint(0, 30)
        if pass_id not in self.core.prompts:
            events = len(self.core.events)
            self.core.output(self.said(), pass_id)
            self.core.end(Finish(), pass_id)
            self.core.session.tool_finished(self.core.now, pass_id, "nowhere", ToolResult("late"))
            self.core.settle()
            assert len(self.core.events) == events

    def judge(self) -> None:
        if self.core.questions:
            index = self.random.randrange(len(self.core.questions))
            hits = self.random.choices([(), (Hit("z", blocks=True),), (Hit("y", blocks=False),)], [6, 1, 1])[0]
            self.core.judge(*hits, failed=self.random.random() < 0.1, index=index)

    def finish_tool(self) -> None:
        if self.core.tools:
            run = self.core.tools.pop(self.random.randrange(len(self.core.tools)))
            self.finish(run, failed=self.random.random() < 0.3)

    def finish(self, work: RunTool | ListTools, *, failed: bool = False) -> None:
        result: ToolResult | Listed = ToolResult("z" if self.random.random() < 0.1 else "out", failed=failed)
        if isinstance(work, ListTools):
            result = Listed((), "broken") if failed else Listed(('{"name":"ask"}', '{"name":"run"}'))
        self.core.session.tool_finished(self.core.now, work.pass_id, work.call_id, result)
        self.core.settle()

    def advance(self) -> None:
        self.core.advance(self.random.choice([0.0, 0.1, 0.1, 1.0, 4.0, 6.0, 6.0, 20.0, 70.0, 301.0]))

    def leave(self) -> None:
        session, now = self.core.session, self.core.now
        match self.random.choice(["close", "drain", "half_close", "go_away", "lost"]):
            case "close":
                self.core.send({"close": {}})
            case "drain":
                self.core.send({"close": {"drain": True}})
            case "go_away":
                session.go_away(now, "shutdown", 30.0, 0.0)
            case "lost":
                session.lost(now)
                self.core.settle()
                assert not self.context.runs
                assert session.next_deadline() is None
            case _:
                pass
        self.core.settle()
        self.events_are_in_order()
        self.books_are_kept()

    # What always holds

    def events_are_in_order(self) -> None:
        events = self.core.events
        for event in events[self.checked :]:
            self.check_event(event)
        self.checked = len(events)

    def check_event(self, event: ServerEvent) -> None:
        kind = event.WhichOneof("event") or ""
        handle = event.response
        if not handle or kind in ("appended", "steer_accepted"):
            return
        assert handle not in self.ended_handles, f"{kind} after the end of {handle}"
        if kind == "created":
            assert handle not in self.open_handles
            assert event.sequence_number == 0
        else:
            assert event.sequence_number > self.open_handles[handle]
        self.open_handles[handle] = event.sequence_number
        if kind == "done" and event.done.reason != DoneReason.DONE_REASON_TOOL_CALLS:
            del self.open_handles[handle]
            self.ended_handles.add(handle)

    def books_are_kept(self) -> None:
        context = self.context
        runs = self.runs()
        gauges = self.core.session.gauges()
        assert Phase.ENDED not in {run.phase for run in runs}
        lanes = self.core.session._lanes
        current = {run.lane: run for run in runs if lanes.current(run.lane) is run}
        assert gauges.in_flight == len(current) <= context.limits.max_in_flight
        assert gauges.queued == len(runs) - len(current)
        assert Phase.QUEUED not in {run.phase for run in current.values()}
        for run in runs:
            if run.phase is not Phase.QUEUED and current[run.lane] is not run:
                # Checked beside the pause it wants to continue from.
                assert run.phase is Phase.PREPARING
                assert lanes.head(run.lane) is run
        assert context.held == sum(run.hold for run in runs)
        assert context.request_bytes == sum(run.request_bytes for run in runs)
        assert context.uses == Counter(run.previous_response_id for run in runs if run.previous_response_id)
        assert set(context.by_id) == {run.id for run in runs}
        if gauges.in_flight < context.limits.max_in_flight:
            assert {run.lane for run in runs} <= set(current)
        sampling = {run.pass_id for run in runs if run.phase in (Phase.SAMPLING, Phase.TOOLS)}
        assert set(context.by_pass) == sampling
        assert set(self.core.prompts) == {run.pass_id for run in runs if run.pass_live}
        assert self.core.engine_paused == {run.pass_id for run in runs if run.engine_paused and run.pass_live}
        assert {t.pass_id for t in self.core.tools} <= sampling
        for run in runs:
            if run.phase is Phase.PAUSED:
                assert run.hold
                assert run.awaiting()
                assert context.retention.find(run.id) is not None

    def lanes_are_first_in_first_out(self) -> None:
        begun: dict[str, int] = {}
        seen: set[int] = set()
        lanes = {
            e.response: e.created.lane for e in self.core.events if e.WhichOneof("event") == "created" and e.response
        }
        for effect in self.core.effects:
            if isinstance(effect, StartPass) and effect.handle in lanes and effect.handle not in seen:
                seen.add(effect.handle)
                lane = lanes[effect.handle]
                assert effect.handle > begun.get(lane, 0)
                begun[lane] = effect.handle

    def finish_everything(self) -> None:
        core = self.core
        core.pulling = True
        core.session.half_closed(core.now)
        core.settle()
        while core.todo or core.tools or core.prompts or core.questions:
            if core.questions:
                core.judge()
            elif core.todo:
                core.answer()
            elif core.tools:
                self.finish(core.tools.pop())
            else:
                core.finish()
        context = self.context
        assert not context.runs
        assert not context.by_pass
        assert not context.uses
        assert context.outbox.empty
        assert core.closed is not None
        self.events_are_in_order()
        self.books_are_kept()
        self.lanes_are_first_in_first_out()
        assert not self.open_handles
        assert core.first_ids == sorted(set(core.first_ids))
        self.every_request_has_its_outcome()

    def every_request_has_its_outcome(self) -> None:
        outcomes: Counter[str] = Counter()
        for event in self.core.events:
            kind = event.WhichOneof("event")
            if kind == "created" and event.response:
                outcomes[event.created.request_id] += 1
            elif kind == "rejected" and not event.rejected.duplicate and event.rejected.request_id in self.bodies:
                outcomes[event.rejected.request_id] += 1
        # An id that was forgotten may be used again, for a new request.
        forgotten = self.context.limits.request_memory < 10
        for request_id in self.bodies:
            assert outcomes[request_id] == 1 or (forgotten and outcomes[request_id] > 1), request_id


def _safety(random: Random) -> Safety | None:
    if random.random() < 0.4:
        return None
    return Safety(
        gate=random.random() < 0.7,
        screener=LetterScreener() if random.random() < 0.5 else None,
        remote=frozenset(direction for direction in Direction if random.random() < 0.6),
        piece=random.choice([1, 8, 5_000]),
        whole=random.random() < 0.1,
    )


_SERVER: Final = {"mcp": {"server_label": "hosted_m", "require_approval": '{"never":{"tool_names":["run"]}}'}}
"""A server with a tool `ask`, which needs approval, and a tool `run`, which does not."""


def _output(family: str, call_id: str) -> dict[str, Any]:
    kind = "custom_tool_call_output" if family == "custom" else "function_call_output"
    return {kind: {"call_id": call_id, "output": {"text": "1"}}}


def _message() -> dict[str, Any]:
    return {"message": {"role": "ROLE_USER", "content": {"text": "also"}}}


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_session_stays_whole_whatever_happens(round_: int) -> None:
    for seed in range(round_ * SEEDS_A_ROUND, (round_ + 1) * SEEDS_A_ROUND):
        machine = Machine(seed)
        try:
            machine.play()
        except BaseException as problem:
            problem.add_note(f"seed {seed}, after {machine.log}")
            raise


def test_chance_goes_every_way_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: set[tuple[Phase, Fact, Phase]] = set()
    move = Run.move

    def noted(run: Run, fact: Fact, to: Phase) -> None:
        gone.add((run.phase, fact, to))
        move(run, fact, to)

    monkeypatch.setattr(Run, "move", noted)
    every = {(phase, fact, to) for (phase, fact), ways in TRANSITIONS.items() for to in ways} - RARE
    for seed in range(10_000, 10_300):
        Machine(seed).play()
        if every <= gone:
            return
    assert every - gone == set()
