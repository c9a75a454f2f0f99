from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwire.server.session.budget import SharedBytes
from turnwire.server.session.retention import LatestPerLane, Tree
from turnwire.server.session.state import State
from turnwire.server.session.toolsets import NO_TOOLS
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.response_pb2 import ResponseStatus


def state(response_id: str, transcript: Transcript = EMPTY, *, parent: str = "", lane: str = "") -> State:
    return State(
        id=response_id,
        principal="",
        lane=lane,
        parent_id=parent,
        model="m",
        created_at=0.0,
        completed_at=None,
        status=ResponseStatus.RESPONSE_STATUS_COMPLETED,
        settings=b"",
        tools=NO_TOOLS,
        transcript=transcript,
        input=(),
        before=EMPTY,
        usage=b"",
        context_tokens=0,
    )


def grown(parent: Transcript, size: int = 1) -> Transcript:
    return parent.extend([Entry(b"x" * size, Origin.INPUT, 1)], frozenset())


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.lists(st.tuples(st.booleans(), st.integers(0, 30))))
def test_shared_bytes_equal_the_distinct_segments_that_somebody_holds(
    parents: list[int], actions: list[tuple[bool, int]]
) -> None:
    tree = [EMPTY]
    for number, parent in enumerate(parents):
        tree.append(grown(tree[parent % len(tree)], size=number))
    shared = SharedBytes()
    held: list[Transcript] = []
    for hold, which in actions:
        if hold:
            held.append(tree[which % len(tree)])
            shared.hold(held[-1])
        elif held:
            shared.release(held.pop(which % len(held)))
        distinct = {id(s): s for transcript in held for s in transcript.segments()}
        assert shared.total == sum(s.own_bytes for s in distinct.values())


def tree_of(max_responses: int, in_use: set[str], max_bytes: int = 10**9) -> Tree:
    return Tree(max_responses, max_bytes, in_use.__contains__)


def test_a_tree_unlists_the_oldest_interior_response_first() -> None:
    tree = tree_of(3, set())
    tree.list(state("old_head"))
    tree.list(state("root"))
    tree.list(state("child", parent="root"))
    tree.list(state("grandchild", parent="child"))
    assert tree.find("root") is None
    assert tree.find("old_head")
    tree.list(state("more"))
    assert tree.find("child") is None
    tree.list(state("yet_more"))
    assert tree.find("old_head") is None
    assert tree.find("grandchild")
    assert len(tree) == 3


def test_a_tree_never_unlists_what_is_in_use() -> None:
    in_use = {"a", "b"}
    tree = tree_of(1, in_use)
    tree.list(state("a"))
    tree.list(state("b", parent="a"))
    tree.list(state("c"))
    assert [bool(tree.find(name)) for name in "abc"] == [True, True, True]
    in_use.clear()
    tree.list(state("d"))
    assert len(tree) == 1
    assert tree.find("d")


def test_a_tree_counts_bytes_of_shared_history_once_and_keeps_the_newest() -> None:
    tree = tree_of(100, set(), max_bytes=5_000)
    trunk = grown(EMPTY, 1_000)
    tree.list(state("trunk", trunk))
    for number in range(20):
        tree.list(state(f"fork_{number}", grown(trunk, 1), parent="trunk"))
    assert tree.bytes <= 5_000
    assert tree.find("fork_19")
    tree.list(state("huge", grown(EMPTY, 10_000)))
    assert tree.find("huge")
    assert len(tree) == 1


def test_a_tree_replaces_a_checkpoint_of_the_same_response() -> None:
    tree = tree_of(10, set())
    first = grown(EMPTY, 10)
    tree.list(state("a", first))
    before = tree.bytes
    tree.list(state("a", grown(first, 10)))
    assert len(tree) == 1
    assert tree.bytes == 2 * before
    tree.list(state("a", first))
    assert tree.bytes == before


def test_a_tree_keeps_the_parent_of_a_failed_turn() -> None:
    tree = tree_of(10, set())
    tree.list(state("a"))
    tree.turn_failed("a", "")
    assert tree.find("a")


def test_latest_per_lane_keeps_one_response_a_lane() -> None:
    latest = LatestPerLane(10**9, set[str]().__contains__)
    latest.list(state("a1", lane="a"))
    latest.list(state("b1", lane="b"))
    latest.list(state("a2", lane="a", parent="a1"))
    assert [bool(latest.find(name)) for name in ("a1", "b1", "a2")] == [False, True, True]
    assert len(latest) == 2


def test_latest_per_lane_unlists_a_parent_whose_own_lane_failed_but_not_for_a_fork() -> None:
    latest = LatestPerLane(10**9, set[str]().__contains__)
    latest.list(state("a1", lane="a"))
    latest.turn_failed("a1", "b")
    assert latest.find("a1")
    latest.turn_failed("a1", "a")
    assert latest.find("a1") is None
    assert latest.bytes == 0


def test_latest_per_lane_is_bounded_by_bytes_but_for_what_is_in_use() -> None:
    latest = LatestPerLane(5_000, {"r0"}.__contains__)
    for number in range(10):
        latest.list(state(f"r{number}", grown(EMPTY, 1_000), lane=str(number)))
    assert latest.bytes <= 5_000
    assert latest.find("r9")
    assert latest.find("r0")
    latest.list(state("huge", grown(EMPTY, 10_000), lane="huge"))
    assert latest.find("huge")
    assert latest.find("r0")
    assert len(latest) == 2
