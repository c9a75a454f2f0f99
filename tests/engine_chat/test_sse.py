from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.engine.chat.sse import EventTooLarge, SseParser

TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1, max_size=12)


def parse(data: bytes, cuts: list[int] | None = None) -> list[bytes]:
    parser = SseParser(1_000_000)
    events: list[bytes] = []
    at = 0
    for cut in [*sorted(cuts or []), len(data)]:
        events += parser.feed(data[at:cut])
        at = max(at, cut)
    rest = parser.close()
    return events if rest is None else [*events, rest]


@given(
    st.lists(TEXT, max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 200), max_size=12),
    st.booleans(),
)
def test_events_are_the_same_wherever_the_bytes_are_cut(
    texts: list[str], ending: str, cuts: list[int], comments: bool
) -> None:
    wire = ""
    for text in texts:
        wire += f": a comment{ending}" if comments else ""
        wire += f"data: {text}{ending}{ending}"
    data = wire.encode()
    assert parse(data, [min(cut, len(data)) for cut in cuts]) == [text.encode() for text in texts]


def test_one_byte_at_a_time_gives_the_same_events() -> None:
    data = "data: naïve 🙂\r\n\r\n: ping\r\ndata: two\r\n\r\n".encode()
    assert parse(data, list(range(len(data)))) == ["naïve 🙂".encode(), b"two"]


def test_lines_of_one_event_are_joined() -> None:
    assert parse(b"data: a\ndata:b\nid: 7\nevent: x\n\n") == [b"a\nb"]


def test_a_last_event_without_its_end_is_given_at_the_close() -> None:
    assert parse(b"data: a\n\ndata: b") == [b"a", b"b"]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert parse(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]


def test_an_error_line_of_older_servers_becomes_an_error_frame() -> None:
    assert parse(b'error: {"code":500}\n\n') == [b'{"error": {"code":500}}']


def test_an_event_over_the_limit_is_refused_however_it_comes() -> None:
    with pytest.raises(EventTooLarge):
        SseParser(10).feed(b"data: 12345678901")
    parser = SseParser(10)
    parser.feed(b"data: 123456\n")
    with pytest.raises(EventTooLarge):
        parser.feed(b"data: 789012\n")


def test_many_events_over_the_limit_together_are_fine() -> None:
    assert len(SseParser(20).feed(b"data: 1234567\n\n" * 50)) == 50
