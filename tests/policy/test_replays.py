"""Sealed items come back as what they were, references lead to items, and what is not known is carried and counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest

from turnwire.server.policy.compaction import sealed_digest
from turnwire.server.policy.prepare import Preparer
from turnwire.server.sealing import Purpose, Seals
from turnwire.server.session.calls import CallKey
from turnwire.server.session.effects import Prepare, Prepared
from turnwire.server.session.limits import SessionLimits
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import Item, Reasoning
from turnwire.v1.json import from_json, to_json
from turnwire.v1.response_pb2 import ResponseCreate

SEALS = Seals.fresh()


class Heard:
    """Notices, counted."""

    def __init__(self) -> None:
        self.opaques: Counter[tuple[str, str]] = Counter()
        self.sealed: Counter[tuple[str, str]] = Counter()

    def opaque(self, kind: str, type_: str) -> None:
        self.opaques[kind, type_] += 1

    def unsealed(self, purpose: str, outcome: str) -> None:
        self.sealed[purpose, outcome] += 1


class Desk:
    """A preparer that is asked in public JSON."""

    def __init__(self, stored: dict[str, bytes] | None = None) -> None:
        self.heard = Heard()
        self.asked: list[tuple[str, set[str]]] = []
        self._stored = stored or {}
        self.preparer = Preparer(
            lambda name: name,
            SessionLimits(),
            count=lambda text: len(text.split()),
            seals=SEALS,
            find_items=self._find,
            notices=self.heard,
        )

    def _find(self, principal: str, ids: Collection[str]) -> dict[str, bytes]:
        self.asked.append((principal, set(ids)))
        return {name: data for name, data in self._stored.items() if name in ids}

    def prepare(
        self,
        *items: Any,
        principal: str = "me",
        history: Transcript = EMPTY,
        tools: list[Any] | None = None,
        **body: Any,
    ) -> Prepared:
        text = json.dumps({"model": "m", "input": items, "tools": tools or [], **body})
        create = from_json(ResponseCreate, text)
        new = list(create.input.items.items)
        interned = ToolSets().intern(create.tools)
        create.ClearField("input")
        create.ClearField("tools")
        return self.preparer.prepare(Prepare(1, new, create, interned, history.open_calls, 0, principal, history))

    def refused(self, *items: Any, **more: Any) -> Any:
        with pytest.raises(RequestError) as caught:
            self.prepare(*items, **more)
        return caught.value.error


def sealed_reasoning(text: str, principal: str = "me", **fields: Any) -> dict[str, Any]:
    content = json.dumps({"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]})
    data = Reasoning(content=from_json(Item, content).reasoning.content).SerializeToString()
    sealed = SEALS.seal(Purpose.REASONING, principal, data)
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed, **fields}


def user(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text, **fields}


def chain(*items: dict[str, Any]) -> Transcript:
    made = [from_json(Item, json.dumps(item)) for item in items]
    return EMPTY.extend([Entry(item.SerializeToString(), Origin.MODEL, 1) for item in made], frozenset())


class TestSealedReasoning:
    """Reasoning that a client replays without its content is read as it was said."""

    def test_it_is_read_with_its_content_and_kept_as_it_came(self) -> None:
        desk = Desk()
        (entry, _) = desk.prepare(sealed_reasoning("step by step"), user()).entries
        assert entry.text() == "step by step"
        assert entry.item().reasoning.id == "rs_1"
        assert not entry.sent().reasoning.content
        assert entry.tokens == 3 + 4
        assert desk.heard.sealed == {("reasoning", "opened"): 1}

    def test_content_of_the_clients_own_is_left_alone(self) -> None:
        desk = Desk()
        mine = sealed_reasoning("sealed", content=[{"type": "reasoning_text", "text": "mine"}])
        assert desk.prepare(mine).entries[0].text() == "mine"
        assert not desk.heard.sealed

    @pytest.mark.parametrize(
        ("sealed", "outcome"),
        [
            ("gAAAAABo-official-looking", "foreign"),
            (Seals.fresh().seal(Purpose.REASONING, "me", b""), "foreign"),
            (SEALS.seal(Purpose.REASONING, "somebody else", b""), "damaged"),
            (SEALS.seal(Purpose.REASONING, "me", b"x" * 30)[:-8], "damaged"),
            (SEALS.seal(Purpose.COMPACTION, "me", b""), "damaged"),
        ],
        ids=["not ours", "another key", "somebody else's", "cut", "another purpose"],
    )
    def test_what_cannot_be_opened_is_carried_without_content(self, sealed: str, outcome: str) -> None:
        desk = Desk()
        (entry,) = desk.prepare({"type": "reasoning", "summary": [], "encrypted_content": sealed}).entries
        assert entry.text() == ""
        assert entry.sent().reasoning.encrypted_content == sealed
        assert desk.heard.sealed == {("reasoning", outcome): 1}

    def test_a_form_that_a_later_version_sealed_is_carried_too(self) -> None:
        sealed = SEALS.seal(Purpose.REASONING, "me", b"\xff\xff")
        (entry,) = Desk().prepare({"type": "reasoning", "summary": [], "encrypted_content": sealed}).entries
        assert entry.text() == ""

    def test_what_is_sealed_does_not_show_in_what_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(0)
        desk = Desk()
        desk.prepare(sealed_reasoning("the secret"))
        desk.prepare(sealed_reasoning("the secret", principal="somebody else"))
        assert not caplog.text


class TestCompaction:
    """A compaction item of ours is read as a message of the developer's, one of others is carried."""

    def test_ours_is_read_as_a_developers_message(self) -> None:
        sealed = SEALS.seal(Purpose.COMPACTION, "me", sealed_digest(["called ls {}", "returned: a.txt"]))
        (entry,) = Desk().prepare({"type": "compaction", "id": "cmp_1", "encrypted_content": sealed}).entries
        message = entry.item().message
        assert message.role == 4
        assert message.content.text.endswith("called ls {}\nreturned: a.txt")
        assert entry.sent().compaction.encrypted_content == sealed
        assert entry.tokens > 10

    @pytest.mark.parametrize(
        "sealed", ["foreign", SEALS.seal(Purpose.COMPACTION, "me", b"{")], ids=["foreign", "no digest"]
    )
    def test_another_is_carried(self, sealed: str) -> None:
        (entry,) = Desk().prepare({"type": "compaction", "encrypted_content": sealed}).entries
        assert entry.item().HasField("compaction")


class TestReferences:
    """A reference stands for an item of the chain, or of a stored response."""

    def test_an_item_of_the_chain_is_not_said_twice(self) -> None:
        desk = Desk()
        history = chain(user("a"), {**user("b"), "role": "assistant", "id": "msg_7"})
        (entry, _) = desk.prepare({"type": "item_reference", "id": "msg_7"}, user(), history=history).entries
        assert entry.item().HasField("item_reference")
        assert not desk.asked

    def test_a_stored_item_is_read_in_its_place(self) -> None:
        call = {"type": "function_call", "id": "fc_7", "call_id": "c1", "name": "ls", "arguments": "{}"}
        desk = Desk({"fc_7": from_json(Item, json.dumps(call)).SerializeToString()})
        answer = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
        ready = desk.prepare(user(), {"id": "fc_7"}, answer)
        assert ready.entries[1].item().function_call.name == "ls"
        assert ready.entries[1].sent().item_reference.id == "fc_7"
        assert not ready.open_calls
        assert ready.turns == 1
        assert desk.asked == [("me", {"fc_7"})]

    def test_an_item_that_nobody_has_is_refused_in_the_public_words(self) -> None:
        error = Desk().refused(user(), {"type": "item_reference", "id": "msg_0"})
        assert (error.code, error.param) == ("item_not_found", "input[1]")
        assert error.message == "Item with id 'msg_0' not found."

    def test_nothing_is_looked_for_without_references(self) -> None:
        desk = Desk()
        desk.prepare(user(id="msg_1"))
        assert not desk.asked


CODEX_LIKE: list[dict[str, Any]] = [
    {"type": "message", "role": "developer", "id": "msg_a", "content": [{"type": "input_text", "text": "rules"}]},
    {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [{"type": "function", "name": "x"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it", "extra": 1}]},
    {"type": "reasoning", "id": "rs_x", "summary": [], "content": None, "encrypted_content": "gAAAA"},
    {
        "type": "function_call",
        "id": "fc_x",
        "call_id": "c1",
        "name": "shell",
        "arguments": "{}",
        "namespace": "tools",
        "caller": {"type": "direct"},
        "async": False,
    },
    {"type": "function_call_output", "id": "fco_x", "call_id": "c1", "output": [{"type": "input_text", "text": "ok"}]},
    {"type": "custom_tool_call", "id": "ctc_x", "call_id": "c2", "name": "apply_patch", "input": "*** Begin Patch"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "done", "id": "whatever"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "local_shell_call", "id": "lsh_1", "call_id": "c3", "status": "completed", "action": {"type": "exec"}},
    {"type": "local_shell_call_output", "id": "c3", "output": "{}"},
    {"type": "tool_search_call", "call_id": "c4", "execution": "client", "arguments": {"q": 1}, "status": "completed"},
    {"type": "tool_search_output", "call_id": "c4", "execution": "client", "status": "completed", "tools": []},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"},
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c", "outputs": None},
    {"type": "file_search_call", "id": "fs_1", "queries": ["a"], "status": "completed"},
    {"type": "program", "id": "prog_1", "call_id": "p", "code": "1", "fingerprint": "f"},
    {"type": "program_output", "call_id": "p", "result": "1", "status": "completed"},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
    {"type": "ghost_snapshot", "ghost_commit": {"id": "abc"}},
    {"type": "acme:thing", "id": "zz_1", "nested": {"a": [1, {"b": None}]}},
    {"type": "computer_call", "id": "cu_1", "call_id": "c5", "action": {"type": "click"}, "pending_safety_checks": []},
    {"type": "computer_call_output", "call_id": "c5", "output": {"type": "computer_screenshot", "image_url": "data:,"}},
    {"type": "compaction", "encrypted_content": "gAAAA"},
    {"role": "user", "content": [{"type": "input_audio", "data": "A", "format": "wav"}]},
]
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}, "strict": False},
    {"type": "function", "name": "later", "parameters": None, "defer_loading": True, "allowed_callers": ["direct"]},
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /./"},
    },
    {"type": "namespace", "name": "tools", "description": "d", "tools": [{"type": "function", "name": "inner"}]},
    {"type": "web_search", "external_web_access": False},
    {"type": "web_search_preview"},
    {"type": "tool_search", "execution": "client", "description": "d", "parameters": {"type": "object"}},
    {"type": "image_generation", "output_format": "png"},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "computer"},
    {"type": "local_shell"},
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "apply_patch"},
    {"type": "programmatic_tool_calling"},
    {"type": "acme:tool", "anything": [1]},
]


class TestOpaque:
    """What the server does not know is carried as it came, and counted."""

    def test_a_coding_agents_items_and_tools_are_all_taken_and_kept(self) -> None:
        desk = Desk()
        ready = desk.prepare(
            *CODEX_LIKE,
            tools=TOOLS,
            include=["reasoning.encrypted_content"],
            store=False,
            stream=True,
            client_metadata={"a": "b"},
            prompt_cache_key="thread",
            made_up_key={"x": 1},
            moderation={"a": 1},
        )
        kept = [json.loads(to_json(entry.sent())) for entry in ready.entries]
        dropped_nulls = [{k: v for k, v in item.items() if v is not None and v != []} for item in CODEX_LIKE]
        for came, stayed in zip(dropped_nulls, kept, strict=True):
            assert {k: v for k, v in stayed.items() if v is not None and v != []} == came
        heard = desk.heard.opaques
        assert heard["item", "additional_tools"] == heard["item", "acme:thing"] == 1
        assert heard["tool", "tool_search"] == heard["tool", "acme:tool"] == 1
        assert heard["field", "made_up_key"] == heard["field", "moderation"] == 1
        assert heard["item_field", "function_call"] == 1
        assert heard["part", "input_audio"] == 1

    def test_an_opaque_item_of_a_known_type_is_paired_as_what_it_is(self) -> None:
        call = '{"type":"function_call","call_id":"c1","name":"ls","arguments":"{}"}'
        item = Item()
        item.opaque.type, item.opaque.json = "function_call", call
        desk = Desk()
        with pytest.raises(RequestError, match="No tool output found for function call c1"):
            desk.preparer.prepare(
                Prepare(1, [item], ResponseCreate(model="m"), ToolSets().intern(ResponseCreate().tools), frozenset(), 0)
            )

    def test_an_opaque_output_answers_the_call_of_the_history_and_is_kept_byte_for_byte(self) -> None:
        text = '{"type":"function_call_output", "call_id":"c1","output":"ok"}'
        item = Item()
        item.opaque.type, item.opaque.json = "function_call_output", text
        open_calls = frozenset({CallKey("function", "c1")})
        ready = Desk().preparer.prepare(
            Prepare(1, [item], ResponseCreate(model="m"), ToolSets().intern(ResponseCreate().tools), open_calls, 0)
        )
        assert not ready.open_calls
        assert ready.entries[0].sent().opaque.json == text
        assert ready.entries[0].text() == "ok"
