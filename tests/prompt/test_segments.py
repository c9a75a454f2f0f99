"""Segments and prompts: joined, packed and compared without touching what is shared."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.prompt.segments import EMPTY, Rendered, Segment, common_length
from turnwire.v1.response_pb2 import TokenSpan

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=40)


def made(parts: list[list[int]], base: Rendered = EMPTY) -> Rendered:
    for part in parts:
        base = base.extend(Segment(part))
    return base


@given(st.lists(IDS, max_size=6))
def test_packed_segments_are_one_packed_field(parts: list[list[int]]) -> None:
    prompt = made(parts)
    ids = [each for part in parts for each in part]
    packed = prompt.packed()
    size = len(packed)
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    assert list(TokenSpan.FromString(b"\x12" + bytes(length) + packed).ids) == ids
    assert list(prompt.join()) == ids
    assert prompt.length == len(ids)


@given(st.lists(IDS, max_size=4), st.lists(IDS, max_size=4), st.lists(IDS, max_size=4))
def test_the_common_beginning_is_found_across_shared_and_equal_parts(
    base: list[list[int]], left: list[list[int]], right: list[list[int]]
) -> None:
    shared = made(base)
    one, other = made(left, shared), made(right, shared)
    first, second = list(one.join()), list(other.join())
    expected = 0
    while expected < min(len(first), len(second)) and first[expected] == second[expected]:
        expected += 1
    assert common_length(one, other) == expected
    assert list(one.new_since(other)) == first[expected:]


@given(st.lists(IDS, max_size=5), st.integers(0, 100))
def test_a_part_is_cut_at_any_position(parts: list[list[int]], position: int) -> None:
    prompt = made(parts)
    assert prompt.since(position) == prompt.join()[position:]


def test_forks_share_what_they_have_in_common() -> None:
    base = made([[1, 2], [3]])
    one, other = made([[4]], base), made([[5]], base)
    assert one.parent is other.parent is base
    assert one.segments()[1] is other.segments()[1]
    assert EMPTY.extend(Segment()) is EMPTY


def test_an_array_is_kept_as_it_is() -> None:
    ids = array("I", [1, 2, 3])
    assert Segment(ids).ids is ids
