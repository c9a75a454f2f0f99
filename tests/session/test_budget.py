"""What sessions keep together is bounded: what is idle goes first, what is at work never."""

from __future__ import annotations

from turnwire.server.session.budget import FAR, Budget, Member, SharedBytes
from turnwire.server.session.conversations import Conversations
from turnwire.server.session.retention import LatestPerLane, Tree
from turnwire.server.session.transcript import EMPTY, Entry, Origin, Transcript
from turnwire.v1.response_pb2 import DoneReason

from .core import Core
from .test_retention import grown, state


def chain(length: int, parent: Transcript = EMPTY) -> Transcript:
    for _ in range(length):
        parent = parent.extend([Entry(b"x" * 100, Origin.INPUT, 1)], frozenset())
    return parent


def test_a_conversation_from_elsewhere_counts_as_a_whole_without_being_gone_through() -> None:
    shared, long = SharedBytes(), chain(1_000)
    shared.hold(long)
    assert shared.total == long.bytes
    longer = chain(3, long)
    shared.hold(longer)
    assert shared.total == longer.bytes
    shared.release(long)
    assert shared.total == longer.bytes
    shared.release(longer)
    assert shared.total == 0


def test_forks_close_to_what_is_held_share_it() -> None:
    shared, trunk = SharedBytes(), chain(FAR // 2)
    shared.hold(trunk)
    forks = [chain(2, trunk) for _ in range(5)]
    for fork in forks:
        shared.hold(fork)
    assert shared.total == trunk.bytes + 5 * (forks[0].bytes - trunk.bytes)


def test_what_a_renderer_keeps_of_a_segment_counts_once_its_successor_is_held() -> None:
    shared, first = SharedBytes(), chain(1)
    shared.hold(first)
    first.kept = 5_000
    second = chain(1, first)
    shared.hold(second)
    assert shared.total == second.bytes + 5_000
    shared.release(first)
    shared.release(second)
    assert shared.total == 0


def test_settings_that_states_share_count_once() -> None:
    shared, settings = SharedBytes(), b"s" * 10_000
    for _ in range(5):
        shared.hold(chain(1), settings)
    assert 10_000 <= shared.total < 20_000


def trees(budget: Budget, count: int) -> list[Tree]:
    return [Tree(100, 10**9, set[str]().__contains__, budget) for _ in range(count)]


def test_the_session_used_least_lately_gives_first_and_keeps_its_newest() -> None:
    budget = Budget(30_000)
    old, middle, new = trees(budget, 3)
    for number in range(4):
        old.list(state(f"old{number}", grown(EMPTY, 2_000)))
    for number in range(4):
        middle.list(state(f"middle{number}", grown(EMPTY, 2_000)))
    assert not budget.full
    for number in range(6):
        new.list(state(f"new{number}", grown(EMPTY, 2_000)))
    assert not budget.full
    assert budget.shared.total == old.bytes + middle.bytes + new.bytes <= 30_000
    assert [bool(old.find(f"old{number}")) for number in range(4)] == [False, False, False, True]
    assert middle.find("middle3")
    assert all(new.find(f"new{number}") for number in range(6))


def test_a_session_that_ends_gives_back_what_it_held() -> None:
    budget = Budget(10_000)
    tree = Tree(100, 10**9, set[str]().__contains__, budget)
    lanes = LatestPerLane(10**9, set[str]().__contains__, budget)
    tree.list(state("a", grown(EMPTY, 1_000)))
    lanes.list(state("b", grown(EMPTY, 1_000), lane="l"))
    assert budget.shared.total > 0
    for retention in (tree, lanes):
        retention.close()
        retention.close()
        assert not retention.shed()
    assert budget.shared.total == 0
    # Memory that is given back is free at once, whatever still refers to the session.
    assert tree.find("a") is None
    assert lanes.find("b") is None


def test_known_conversations_go_before_anything_that_has_an_id() -> None:
    budget = Budget(12_000)
    known = Conversations(bytes(32), budget=budget)
    (tree,) = trees(budget, 1)
    for number in range(3):
        entry = Entry(b"x" * 2_000, Origin.INPUT, 1, mark=bytes([number]) * 16)
        known.remember(state(f"k{number}", EMPTY.extend([entry], frozenset())), now=0.0)
    assert len(known) == 3
    for number in range(3):
        tree.list(state(f"t{number}", grown(EMPTY, 2_000)))
    assert not budget.full
    assert len(known) < 3
    assert all(tree.find(f"t{number}") for number in range(3))


def test_what_cannot_be_let_go_is_passed_by_in_bounded_time() -> None:
    budget = Budget(1)
    asked: list[int] = []

    def nothing() -> bool:
        asked.append(1)
        return False

    for number in range(1_000):
        member = Member(budget, nothing)
        member.shared.hold(grown(EMPTY, 10 + number))
        asked.clear()
        member.used()
        assert len(asked) <= 64
    assert budget.full


def test_a_server_that_is_full_of_what_is_at_work_begins_nothing_new() -> None:
    budget = Budget(2_000)
    core = Core(budget=budget)
    running = core.create("x" * 3_000, hold=True)
    core.call("f", "c1")
    core.finish()
    assert budget.full
    core.create("y", lane="other")
    assert core.last("rejected").error.code == "server_is_overloaded"
    assert core.last("rejected").error.HasField("retry_after")
    # What is at work goes on, and a session that ends makes room.
    core.append(core.id_of(running), "c1")
    core.say("done")
    core.finish()
    assert core.last("done").reason == DoneReason.DONE_REASON_COMPLETED
    core.session.lost(core.now)
    assert budget.shared.total == 0
