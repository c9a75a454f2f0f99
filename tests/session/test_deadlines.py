from __future__ import annotations

from turnwire.server.session.deadlines import Deadlines


def test_deadlines_pass_in_order_and_ties_in_the_order_they_were_set() -> None:
    deadlines = Deadlines()
    passed: list[str] = []
    for when, name in ((3.0, "c"), (1.0, "a"), (2.0, "b"), (1.0, "a2")):
        deadlines.at(when, lambda name=name: passed.append(name))  # type: ignore[misc]
    assert deadlines.next() == 1.0
    deadlines.expire(2.0)
    assert passed == ["a", "a2", "b"]
    assert deadlines.next() == 3.0


def test_a_cancelled_deadline_passes_without_effect() -> None:
    deadlines = Deadlines()
    passed: list[str] = []
    first = deadlines.at(1.0, lambda: passed.append("first"))
    deadlines.at(2.0, lambda: passed.append("second"))
    first.cancel()
    first.cancel()
    assert deadlines.next() == 2.0
    deadlines.expire(5.0)
    assert passed == ["second"]
    assert deadlines.next() is None


def test_a_deadline_may_set_another_that_is_due_as_well() -> None:
    deadlines = Deadlines()
    passed: list[str] = []

    def chain() -> None:
        deadlines.at(1.5, lambda: passed.append("chained"))

    deadlines.at(1.0, chain)
    deadlines.expire(2.0)
    assert passed == ["chained"]


def test_cancelled_deadlines_do_not_pile_up_before_their_time() -> None:
    deadlines = Deadlines()
    kept = deadlines.at(1e9, lambda: None)
    for number in range(100_000):
        deadlines.at(1e6 + number, lambda: None).cancel()
    assert len(deadlines) < 200
    assert deadlines.next() == 1e9
    kept.cancel()
    assert deadlines.next() is None


def test_nothing_is_left_after_clear() -> None:
    deadlines = Deadlines()
    deadline = deadlines.at(1.0, lambda: None)
    deadlines.clear()
    deadline.cancel()
    assert deadlines.next() is None
