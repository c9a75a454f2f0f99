"""Plays a transcript against a driver, step by step.

Above: the tests. Below: the driver.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict

from turnwire.server.engine.stepped import SteppedPass
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
from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Listed
from turnwire.v1.client_event_pb2 import ConnectRequest

from .driver import Driver
from .inbox import Event, Inbox
from .matching import ANY, Names
from .transcript import Step, Transcript

_ANSWERS = frozenset(
    {
        "appended",
        "go_away",
        "opened",
        "pong",
        "progress",
        "queued",
        "rejected",
        "steer_accepted",
        "steer_failed",
    }
)
_CHANNELS = {
    "text": Channel.TEXT,
    "reasoning": Channel.REASONING,
    "summary": Channel.SUMMARY,
    "refusal": Channel.REFUSAL,
}


class Player:
    """Plays one transcript."""

    def __init__(self, transcript: Transcript, driver: Driver) -> None:
        self._transcript = transcript
        self._driver = driver
        self._names = Names()
        self._last = ""
        self._inboxes: dict[str, Inbox] = {}
        self._home: dict[str, Inbox] = {}
        """Inboxes by the names of responses."""
        self._taken: set[int] = set()

    async def play(self) -> None:
        """Plays all steps; in the end nothing may be left that was not expected."""
        for number, step in enumerate(self._transcript.steps, start=1):
            try:
                inbox = await self._inbox(step.session)
                self._names["last_event_id"] = inbox.last_event_id
                await getattr(self, f"_{step.kind}")(step, inbox)
            except (AssertionError, LookupError, RuntimeError) as problem:
                problem.add_note(f"in step {number} ({step.kind}: {step.value!r})"[:400])
                raise
        await self._nothing(self._transcript.steps[-1], next(iter(self._inboxes.values())))

    async def _inbox(self, name: str) -> Inbox:
        if name not in self._inboxes:
            principal = self._transcript.sessions.get(name, "")
            self._inboxes[name] = await self._driver.open(name, principal)
        return self._inboxes[name]

    # The client

    async def _send(self, step: Step, inbox: Inbox) -> None:
        self._names["last_event_id"] = inbox.last_event_id
        body = self._names.fill(step.value)
        if "raw" in body:
            await self._driver.send(step.session, ConnectRequest.FromString(bytes.fromhex(body["raw"])))
            return
        create = body.get("create")
        if create is not None and "model" not in create and not create.get("inherit"):
            body = {**body, "create": {"model": "stepped", **create}}
        await self._driver.send(step.session, ParseDict(body, ConnectRequest()))

    async def _half_close(self, step: Step, inbox: Inbox) -> None:
        await self._driver.half_close(step.session)

    async def _lose(self, step: Step, inbox: Inbox) -> None:
        await self._driver.lose(step.session)

    # The server's surroundings

    async def _advance(self, step: Step, inbox: Inbox) -> None:
        await self._driver.advance(step.value)

    async def _go_away(self, step: Step, inbox: Inbox) -> None:
        await self._driver.go_away(step.value["reason"], step.value["grace"])

    async def _engine(self, step: Step, inbox: Inbox) -> None:
        perform(await self._pass(step.of), step.value, self._names)
        await self._driver.settle()

    async def _pass(self, of: str) -> SteppedPass:
        """Finds the newest pass of a response, or the newest of all."""
        engine = self._driver.engine
        if not of and not self._last:
            await self._driver.until(lambda: bool(engine.passes), "a pass has started")
            return engine.passes[-1]
        response_id = self._names[of or self._last]
        ids = [p.prompt.response_id for p in engine.passes]
        await self._driver.until(
            lambda: any(p.prompt.response_id == response_id for p in engine.passes),
            f"a pass of {response_id} has started; passes of {ids} have",
        )
        return engine.find(response_id)

    async def _tool(self, step: Step, inbox: Inbox) -> None:
        wanted = self._names.fill(step.value)
        call = self._driver.tools.running(wanted["name"], wanted.get("arguments"))
        await self._driver.finish_tool(call, _outcome(wanted))
        await self._driver.settle()

    # Expectations

    async def _expect(self, step: Step, inbox: Inbox) -> None:
        skip = False
        for raw in step.value:
            if raw == ANY:
                skip = True
                continue
            wanted = self._driver.expected({raw: {}} if isinstance(raw, str) else dict(raw))
            if wanted is not None:
                await self._expect_one(wanted, step, inbox, skip=skip)
                skip = False
        assert not skip, "'...' stands for what comes before another expectation, so it cannot be the last"

    async def _expect_one(self, wanted: dict[str, Any], step: Step, inbox: Inbox, *, skip: bool) -> None:
        new_name = wanted.pop("as", "")
        of = wanted.pop("of", "") or step.of
        answer = wanted.get("response") == 0 or any(kind in _ANSWERS for kind in wanted)
        if new_name:
            await self._driver.until(lambda: bool(inbox.unnamed) or self._over(inbox), f"{wanted} arrives")
            assert inbox.unnamed, f"{wanted} is missing; the stream ended with {inbox.status}"
            handle = inbox.unnamed.popleft()
            self._names[f"{new_name}.handle"] = handle
            self._names[new_name] = inbox.streams[handle][0]["created"]["response"]["id"]
            self._home[new_name] = inbox
            of = new_name
        stream = inbox.answers
        if not answer:
            of = of or self._last
            assert of, f"{wanted}: no response has a name yet"
            stream = self._home[of].streams[self._names[f"{of}.handle"]]
        if of:
            self._last = of
        problem = ""
        while True:
            event = await self._next(stream, inbox, wanted, problem)
            problem = self._names.mismatch(wanted, event)
            if not problem:
                return
            assert skip, f"{problem}\nexpected {wanted}\ngot      {event}\nafter it {list(stream)[:5]}"

    async def _next(self, stream: deque[Event], inbox: Inbox, wanted: dict[str, Any], problem: str) -> Event:
        try:
            await self._driver.until(lambda: bool(stream) or self._over(inbox), f"{wanted} arrives")
        except AssertionError as missing:
            missing.add_note(f"last mismatch: {problem}\nothers wait: {inbox.rest()[:5]}")
            raise
        assert stream, f"{wanted} is missing; the stream ended with {inbox.status}; {problem}"
        return stream.popleft()

    @staticmethod
    def _over(inbox: Inbox) -> bool:
        return bool(inbox.status)

    async def _nothing(self, step: Step, inbox: Inbox) -> None:
        await self._driver.settle()
        for name, each in self._inboxes.items():
            assert not each.rest(), f"not expected in session {name}: {each.rest()[:5]}"

    async def _closed(self, step: Step, inbox: Inbox) -> None:
        await self._driver.until(lambda: bool(inbox.status), f"the stream ends with {step.value}")
        assert inbox.status == step.value

    async def _passes(self, step: Step, inbox: Inbox) -> None:
        engine = self._driver.engine
        await self._driver.until(lambda: len(engine.passes) >= step.value, f"{step.value} passes have started")
        await self._driver.settle()
        assert len(engine.passes) == step.value, f"{len(engine.passes)} passes have started, not {step.value}"

    async def _pass_started(self, step: Step, inbox: Inbox) -> None:
        prompt = (await self._pass(step.of)).prompt
        seen = {
            "model": prompt.model,
            "turn": prompt.turn,
            "input_tokens": prompt.input_tokens,
            "cached_tokens": prompt.cached_tokens,
            "items": [MessageToDict(e.item(), preserving_proto_field_name=True) for e in prompt.transcript.walk()],
            "settings": MessageToDict(prompt.settings, preserving_proto_field_name=True),
            "tools": [tool.function.name or tool.custom.name for tool in prompt.tools.parsed().tools],
        }
        problem = self._names.mismatch(step.value, seen)
        assert not problem, problem

    async def _aborted(self, step: Step, inbox: Inbox) -> None:
        await self._told(step, lambda running: running.aborted == step.value)

    async def _paused(self, step: Step, inbox: Inbox) -> None:
        await self._told(step, lambda running: running.paused == step.value)

    async def _resumed(self, step: Step, inbox: Inbox) -> None:
        await self._told(step, lambda running: running.calls.count("resume") == step.value)

    async def _told(self, step: Step, condition: Callable[[SteppedPass], bool]) -> None:
        running = await self._pass(step.of)
        await self._driver.until(lambda: condition(running), f"{step.kind}: {step.value}; it was told {running.calls}")

    async def _tool_started(self, step: Step, inbox: Inbox) -> None:
        tools = self._driver.tools
        wanted = [{"name": each} if isinstance(each, str) else each for each in step.value]
        await self._driver.until(lambda: len(tools.calls) >= len(wanted), f"{len(wanted)} calls have begun")
        problem = self._names.mismatch(wanted, [{"name": c.name, "arguments": c.arguments} for c in tools.calls])
        assert not problem, problem

    async def _tool_cancelled(self, step: Step, inbox: Inbox) -> None:
        tools = self._driver.tools
        await self._driver.until(
            lambda: [c.name for c in tools.calls if c.cancelled] == step.value, f"{step.value} are cancelled"
        )

    async def _listed(self, step: Step, inbox: Inbox) -> None:
        session = self._driver.session(step.session)
        for name, expected in step.value.items():
            found = session.find(self._names[name]) is not None
            assert found == expected, f"response {name} is {'' if found else 'not '}listed"

    async def _stored(self, step: Step, inbox: Inbox) -> None:
        session = self._driver.session(step.session)
        for name, expected in step.value.items():
            state = await self._driver.store.get(session.principal, self._names[name])
            found = state is not None
            assert found == bool(expected), f"response {name} is {'' if found else 'not '}stored"
            if isinstance(expected, dict) and state is not None:
                seen = MessageToDict(state.response(), preserving_proto_field_name=True)
                problem = self._names.mismatch(expected, seen)
                assert not problem, problem

    async def _gauges(self, step: Step, inbox: Inbox) -> None:
        await self._driver.settle()
        gauges = self._driver.session(step.session).gauges()
        for name, expected in step.value.items():
            actual = getattr(gauges, name)
            assert actual == expected, f"{name} is {actual}, not {expected}"


def perform(running: SteppedPass, steps: list[Any], names: Names) -> None:
    """Lets a pass output, and end, as a step of a transcript says."""
    for raw in steps:
        said: dict[str, Any] = {raw: {}} if isinstance(raw, str) else names.fill(raw)
        kind, value = next(iter(said.items()))
        match kind:
            case "finish":
                usage = PassUsage(**value.get("usage", {}))
                running.end(Finish(FinishReason[value.get("reason", "STOP")], usage))
            case "fail":
                running.end(EngineFailure(value["code"], value["message"], value.get("retry_after")))
            case _:
                running.emit(_chunks(kind, value))


def _outcome(wanted: dict[str, Any]) -> ToolResult | Listed:
    if "tools" in wanted or "error" in wanted:
        return Listed(tuple(json.dumps(tool) for tool in wanted.get("tools", ())), wanted.get("error", ""))
    return ToolResult(wanted["output"], wanted.get("failed", False), results=json.dumps(wanted.get("results", [])))


def _chunks(kind: str, value: Any) -> list[Chunk]:
    if kind in _CHANNELS:
        pieces = [value] if isinstance(value, str) else value
        return [TextChunk(_CHANNELS[kind], piece, tokens=1) for piece in pieces]
    if kind == "call":
        call_kind = CallKind.CUSTOM if "input" in value else CallKind.FUNCTION
        text = value.get("input", value.get("arguments", "{}"))
        chunks: list[Chunk] = [CallStart(value["name"], call_kind, value.get("id", ""))]
        chunks.extend(CallDelta(piece) for piece in ([text] if isinstance(text, str) else text))
        if value.get("open"):
            return chunks
        return [*chunks, CallEnd()]
    msg = f"an engine does not say {kind!r}"
    raise ValueError(msg)
