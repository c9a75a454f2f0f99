from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.tools.mcp.cutting import CUT_MARK, EventCutter, cut_message, spoilt_message
from turnwire.server.tools.mcp.results import bounded
from turnwire.server.tools.mcp.stdio import LineCutter


def message(*texts: str, **result: Any) -> bytes:
    content = [{"type": "text", "text": text} for text in texts]
    return json.dumps(
        {"jsonrpc": "2.0", "id": 7, "result": {"content": content, **result}}, ensure_ascii=False
    ).encode()


@given(texts=st.lists(st.text(max_size=40), max_size=4), cut=st.integers(0, 400))
def test_the_beginning_of_a_message_is_a_message_or_nothing(texts: list[str], cut: int) -> None:
    whole = message(*texts, structuredContent={"a": [1, "two"]}, isError=False)
    mended = cut_message(whole[:cut])
    if mended is None:
        assert b'"result": {' not in whole[:cut] or cut < 45
        return
    seen = json.loads(mended)
    assert seen["id"] == 7
    assert seen["result"]["_meta"] == {CUT_MARK: True}
    kept = [part["text"] for part in seen["result"].get("content", [])]
    assert all(text.startswith(part) for part, text in zip(kept, texts, strict=False))


@pytest.mark.parametrize("prefix", [b"", b"{", b"[1, 2", b"nonsense", b'{"id":1', b'{"result":"x', b"\xff\xfe"])
def test_what_holds_no_result_cannot_be_cut(prefix: bytes) -> None:
    assert cut_message(prefix) is None


@given(
    events=st.lists(st.binary(max_size=50).map(lambda b: b.replace(b"\r", b"").replace(b"\n", b"")), max_size=5),
    end=st.sampled_from([b"\n\n", b"\r\n\r\n"]),
    step=st.integers(1, 60),
)
def test_events_pass_whole_however_they_come(events: list[bytes], end: bytes, step: int) -> None:
    wire = b"".join(b"data: " + event + end for event in events) + b"data: rest"
    cutter = EventCutter(1_000)
    seen = b"".join(event for at in range(0, len(wire), step) for event in cutter.feed(wire[at : at + step]))
    assert seen + cutter.rest() == wire


@given(step=st.integers(1, 3_000))
def test_a_long_event_is_cut_and_those_around_it_are_not(step: int) -> None:
    small = b"data: small\n\n"
    wire = small + b"id: 1\ndata: " + message("x" * 5_000) + b"\n\n" + small
    cutter = EventCutter(1_000)
    seen = [event for at in range(0, len(wire), step) for event in cutter.feed(wire[at : at + step])]
    assert [seen[0], seen[2]] == [small, small]
    assert len(seen) == 3
    cut = json.loads(seen[1].removeprefix(b"event: message\ndata: "))
    assert set(cut["result"]["content"][0]["text"]) == {"x"}


@given(step=st.integers(1, 3_000))
def test_a_long_line_is_cut_and_those_around_it_are_not(step: int) -> None:
    wire = b"one\n" + message("x" * 5_000) + b"\nthree\nfour"
    cutter = LineCutter(1_000)
    lines = [line for at in range(0, len(wire), step) for line in cutter.feed(wire[at : at + step])]
    assert (lines[0], lines[2], len(lines)) == (b"one", b"three", 3)
    assert json.loads(lines[1])["result"]["_meta"] == {CUT_MARK: True}


@pytest.mark.parametrize(
    ("line", "answered"), [(b'{"id": 12, "result": [[', 12), (b'{"jsonrpc":"2.0","id":"a-1"', "a-1"), (b"noise", None)]
)
def test_a_message_that_cannot_be_read_answers_with_an_error(line: bytes, answered: object) -> None:
    spoilt = spoilt_message(line)
    assert (None if spoilt is None else json.loads(spoilt)["id"]) == answered


@given(text=st.text(max_size=100), limit=st.integers(0, 120))
def test_a_bounded_text_is_the_text_or_its_beginning_with_a_note(text: str, limit: int) -> None:
    seen = bounded(text, limit)
    size = len(text.encode())
    if size <= limit:
        assert seen == text
        return
    shown, note = seen.rsplit("\n", 1)
    assert text.startswith(shown)
    assert limit - 3 <= len(shown.encode()) <= limit
    assert f"{size} bytes" in note
