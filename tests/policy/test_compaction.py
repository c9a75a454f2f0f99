"""The digest is an extract within its budget; what people said is not touched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.policy.compaction import BUDGET, clip, compact, digest_message, read_digest, sealed_digest
from turnwire.v1.item_pb2 import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    MessageContent,
    Role,
    ToolOutput,
)
from turnwire.v1.opaque_pb2 import OpaqueObject


def words(text: str) -> int:
    return len(text.split())


def said(text: str, role: Role.ValueType = Role.ROLE_USER) -> Item:
    return Item(message=Message(role=role, content=MessageContent(text=text)))


def nothing(item: Item) -> None:
    return None


@given(text=st.text(alphabet="ab \né漢", max_size=400), limit=st.integers(8, 40))
def test_what_is_clipped_is_within_its_limit_and_keeps_both_ends(text: str, limit: int) -> None:
    cut = clip(text, limit, words)
    if words(text) <= limit and len(text) <= 8 * limit:
        assert cut == text
    else:
        assert words(cut) <= limit
        assert "[…]" in cut
        assert cut[:3] == text[:3]
        assert cut[-1:] == text[-1:]


def test_clipping_costs_the_limit_and_not_the_text() -> None:
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return words(text)

    clip("word " * 1_000_000, 100, count)
    assert max(counted) < 1_000


def test_the_oldest_lines_give_way() -> None:
    items = [said("go")]
    for n in range(400):
        items.append(Item(function_call=FunctionCall(call_id=f"c{n}", name="run", arguments=f'{{"n": {n}}}')))
        items.append(Item(function_call_output=FunctionCallOutput(call_id=f"c{n}", output=ToolOutput(text="w " * 60))))
    compacted = compact(items, nothing, words)
    assert compacted.kept == (said("go"),)
    assert compacted.lines[0] == "[… earlier steps were left out …]"
    assert compacted.lines[-2] == 'called run {"n": 399}'
    text = digest_message(compacted.lines).message.content.text
    assert BUDGET - 200 < words(text) <= BUDGET


def test_lines_of_earlier_digests_stand_first_and_say_once_that_some_were_left_out() -> None:
    old = ("[… earlier steps were left out …]", *(f"line {n} " + "w " * 400 for n in range(20)))
    item = Item()
    item.compaction.encrypted_content = "x"
    compacted = compact([item, said("new answer", Role.ROLE_ASSISTANT)], lambda _: old, words)
    assert compacted.lines[-1] == "assistant: new answer"
    assert compacted.lines.count("[… earlier steps were left out …]") == 1


def test_declarations_stay_and_other_opaque_steps_are_named() -> None:
    tools = Item(opaque=OpaqueObject(type="additional_tools", json='{"type":"additional_tools"}'))
    step = Item(opaque=OpaqueObject(type="t" * 100, json="{}"))
    compacted = compact([tools, step], nothing, words)
    assert compacted.kept == (tools,)
    assert compacted.lines == (f"step of type {'t' * 64}…",)


@given(lines=st.lists(st.text(max_size=20), max_size=5))
def test_a_digest_is_read_as_it_was_sealed(lines: list[str]) -> None:
    assert read_digest(sealed_digest(lines)) == tuple(lines)
    assert read_digest(b"{}") is None
