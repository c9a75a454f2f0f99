"""Whether a create's prompt fits its model, found out before the response exists, by engines that count exactly.

Above it: `carrier`, between the check of a request and the answer to it. Below it: the engines. A prompt that is far
from the limit by the server's own count is not counted again, so that most requests cost nothing here. What is not
found here, as the tools that a server lists later, or what is appended, the engine finds when the pass begins.
"""

from __future__ import annotations

from typing import Final

from turnwire.server.engine.port import CountingEngine
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.session.effects import Prepare, Prepared
from turnwire.server.session.prompt import Prompt
from turnwire.v1.errors import reject

_FAR: Final = 2
"""How many times the server's own count a model may count at most where it is not asked: vocabularies differ, and
templates write around items."""
_BYTES_PER_TOKEN: Final = 3
"""Of instructions and tools, which the server does not count."""


class Fitting:
    """A prompt that has to be counted."""

    def __init__(self, engine: CountingEngine, prompt: Prompt, context: int) -> None:
        """Takes what to ask, and the tokens of prompt and output together."""
        self._engine = engine
        self._prompt = prompt
        self._context = context

    async def check(self) -> None:
        """Counts the prompt. Safe to cancel.

        Raises:
            RequestError: `context_length_exceeded`, or the model's format cannot say this conversation.
        """
        counted = await self._engine.count(self._prompt)
        if counted is None or counted < self._context:
            return
        message = (
            f"Your input exceeds the context window of this model: {counted} tokens of at most {self._context - 1}."
            " Please adjust your input and try again."
        )
        raise reject("context_length_exceeded", message, param="input", limit=str(self._context))


def fitting(engines: EngineRegistry, request: Prepare, ready: Prepared) -> Fitting | None:
    """Returns what has to be counted before a request can be taken; None for a prompt that is taken as it is."""
    context = engines.context_length(ready.model)
    if context is None:
        return None
    around = (len(request.settings.instructions) + len(request.tools.data)) // _BYTES_PER_TOKEN
    history = request.history if ready.known is None else ready.known.transcript
    about = history.tokens + sum(entry.tokens for entry in ready.entries) + around
    engine = engines.engine(ready.model)
    if about * _FAR < context or not isinstance(engine, CountingEngine):
        return None
    transcript = history.extend(ready.entries, ready.open_calls, turns=ready.turns)
    prompt = Prompt(
        0, "", ready.model, request.settings, request.tools, transcript, transcript.turns, about, 0, request.visits
    )
    return Fitting(engine, prompt, context)
