from __future__ import annotations

import pytest

from turnwire.server.engine.chat.calls import BrokenCalls, CallQueue
from turnwire.server.engine.chat.tools import Target
from turnwire.server.session.chunks import CallDelta, CallEnd, CallKind, CallStart, Channel, Chunk, TextChunk

from .scene import said

TARGETS = {"patch": Target("patch", CallKind.CUSTOM), "fs__read": Target("fs.read", CallKind.FUNCTION)}


class Queue:
    def __init__(self) -> None:
        self.calls = CallQueue(TARGETS)
        self.out: list[Chunk] = []

    def delta(self, index: int | None, arguments: object = "", *, id: str = "", name: str = "") -> list[Chunk]:
        before = len(self.out)
        self.calls.delta(index, id, name, arguments, self.out)
        return self.out[before:]

    def finish(self, *, cut: bool = False) -> list[tuple[str, str]]:
        self.calls.finish(cut=cut, out=self.out)
        return said(self.out)


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_a_call_is_passed_on_as_it_comes(queue: Queue) -> None:
    assert queue.delta(0, id="c1", name="f") == [CallStart("f", CallKind.FUNCTION, "c1")]
    assert queue.delta(0, '{"a"') == [CallDelta('{"a"')]
    assert queue.delta(0, ":1}") == [CallDelta(":1}")]
    assert queue.finish() == [("call", "f"), ("arguments", '{"a":1}'), ("end", "")]


def test_a_call_is_over_once_another_begins_and_its_arguments_are_whole(queue: Queue) -> None:
    queue.delta(0, '{"a":1}', id="c1", name="f")
    assert queue.delta(1, id="c2", name="g") == [CallEnd(), CallStart("g", CallKind.FUNCTION, "c2")]
    assert queue.delta(1, "{}") == [CallDelta("{}")]


def test_interleaved_calls_come_one_after_the_other(queue: Queue) -> None:
    queue.delta(0, id="c1", name="f")
    queue.delta(1, id="c2", name="g")
    queue.delta(2, id="c3", name="h")
    queue.delta(1, '{"b"')
    queue.delta(0, '{"a"')
    queue.delta(2, "{}")
    queue.delta(1, ":2}")
    released = queue.delta(0, ":1}")
    assert said(released) == [
        ("arguments", ":1}"),
        ("end", ""),
        ("call", "g"),
        ("arguments", '{"b":2}'),
        ("end", ""),
        ("call", "h"),
        ("arguments", "{}"),
    ]
    assert queue.finish()[-1] == ("end", "")


def test_calls_that_are_all_numbered_zero_are_told_apart_by_their_ids(queue: Queue) -> None:
    queue.delta(0, "{}", id="c1", name="f")
    queue.delta(0, '{"x":1}', id="c2", name="f")
    assert queue.finish() == [
        ("call", "f"),
        ("arguments", "{}"),
        ("end", ""),
        ("call", "f"),
        ("arguments", '{"x":1}'),
        ("end", ""),
    ]


def test_calls_without_numbers_are_told_apart_by_their_ids_or_names(queue: Queue) -> None:
    queue.delta(None, '{"a"', id="c1", name="f")
    queue.delta(None, ":1}")
    queue.delta(None, "{}", id="c2", name="g")
    assert [text for kind, text in queue.finish() if kind == "call"] == ["f", "g"]


def test_a_name_that_comes_late_or_again_names_the_call_once(queue: Queue) -> None:
    assert queue.delta(0, '{"a"', id="c1") == []
    assert queue.delta(0, name="f") == [CallStart("f", CallKind.FUNCTION, "c1"), CallDelta('{"a"')]
    queue.delta(0, ":1}", name="f")
    assert queue.finish() == [("call", "f"), ("arguments", '{"a":1}'), ("end", "")]


def test_a_call_without_arguments_gets_an_empty_object(queue: Queue) -> None:
    queue.delta(0, id="c1", name="f")
    queue.delta(1, id="c2", name="g")
    assert queue.finish() == [
        ("call", "f"),
        ("arguments", "{}"),
        ("end", ""),
        ("call", "g"),
        ("arguments", "{}"),
        ("end", ""),
    ]


def test_arguments_given_as_an_object_become_their_json(queue: Queue) -> None:
    queue.delta(0, {"a": [1]}, id="c1", name="f")
    assert queue.finish()[1] == ("arguments", '{"a":[1]}')


def test_a_custom_tools_input_is_taken_out_of_its_arguments(queue: Queue) -> None:
    assert queue.delta(0, id="c1", name="patch") == [CallStart("patch", CallKind.CUSTOM, "c1")]
    queue.delta(0, '{"input": "a\\n')
    queue.delta(0, 'b"}')
    assert queue.finish() == [("call", "patch"), ("arguments", "a\nb"), ("end", "")]


def test_a_name_on_the_wire_is_turned_back_into_the_tools_own(queue: Queue) -> None:
    queue.delta(0, "{}", name="fs__read")
    assert queue.finish()[0] == ("call", "fs.read")


def test_a_tool_that_nobody_declared_is_called_as_the_model_did(queue: Queue) -> None:
    queue.delta(0, "{}", name="invented")
    assert queue.finish()[0] == ("call", "invented")


def test_an_answer_cut_short_leaves_the_last_call_open(queue: Queue) -> None:
    queue.delta(0, "{}", id="c1", name="f")
    queue.delta(1, '{"a', id="c2", name="g")
    assert queue.finish(cut=True)[-2:] == [("call", "g"), ("arguments", '{"a')]


def test_text_behind_a_call_waits_for_the_call(queue: Queue) -> None:
    queue.delta(0, '{"a"', id="c1", name="f")
    queue.calls.text(TextChunk(Channel.TEXT, "so"), queue.out)
    assert said(queue.out) == [("call", "f"), ("arguments", '{"a"')]
    queue.delta(0, ":1}")
    queue.calls.text(TextChunk(Channel.TEXT, " far"), queue.out)
    assert queue.finish() == [("call", "f"), ("arguments", '{"a":1}'), ("end", ""), ("text", "so far")]


def test_space_after_a_call_that_is_over_is_ignored_and_more_is_not(queue: Queue) -> None:
    queue.delta(0, "{}", id="c1", name="f")
    queue.delta(1, "{}", id="c2", name="g")
    queue.delta(0, "\n")
    with pytest.raises(BrokenCalls):
        queue.delta(0, "{}")


def test_a_call_without_a_name_is_broken(queue: Queue) -> None:
    queue.delta(0, "{}", id="c1")
    with pytest.raises(BrokenCalls):
        queue.finish()
