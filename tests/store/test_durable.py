"""Responses over a database: what was said comes back as it was, from memory or from the disk, until it may go."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import sqlite3
from array import array
from pathlib import Path
from typing import Any, cast

import pytest

from turnwire.server.session.calls import CallKey
from turnwire.server.session.chain import Chain
from turnwire.server.session.chunks import TokenRecord
from turnwire.server.session.hosted import Approval, Listing
from turnwire.server.session.state import State
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import Item, Message, MessageContent, Reasoning, Role
from turnwire.v1.json import to_json
from turnwire.v1.response_pb2 import IncompleteDetails, Response, ResponseCreate, ResponseError, ResponseStatus
from turnwire.v1.tool_pb2 import FunctionTool, Tool, ToolSet
from turnwire.v1.usage_pb2 import Usage

from ..ledger.scene import Shop, rows, shop

REBUILT = {"mark", "name", "digest", "rendering", "__weakref__"}
"""What is not kept: marks are by a key of the process, the others are memos."""


def message(text: str, item_id: str = "", role: Role.ValueType = Role.ROLE_USER) -> bytes:
    return Item(message=Message(id=item_id, role=role, content=MessageContent(text=text))).SerializeToString()


def entry(text: str, item_id: str = "", **more: Any) -> Entry:
    return Entry(message(text, item_id), Origin.INPUT, len(text), **more)


def full_state(tool_sets: ToolSets, **changes: Any) -> State:
    """A response in which nothing is as it is by default."""
    sealed = Item(reasoning=Reasoning(id="rs_1", encrypted_content="tws1.x")).SerializeToString()
    opened = Item(reasoning=Reasoning(id="rs_1")).SerializeToString()
    chain = Chain("key_1")
    resent = EMPTY.extend((entry("before", "msg_0"),), frozenset(), chain=chain)
    before = resent.extend((entry("hi"), Entry(sealed, Origin.INPUT, 3, opened)), frozenset(), turns=1)
    record = TokenRecord(array("I", [1, 2]), array("I", [3]), array("f", [-0.5]), "template", "tokenizer", "weights")
    head = before.extend(
        (Entry(message("all is well", "msg_1", Role.ROLE_ASSISTANT), Origin.MODEL, 4),),
        frozenset({CallKey("function", "call_1"), CallKey("custom", "call_2")}),
        turns=1,
        record=record,
    )
    state = State(
        id="resp_1",
        principal="alice",
        lane="main",
        parent_id="resp_0",
        model="scripted",
        created_at=1_900_000_000.25,
        completed_at=1_900_000_001.5,
        status=ResponseStatus.RESPONSE_STATUS_INCOMPLETE,
        settings=ResponseCreate(model="scripted", instructions="Be brief.", metadata={"a": "b"}).SerializeToString(),
        tools=tool_sets.intern(ToolSet(tools=[Tool(function=FunctionTool(name="look"))])),
        transcript=head,
        input=before.new,
        before=before,
        usage=Usage(input_tokens=5, output_tokens=6, total_tokens=11).SerializeToString(),
        context_tokens=11,
        error=ResponseError(code="server_error", message="no"),
        incomplete=IncompleteDetails(reason="max_output_tokens"),
        listings={"files": Listing("files", b"listed")},
        approvals=(Approval("mcpr_1", True, "why not"),),
        unfinished=(entry("lost", "msg_9"),),
        continuable=False,
        resent=resent,
    )
    return dataclasses.replace(state, **changes)


def plain(value: Any) -> Any:
    """Takes a value apart, so that two can be compared."""
    if isinstance(value, Entry | Transcript):
        names = [name for name in type(value).__slots__ if name not in REBUILT]
        return [(name, plain(getattr(value, name))) for name in names]
    if isinstance(value, Chain):
        return value.key
    if isinstance(value, Listing):
        return (value.label, value.data)
    if isinstance(value, tuple):
        return [plain(each) for each in cast("tuple[object, ...]", value)]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in cast("dict[str, object]", value).items()}
    return value


async def stored(scene: Shop, state: State) -> State:
    """Brings a response to the database and back."""
    scene.data.ledger.save(state)
    await scene.data.caught_up()
    found = await scene.data.store.get(state.principal, state.id)
    assert found is not None
    assert found is not state
    return found


async def test_everything_of_a_response_comes_back(tmp_path: Path) -> None:
    async with shop(tmp_path, retention=1e9) as scene:
        state = full_state(scene.services.tool_sets)
        # What it is compared with has no names yet, so that all of it is read again.
        expected = full_state(scene.services.tool_sets)
        scene.data.ledger.save(state)
        await scene.data.caught_up()
        del state

        found = await scene.data.store.get("alice", "resp_1")

        assert found is not None
        for field in dataclasses.fields(State):
            ours, theirs = getattr(expected, field.name), getattr(found, field.name)
            assert plain(theirs) == plain(ours), field.name
        assert found.input is found.before.new
        assert [entry.data for entry in found.output] == [entry.data for entry in expected.output]
        assert found.response() == expected.response()
        assert await scene.data.store.get("bob", "resp_1") is None


async def test_what_compaction_left_out_of_the_chain_comes_back_too(tmp_path: Path) -> None:
    async with shop(tmp_path, retention=1e9) as scene:
        apart = Transcript(None, (entry("summary"),), frozenset(), 0, truncated=True, instead=EMPTY)
        said = EMPTY.extend((entry("said before", "msg_7"),), frozenset())
        state = full_state(scene.services.tool_sets, transcript=apart, input=(entry("given"),), earlier=said)

        found = await stored(scene, state)

        assert plain(found.transcript) == plain(apart)
        assert plain(found.earlier) == plain(said)
        assert plain(found.before) == plain(state.before)
        assert plain(found.input) == plain(state.input)


async def test_a_turn_records_what_is_new_and_a_chain_shares_what_is_old(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        text = "x" * 5_000
        previous = await scene.completed(text, instructions="y" * 5_000)
        sizes: list[int] = []
        for _ in range(20):
            before = scene.data.journal.bytes
            previous = await scene.completed("short", previous_response_id=previous.id)
            sizes.append(scene.data.journal.bytes - before)

        assert max(sizes) < 1_000
        assert max(sizes) - min(sizes) < 50
        await scene.data.caught_up()
        assert rows(tmp_path, "segments") == 2 * 21
        # The settings of the first response, and those of all others.
        assert rows(tmp_path, "blobs") == 2


async def test_a_tool_set_is_written_once_a_file(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        tools: Any = [
            {"type": "function", "name": "look", "description": "z" * 9_000, "parameters": {}, "strict": False}
        ]
        sizes: list[int] = []
        for _ in range(3):
            before = scene.data.journal.bytes
            await scene.completed("hi", tools=tools)
            sizes.append(scene.data.journal.bytes - before)
        scene.data.journal._file_bytes = 1
        before = scene.data.journal.bytes
        response = await scene.completed("hi", tools=tools)

        assert sizes[0] > 9_000
        assert max(sizes[1:]) < 1_000
        assert scene.data.journal.bytes - before > 9_000
        scene.forget()
        assert (await scene.get(response.id)).tools.tools[0].function.description == "z" * 9_000


async def test_a_child_of_what_was_not_stored_brings_its_history_once(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        state = full_state(scene.services.tool_sets)
        child = dataclasses.replace(
            state, id="resp_2", transcript=state.transcript.extend((entry("more"),), frozenset())
        )
        scene.data.ledger.save(child)
        first = scene.data.journal.bytes
        scene.data.ledger.save(dataclasses.replace(child, id="resp_3"))

        assert scene.data.journal.bytes - first < first
        await scene.data.caught_up()
        assert rows(tmp_path, "segments") == 4


async def test_a_stored_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        first = await scene.completed("one")
        second = await scene.completed("two", previous_response_id=first.id)
    async with shop(tmp_path) as scene:
        assert await scene.get(second.id) == second
        third = await scene.completed("three", previous_response_id=second.id)
        fork = await scene.completed("other", previous_response_id=first.id)

        assert third.usage.input_tokens > fork.usage.input_tokens > first.usage.input_tokens
        assert third.usage.input_tokens_details.cached_tokens == second.usage.total_tokens
        states = [await scene.data.store.get("", each.id) for each in (third, fork, first)]
        segments = [list(state.transcript.segments()) for state in states if state is not None]
        # Read once, shared by all.
        assert segments[0][-3] is segments[1][-3] is segments[2][-3]


async def test_what_was_gone_on_from_after_a_restart_is_known_when_it_is_sent_again(tmp_path: Path) -> None:
    def said(text: str, answer: Response) -> list[Any]:
        return [{"role": "user", "content": text}, *(json.loads(to_json(item)) for item in answer.output)]

    async with shop(tmp_path) as scene:
        first = await scene.completed("one")
    async with shop(tmp_path) as scene:
        second = await scene.completed("two", previous_response_id=first.id)
        history = [*said("one", first), *said("two", second)]
        other = copy.deepcopy(history)
        other[0]["content"] = "ones"
        new = {"role": "user", "content": "three"}

        known = await scene.completed(input=[*history, new])
        unknown = await scene.completed(input=[*other, new])

    assert known.usage.input_tokens_details.cached_tokens == second.usage.total_tokens
    assert unknown.usage.input_tokens_details.cached_tokens == 0


async def test_a_thousand_turns_come_back_and_are_read_once(tmp_path: Path) -> None:
    async with shop(tmp_path, retention=1e9) as scene:
        state = full_state(scene.services.tool_sets)
        for number in range(1_000):
            longer = state.transcript.extend((entry(f"turn {number}"),), frozenset())
            state = dataclasses.replace(state, id=f"resp_{number}", transcript=longer)
            del longer
            scene.data.ledger.save(state)
        await scene.data.caught_up()
        del state

        last = await scene.data.store.get("alice", "resp_999")
        middle = await scene.data.store.get("alice", "resp_500")

        assert last is not None
        assert middle is not None
        texts = [each.text() for each in last.transcript.walk()]
        assert texts[-1_000:] == [f"turn {number}" for number in range(1_000)]
        assert middle.transcript in list(last.transcript.segments())


async def test_what_was_deleted_is_gone_for_good_but_not_for_its_descendants(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        first = await scene.completed("one")
        second = await scene.completed("two", previous_response_id=first.id)
        await scene.caller().delete_response(first.id)
        with pytest.raises(RequestError, match="response_not_found"):
            await scene.get(first.id)
        with pytest.raises(RequestError, match="response_not_found"):
            await scene.caller().delete_response(first.id)
        scene.forget()
        with pytest.raises(RequestError, match="response_not_found"):
            await scene.get(first.id)
        assert await scene.refused("x", previous_response_id=first.id) == "previous_response_not_found"
    async with shop(tmp_path) as scene:
        with pytest.raises(RequestError, match="response_not_found"):
            await scene.get(first.id)
        third = await scene.completed("three", previous_response_id=second.id)
        assert third.usage.input_tokens > second.usage.input_tokens


async def test_nobody_deletes_what_is_anothers(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        response = await scene.completed("one", principal="alice")
        with pytest.raises(RequestError, match="response_not_found"):
            await scene.caller("bob").delete_response(response.id)

        assert await scene.get(response.id, "alice") == response


async def test_items_that_nothing_needs_leave_the_database(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        first = await scene.completed("one")
        second = await scene.completed("two", previous_response_id=first.id)
        await scene.caller().delete_response(first.id)
        await scene.data.caught_up()
        assert rows(tmp_path, "segments") == 4

        await scene.caller().delete_response(second.id)
        # Until then somebody may send it all again, and go on from there.
        while scene.services.conversations is not None and scene.services.conversations.shed():
            pass
        await scene.data.caught_up()
        scene.data.consumer.sweep()

        assert [rows(tmp_path, table) for table in ("segments", "responses", "items")] == [0, 0, 0]


async def test_a_segment_stays_while_somebody_may_go_on_from_it(tmp_path: Path) -> None:
    async with shop(tmp_path, retention=1e9) as scene:
        state = full_state(scene.services.tool_sets)
        scene.data.ledger.save(state)
        scene.data.store.put(state)
        assert await scene.data.store.delete("alice", "resp_1")
        await scene.data.caught_up()
        scene.data.consumer.sweep()
        assert rows(tmp_path, "segments") == 3

        # A session holds it still.
        child = dataclasses.replace(state, id="resp_2", transcript=state.transcript.extend((entry("x"),), frozenset()))

        assert [each.text() for each in (await stored(scene, child)).transcript.walk()][-1] == "x"


async def test_old_responses_go_by_age(tmp_path: Path) -> None:
    async with shop(tmp_path, retention=3600) as scene:
        now = scene.services.clock.wall()
        for number, age in enumerate((7200, 3601, 1800, 0)):
            state = full_state(scene.services.tool_sets, id=f"resp_{number}", created_at=now - age)
            scene.data.ledger.save(state)
            scene.data.store.put(state)
        # At once, though they are in memory and in the database.
        found = [await scene.data.store.get("alice", f"resp_{number}") for number in range(4)]
        assert [state is not None for state in found] == [False, False, True, True]

        await scene.data.caught_up()
        scene.data.consumer.sweep()

        assert rows(tmp_path, "responses") == 2


async def test_the_oldest_responses_go_by_number(tmp_path: Path) -> None:
    async with shop(tmp_path, max_responses=3) as scene:
        made = [await scene.completed(f"{number}") for number in range(5)]
        await scene.data.caught_up()
        scene.data.consumer.sweep()
        scene.forget()

        for response in made[:2]:
            with pytest.raises(RequestError, match="response_not_found"):
                await scene.get(response.id)
        for response in made[2:]:
            assert await scene.get(response.id) == response


async def test_items_are_found_by_their_ids_in_memory_and_on_the_disk(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        response = await scene.completed("one", principal="alice")
        item = response.output[0]
        name = item.message.id
        await scene.data.caught_up()
        store = scene.data.store

        for _ in range(2):
            assert store.find_items("alice", (name, "msg_none")) == {name: item.SerializeToString()}
            assert store.find_items("bob", (name,)) == {}
            scene.forget()
        await scene.completed("again", principal="alice", input=[{"type": "item_reference", "id": name}])


async def test_a_response_that_is_not_consumed_yet_is_waited_for(tmp_path: Path) -> None:
    async with shop(tmp_path) as scene:
        with scene.data.consumer._work:
            response = await scene.completed("one")
            scene.forget()
            finding = asyncio.create_task(scene.get(response.id))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not finding.done()

        assert await finding == response


async def test_what_is_deleted_while_it_is_read_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shop(tmp_path) as scene:
        response = await scene.completed("one")
        await scene.data.caught_up()
        scene.forget()
        store = scene.data.store
        find = store._find
        loop = asyncio.get_running_loop()
        read: list[object] = []

        def slow(principal: str, response_id: str) -> Any:
            found = find(principal, response_id)
            if not read:
                read.append(found)
                # Somebody else deletes it between the reading and the use of what was read.
                asyncio.run_coroutine_threadsafe(store.delete(principal, response_id), loop).result(5)
            return found

        monkeypatch.setattr(store, "_find", slow)

        assert await store.get("", response.id) is None
        assert len(read) == 1


async def test_a_newer_database_stops_the_start(tmp_path: Path) -> None:
    async with shop(tmp_path):
        pass
    db = sqlite3.connect(tmp_path / "turnwire.db")
    db.execute("pragma user_version = 99")
    db.close()

    with pytest.raises(Exception, match="is of version 99, this is a server of version 1"):
        async with shop(tmp_path):
            pass
