"""What one pass of sampling starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from turnwire.server.session.chain import Chain
from turnwire.server.session.switches import ALL_ON, Switches
from turnwire.server.session.visits import Visits

if TYPE_CHECKING:
    from turnwire.server.session.toolsets import Tools
    from turnwire.server.session.transcript import Transcript
    from turnwire.v1.response_pb2 import ResponseCreate


@dataclass(frozen=True, slots=True)
class Prompt:
    """Everything an engine needs for one pass; immutable, shares all history with its parent by reference."""

    pass_id: int
    """Unique within the server's session; for logs."""
    response_id: str
    model: str
    """The resolved model name."""
    settings: ResponseCreate
    """The effective settings after inheritance: instructions, sampling knobs. Its `input` and `tools` are empty."""
    tools: Tools
    """The tools, kept once however often they are sent."""
    transcript: Transcript
    """All items, oldest first when walked. An engine that keeps its own state per chain reads only `transcript.new`."""
    turn: int
    """How many passes were sampled on this chain before this one, counting assistant turns the client replayed."""
    input_tokens: int
    """The prompt's size by the server's own running count; an engine that counts itself reports its own figure."""
    cached_tokens: int
    """The part of `input_tokens` that earlier passes of the chain already counted."""
    visits: Visits = field(default_factory=Visits, compare=False, repr=False)
    """Where its engine notes what it looks at."""
    switches: Switches = ALL_ON
    """What its engine may keep of earlier passes."""

    @property
    def chain(self) -> Chain:
        """What the prompt is routed by; a chain of its own where its transcript is of none."""
        return self.transcript.chain or Chain(self.response_id)
