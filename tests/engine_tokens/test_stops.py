"""Stop strings in text that comes in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.engine.tokens.stops import StopScanner
from turnwire.server.session.chunks import CallDelta, Channel, Chunk, TextChunk


def pieces(*texts: str) -> list[TextChunk]:
    return [TextChunk(Channel.TEXT, text, ids=(n,)) for n, text in enumerate(texts)]


def shown(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


def test_text_ends_before_the_stop_string_even_when_it_comes_in_pieces() -> None:
    scanner = StopScanner(["STOP"])
    out = [chunk for piece in pieces("one S", "T", "OP two") for chunk in scanner.feed([piece])]
    assert shown(out) == "one "
    assert scanner.stopped
    assert scanner.feed(pieces("more")) == []


def test_what_only_looked_like_a_stop_string_comes_out_whole_with_its_ids() -> None:
    scanner = StopScanner(["STOP"])
    assert scanner.feed(pieces("a", "bS", "TO")) == pieces("a")
    assert scanner.feed([TextChunk(Channel.TEXT, "x", ids=(9,))]) == [
        *pieces("a", "bS", "TO")[1:],
        TextChunk(Channel.TEXT, "x", ids=(9,)),
    ]


def test_the_stop_string_that_is_complete_first_counts() -> None:
    scanner = StopScanner(["b", "a"])
    assert shown(scanner.feed(pieces("xaxb"))) == "x"


def test_a_stop_string_does_not_reach_across_a_call_or_into_reasoning() -> None:
    scanner = StopScanner(["ST"])
    reasoning = TextChunk(Channel.REASONING, "ST")
    assert scanner.feed([reasoning, *pieces("S"), CallDelta("T"), *pieces("T")]) == [
        reasoning,
        *pieces("S"),
        CallDelta("T"),
        *pieces("T"),
    ]
    assert not scanner.stopped


@given(st.text(alphabet="ab", max_size=20), st.data())
def test_any_split_gives_the_same_text(text: str, data: st.DataObject) -> None:
    stops = data.draw(st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=3))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    scanner = StopScanner(stops)
    out: list[Chunk] = []
    for part in parts:
        out += scanner.feed(pieces(part))
    out += scanner.flush() if not scanner.stopped else []
    found = min(((text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text), default=None)
    assert scanner.stopped == (found is not None)
    assert shown(out) == (text if found is None else text[: found[1]])
