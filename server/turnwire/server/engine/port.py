"""The engine port: what inference has to offer, and nothing about how it is done.

Above it: the runtime, which starts one `Generation` per pass and feeds its output to the session core. Below it: one
adapter per kind of upstream. Output is *pushed* into a `Sink` by plain calls on the event loop's thread: with hundreds
of responses at a thousand tokens a second, waking a task per token would cost more than everything else in the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from turnwire.server.engine.profile import ALL, PLAIN, ModelProfile, Takes

if TYPE_CHECKING:
    from turnwire.server.session.chunks import Chunk, EngineFailure, Finish
    from turnwire.server.session.prompt import Prompt


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model an engine serves."""

    id: str
    """The name clients use in `model`."""
    owned_by: str = "turnwire"
    context_length: int | None = None
    """Tokens of prompt and output together; None where the engine does not say."""
    aliases: tuple[str, ...] = ()
    """Other names that clients may use; answers name the model by its id."""
    profile: ModelProfile = PLAIN
    """What the operator says of it."""
    takes: Takes = field(default=ALL, compare=False)
    """What its engine can hand on to it."""


class Sink(Protocol):
    """Where a generation delivers; called on the event loop's thread, never re-entrantly from `Engine.start`."""

    def output(self, chunks: Sequence[Chunk], /) -> None:
        """Takes the next chunks, in order. Never blocks; back-pressure arrives as `Generation.pause`."""

    def ended(self, outcome: Finish | EngineFailure, /) -> None:
        """Takes the outcome; exactly once, last, unless the generation was aborted first."""


class Generation(Protocol):
    """One running pass."""

    def pause(self) -> None:
        """Stops output as soon as the engine can; a paced engine stops its clock. Idempotent."""

    def resume(self) -> None:
        """Lets output flow again. Idempotent."""

    def abort(self) -> None:
        """Frees the engine at once; the sink is not called again. Idempotent, also after the end."""


class Engine(Protocol):
    """An inference service, or a simulation of one."""

    name: str
    """Short label for metrics, such as `scripted`."""

    def models(self) -> Sequence[ModelInfo]:
        """Lists the models served right now, in the order clients should see them.

        Names that were resolved are not looked for again: an engine whose models change tells the server's `Revision`.
        """
        ...

    def start(self, prompt: Prompt, sink: Sink) -> Generation:
        """Begins a pass. Returns at once; trouble reaches the sink as `EngineFailure`."""
        ...

    async def aclose(self) -> None:
        """Aborts what runs and releases connections. Cancelling it leaves the engine unusable."""


@runtime_checkable
class CountingEngine(Protocol):
    """What an engine may be too: one that can tell the size of a prompt without running it."""

    async def count(self, prompt: Prompt) -> int | None:
        """Returns the tokens that a pass from this prompt would report as its input; None where that is not known.

        Safe to cancel.

        Raises:
            turnwire.v1.errors.RequestError: The model's format cannot say this conversation.
        """
        ...
