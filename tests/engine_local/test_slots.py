"""Which chain runs where."""

from __future__ import annotations

from turnwire.server.engine.local.slots import KEPT, Slot, SlotTable
from turnwire.server.session.transcript import EMPTY, Transcript

from .scene import answered, grown


def ran(table: SlotTable, transcript: Transcript) -> int:
    """Runs a pass and returns its slot."""
    slot = taken(table, transcript)
    table.release(slot)
    return slot.id


def taken(table: SlotTable, transcript: Transcript) -> Slot:
    slot = table.request(transcript).slot
    assert slot is not None
    return slot


def following(transcript: Transcript, text: str = "And then?") -> Transcript:
    return grown(answered(transcript), text)


def test_the_turns_of_a_chain_run_on_one_slot() -> None:
    table = SlotTable(3)
    chain = grown(EMPTY, "a")
    other = grown(EMPTY, "b")
    for _ in range(5):
        assert ran(table, chain) == 0
        assert ran(table, other) == 1
        chain, other = following(chain), following(other)
    assert (table.counts.fresh, table.counts.stayed, table.counts.evicted) == (2, 8, 0)


def test_a_new_chain_takes_the_slot_that_was_used_longest_ago() -> None:
    table = SlotTable(2)
    first, second = grown(EMPTY, "a"), grown(EMPTY, "b")
    assert (ran(table, first), ran(table, second)) == (0, 1)
    assert ran(table, following(first)) == 0
    assert ran(table, grown(EMPTY, "c")) == 1
    assert table.counts.evicted == 1
    # The second chain has lost its slot, and is new like any other.
    assert ran(table, following(second)) == 0


def test_a_fork_takes_its_parents_slot_if_that_is_idle() -> None:
    table = SlotTable(2)
    parent = grown(EMPTY, "a")
    assert ran(table, parent) == 0
    assert ran(table, following(parent, "left")) == 0
    assert ran(table, following(parent, "right")) == 0
    assert table.counts.stayed == 2


def test_a_fork_of_a_running_chain_leaves_it_alone() -> None:
    table = SlotTable(2)
    parent = grown(EMPTY, "a")
    ran(table, parent)
    left = taken(table, following(parent, "left"))
    right = taken(table, following(parent, "right"))
    assert (left.id, right.id) == (0, 1)
    assert table.counts.moved == 1


def test_forks_go_on_where_each_of_them_ran() -> None:
    table = SlotTable(2)
    parent = grown(EMPTY, "a")
    ran(table, parent)
    left, right = following(parent, "left"), following(parent, "right")
    for slot in [taken(table, left), taken(table, right)]:
        table.release(slot)
    assert ran(table, following(right)) == 1
    assert ran(table, following(left)) == 0


def test_who_waits_is_served_in_order() -> None:
    table = SlotTable(1)
    running = taken(table, grown(EMPTY, "a"))
    first, second = table.request(grown(EMPTY, "b")), table.request(grown(EMPTY, "c"))
    assert (first.slot, second.slot, table.waiting) == (None, None, 2)
    assert table.release(running) == [first]
    assert first.slot is running
    assert table.release(running) == [second]
    assert table.waiting == 0


def test_who_gives_up_waiting_gets_nothing() -> None:
    table = SlotTable(1)
    running = taken(table, grown(EMPTY, "a"))
    first, second = table.request(grown(EMPTY, "b")), table.request(grown(EMPTY, "c"))
    table.withdraw(first)
    assert table.release(running) == [second]


def test_a_chain_waits_for_its_slot_if_that_is_about_to_be_idle() -> None:
    table = SlotTable(2)
    chain = grown(EMPTY, "a")
    slot = taken(table, chain)
    table.leave(slot)
    waits = table.request(following(chain))
    assert waits.slot is None
    # Nobody else has to, as long as there is another one.
    other = taken(table, grown(EMPTY, "b"))
    assert other is not slot
    assert table.release(other) == []
    assert table.release(slot) == [waits]
    assert waits.slot is slot


def test_a_fork_from_far_back_is_a_new_chain() -> None:
    table = SlotTable(2)
    chain = early = grown(EMPTY, "a")
    for _ in range(KEPT + 1):
        ran(table, chain)
        chain = following(chain)
    assert len(table.slots[0].passes) == KEPT
    assert ran(table, following(early, "fork")) == 1
    assert ran(table, chain) == 0


def test_the_empty_transcript_is_no_chain() -> None:
    table = SlotTable(2)
    assert ran(table, EMPTY) == 0
    assert ran(table, grown(EMPTY, "a")) == 1


def test_the_same_pass_again_stays() -> None:
    table = SlotTable(2)
    chain = grown(EMPTY, "a")
    assert [ran(table, chain) for _ in range(3)] == [0, 0, 0]
    assert len(table.slots[0].passes) == 1


def test_a_slot_forgets_the_chain_it_lost() -> None:
    table = SlotTable(1)
    first = grown(EMPTY, "a")
    ran(table, first)
    ran(table, grown(EMPTY, "b"))
    assert len(table.slots[0].passes) == 1
    ran(table, following(first))
    assert table.counts.fresh == 3
