"""The life of a response as a table; every change of phase goes through `advance`, which knows no other way.

A response is *queued* until its lane is free, *preparing* while its parent is fetched and its request checked,
*sampling* during a pass, in *tools* while hosted tools run or are listed, *paused* while a held response waits for the
client, and *ended* once. One round of sampling, tools and pause may follow another any number of times.
"""

from __future__ import annotations

import enum
from typing import Final


class Phase(enum.Enum):
    """How far a response has come."""

    QUEUED = "queued"
    PREPARING = "preparing"
    SAMPLING = "sampling"
    TOOLS = "tools"
    PAUSED = "paused"
    ENDED = "ended"


class Fact(enum.Enum):
    """What moves a response on."""

    ADMITTED = "its lane is free"
    REFUSED = "the request cannot be obeyed"
    PREPARED = "the request was checked and its prompt is ready"
    STOPPED = "the model stopped"
    TOOLS_FINISHED = "the last hosted tool finished"
    ANSWERED = "the client delivered the last missing output"
    CONTINUED = "a create continues from the pause"
    OVERTAKEN = "what it continues from went on"
    CANCELLED = "the client cancelled it"
    FAILED = "the engine failed"
    TIMED_OUT = "a deadline passed"
    FLAGGED = "a classifier flagged its input"


_P: Final = Phase
_F: Final = Fact

TRANSITIONS: Final[dict[tuple[Phase, Fact], frozenset[Phase]]] = {
    (_P.QUEUED, _F.ADMITTED): frozenset({_P.PREPARING}),
    (_P.QUEUED, _F.CANCELLED): frozenset({_P.ENDED}),
    (_P.QUEUED, _F.TIMED_OUT): frozenset({_P.ENDED}),
    (_P.QUEUED, _F.REFUSED): frozenset({_P.ENDED}),
    (_P.PREPARING, _F.REFUSED): frozenset({_P.ENDED}),
    # A create that continues from a pause is checked while the pause lasts, which an append may end first.
    (_P.PREPARING, _F.OVERTAKEN): frozenset({_P.QUEUED}),
    # A warm-up ends as soon as it is prepared. Listings and calls that were approved precede the pass.
    (_P.PREPARING, _F.PREPARED): frozenset({_P.TOOLS, _P.SAMPLING, _P.ENDED}),
    (_P.PREPARING, _F.CANCELLED): frozenset({_P.ENDED}),
    (_P.PREPARING, _F.TIMED_OUT): frozenset({_P.ENDED}),
    (_P.PREPARING, _F.FLAGGED): frozenset({_P.ENDED}),
    # The model stopped: hosted tools first, then the client's, else the end. When every output arrived in time the next
    # pass begins without a pause.
    (_P.SAMPLING, _F.STOPPED): frozenset({_P.TOOLS, _P.PAUSED, _P.SAMPLING, _P.ENDED}),
    (_P.SAMPLING, _F.CANCELLED): frozenset({_P.ENDED}),
    (_P.SAMPLING, _F.FAILED): frozenset({_P.ENDED}),
    (_P.SAMPLING, _F.TIMED_OUT): frozenset({_P.ENDED}),
    (_P.SAMPLING, _F.FLAGGED): frozenset({_P.ENDED}),
    # Calls that were approved while other tools ran are run in their turn.
    (_P.TOOLS, _F.TOOLS_FINISHED): frozenset({_P.TOOLS, _P.PAUSED, _P.SAMPLING, _P.ENDED}),
    (_P.TOOLS, _F.CANCELLED): frozenset({_P.ENDED}),
    (_P.TOOLS, _F.TIMED_OUT): frozenset({_P.ENDED}),
    (_P.TOOLS, _F.FLAGGED): frozenset({_P.ENDED}),
    (_P.PAUSED, _F.ANSWERED): frozenset({_P.TOOLS, _P.SAMPLING}),
    (_P.PAUSED, _F.CONTINUED): frozenset({_P.ENDED}),
    (_P.PAUSED, _F.CANCELLED): frozenset({_P.ENDED}),
    # Its record could not be kept.
    (_P.PAUSED, _F.FAILED): frozenset({_P.ENDED}),
    (_P.PAUSED, _F.TIMED_OUT): frozenset({_P.ENDED}),
}
"""(phase, fact) to the phases that may follow. What is not here cannot happen."""


class ImpossibleTransition(Exception):
    """Raised when code tries to move a response in a way the table does not know: a bug, never bad input."""


def advance(phase: Phase, fact: Fact, to: Phase) -> Phase:
    """Returns `to` if the table allows it.

    Raises:
        ImpossibleTransition: The table does not know this way.
    """
    if to not in TRANSITIONS.get((phase, fact), frozenset()):
        msg = f"a {phase.value} response cannot become {to.value} because {fact.value}"
        raise ImpossibleTransition(msg)
    return to
