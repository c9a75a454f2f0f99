"""The local classifier among the checks: what is looked at, how often, and where."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

from turnwire.server.policy.prepare import Preparer
from turnwire.server.policy.safety.matcher import Terms
from turnwire.server.policy.safety.patterns import read_pattern
from turnwire.server.policy.safety.rules import Category
from turnwire.server.policy.safety.screener import RuleScreener
from turnwire.server.policy.safety.screening import ScreeningPolicy
from turnwire.server.policy.safety.texts import said
from turnwire.server.session.effects import Prepare
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.screens import SILENCE, Overlap, Screened, Tails
from turnwire.server.session.toolsets import NO_TOOLS, ToolSets
from turnwire.v1.item_pb2 import (
    ContentPart,
    ContentParts,
    FunctionCall,
    InputText,
    Item,
    McpApprovalResponse,
    McpCall,
    Message,
    MessageContent,
    Reasoning,
    ReasoningText,
    Role,
)
from turnwire.v1.opaque_pb2 import OpaqueObject
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import FunctionTool, McpTool, Tool, ToolSet

SCREENER = RuleScreener([Category("bomb", Terms(("bomb",), (read_pattern(r"\bx\d{1,3}y\b"),)))])


def message(text: str) -> Item:
    return Item(message=Message(role=Role.ROLE_USER, content=MessageContent(text=text)))


CHECKS = Preparer(lambda name: name, SessionLimits(), count=len)


class Counting(RuleScreener):
    """Counts what it looks at."""

    def __init__(self) -> None:
        super().__init__([Category("bomb", Terms(("bomb",)))])
        self.texts = 0

    def screen_text(self, text: str) -> tuple[Screened, ...]:
        self.texts += 1
        return super().screen_text(text)


def request(instructions: str = "") -> Prepare:
    tools = ToolSet(tools=[Tool(function=FunctionTool(name="f", description="makes a bomb"))])
    settings = ResponseCreate(model="m", instructions=instructions or None)
    return prepare([message("hello")], settings, tools if instructions else None)


def prepare(items: Sequence[Item], settings: ResponseCreate, tools: ToolSet | None = None) -> Prepare:
    interned = NO_TOOLS if tools is None else ToolSets().intern(tools)
    return Prepare(1, items, settings, interned, frozenset(), 10)


def test_instructions_and_tools_are_looked_at_once_however_often_they_come() -> None:
    screener = Counting()
    policy = ScreeningPolicy(CHECKS, screener)
    for _ in range(3):
        ready = policy.prepare(request(instructions="Be brief."))
        assert [hit.category for hit in ready.hits] == ["bomb"]
    assert screener.texts == 3
    policy.prepare(request(instructions="Be quick."))
    assert screener.texts == 4


def test_without_being_incremental_they_are_looked_at_every_time() -> None:
    screener = Counting()
    policy = ScreeningPolicy(CHECKS, screener, incremental=False)
    for _ in range(3):
        policy.prepare(request(instructions="Be brief."))
    assert screener.texts == 9


def test_what_was_found_travels_with_the_entries() -> None:
    heard: list[float] = []
    policy = ScreeningPolicy(CHECKS, SCREENER, observe=heard.append)
    visited = request()
    (entry,) = policy.prepare(visited).entries
    assert entry.screened is not None
    assert visited.visits.items["classify"] == 1
    (appended,) = policy.prepare_append([message("a bomb")], visited.visits, None)
    assert appended.screened is not None
    assert [hit.category for hit in appended.screened[0].hits] == ["bomb"]
    assert len(heard) == 2


def test_texts_are_known_by_who_said_them() -> None:
    parts = MessageContent(
        parts=ContentParts(parts=[ContentPart(input_text=InputText(text=text)) for text in ("one", "two")])
    )
    items = [
        Item(message=Message(role=Role.ROLE_USER, content=parts)),
        Item(message=Message(role=Role.ROLE_ASSISTANT, content=MessageContent(text="said"))),
        Item(reasoning=Reasoning(content=[ContentPart(reasoning_text=ReasoningText(text="thought"))])),
        Item(function_call=FunctionCall(name="f", arguments="{}")),
        Item(mcp_call=McpCall(server_label="s", name="t", arguments="[]", output="result")),
        Item(mcp_approval_response=McpApprovalResponse(reason="because")),
        Item(opaque=OpaqueObject(type="odd", json='{"a":1}')),
    ]
    assert [pair for item in items for pair in said(item)] == [
        ("one", False),
        ("two", False),
        ("said", True),
        ("thought", True),
        ("f", True),
        ("{}", True),
        ("s__t", True),
        ("[]", True),
        ("result", False),
        ("because", False),
        ('{"a":1}', False),
    ]


def test_an_answer_between_two_questions_does_not_part_what_they_say() -> None:
    assistant = Item(message=Message(role=Role.ROLE_ASSISTANT, content=MessageContent(text="go on")))
    screened = [one for item in (message("a bo"), assistant, message("mb")) for one in SCREENER.screen(item)]
    overlap, hits = SCREENER.follow(SILENCE, screened)
    assert [hit.category for hit in hits] == ["bomb"]
    assert overlap == Overlap(Tails(b" a bo mb "[1:], b"a bomb"), Tails(b"go on ", b"go on"))


def test_whatever_a_tool_says_of_itself_is_looked_at() -> None:
    sells = McpTool(server_label="s", server_url="https://a.example", server_description="sells a bomb")
    asked = prepare([message("hello")], ResponseCreate(model="m"), ToolSet(tools=[Tool(mcp=sells)]))
    ready = ScreeningPolicy(CHECKS, SCREENER).prepare(asked)
    assert [hit.category for hit in ready.hits] == ["bomb"]


def test_megabytes_full_of_finds_are_gone_through_in_slices() -> None:
    text = "bomb x12y " * 200_000
    (screened,) = SCREENER.screen(message(text))
    assert [hit.category for hit in screened.hits] == ["bomb"]
    assert len(screened.head) < 40


def test_a_find_at_the_seam_of_two_slices_is_found() -> None:
    for shift in range(8):
        text = "-" * (64 * 1024 - shift) + " bomb" + "-" * 70_000
        (screened,) = SCREENER.screen(message(text))
        assert screened.hits, shift


def test_several_threads_may_look_at_once() -> None:
    found: list[int] = []

    def look() -> None:
        for _ in range(50):
            (screened,) = SCREENER.screen(message("some words and x1y " * 500))
            found.append(len(screened.hits))

    threads = [Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 200
