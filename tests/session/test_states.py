from __future__ import annotations

import itertools

import pytest

from turnwire.server.session.states import TRANSITIONS, Fact, ImpossibleTransition, Phase, advance


@pytest.mark.parametrize(("phase", "fact"), list(itertools.product(Phase, Fact)))
def test_only_the_ways_of_the_table_are_open(phase: Phase, fact: Fact) -> None:
    ways = TRANSITIONS.get((phase, fact), frozenset())
    for to in Phase:
        if to in ways:
            assert advance(phase, fact, to) is to
        else:
            with pytest.raises(ImpossibleTransition):
                advance(phase, fact, to)


def test_every_phase_is_reached_from_the_queue_and_can_reach_the_end() -> None:
    ways: dict[Phase, set[Phase]] = {phase: set() for phase in Phase}
    for (phase, _), following in TRANSITIONS.items():
        ways[phase] |= following

    def reached(start: Phase) -> set[Phase]:
        seen = {start}
        todo = [start]
        while todo:
            for following in ways[todo.pop()] - seen:
                seen.add(following)
                todo.append(following)
        return seen

    assert reached(Phase.QUEUED) == set(Phase)
    assert all(Phase.ENDED in reached(phase) for phase in Phase)


def test_nothing_follows_the_end() -> None:
    assert not any(phase is Phase.ENDED for phase, _ in TRANSITIONS)


@pytest.mark.parametrize("fact", [Fact.CANCELLED, Fact.TIMED_OUT])
def test_a_response_can_be_stopped_in_every_phase(fact: Fact) -> None:
    for phase in set(Phase) - {Phase.ENDED}:
        assert advance(phase, fact, Phase.ENDED) is Phase.ENDED
