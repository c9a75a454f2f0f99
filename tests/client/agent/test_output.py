from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.client.agent.output import BoundedOutput, bound_text


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(2, 60))
def test_pieces_give_the_same_as_the_whole_and_stay_within_the_limit(pieces: list[bytes], limit: int) -> None:
    whole, in_pieces = BoundedOutput(limit), BoundedOutput(limit)
    whole.feed(b"".join(pieces))
    for piece in pieces:
        in_pieces.feed(piece)
    assert in_pieces.text() == whole.text()
    assert in_pieces.total == sum(map(len, pieces))


@given(st.text(max_size=200), st.integers(8, 60))
def test_characters_are_never_cut_in_two(text: str, limit: int) -> None:
    bounded = bound_text(text, limit)
    if len(text.encode()) <= limit:
        assert bounded == text
    else:
        head, _, rest = bounded.partition("\n[... ")
        note, _, tail = rest.partition(" bytes left out ...]\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len((head + tail).encode()) + int(note) == len(text.encode())


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 bytes"):
        BoundedOutput(1)
