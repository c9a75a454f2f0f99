"""The scripted engine: the engine port played from a scenario, a simulation in place of a model.

Above it: the runtime. Below it: the scenario, its scripts, their tokens and the ticker. It takes a prompt as a real
engine would and plays the turns as they are written: it looks neither at the tools declared nor at `tool_choice`. Of
the settings it obeys `max_output_tokens`. Token ids and log-probabilities are given to who asks, the latter made up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.profile import LOGPROBS
from turnwire.server.engine.scripted.pacing import Ticker
from turnwire.server.engine.scripted.script import CompiledTurn, Script, compile_turn, failed, make_call_id, plan
from turnwire.server.engine.scripted.tokens import dressed, recorded
from turnwire.server.session.transcript import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnwire.server.engine.port import Sink
    from turnwire.server.engine.scripted.pacing import Clock, PacedGeneration
    from turnwire.server.engine.scripted.turns import Scenario, Selection, Speed, SpeedChange
    from turnwire.server.session.prompt import Prompt
    from turnwire.server.session.transcript import Transcript


class ScriptedEngine:
    """Plays a scenario to whoever asks; the same prompt always gets the same chunks."""

    name = "scripted"

    def __init__(self, scenario: Scenario, *, speed: SpeedChange | None = None, clock: Clock | None = None) -> None:
        """Cuts all turns into tokens, so that starting a pass costs next to nothing.

        Args:
            scenario: What to play.
            speed: Set over the scenario's own speed and over that of every turn.
            clock: Where time comes from; by default the running event loop.
        """
        self._scenario = scenario
        self._compiled = [compile_turn(turn) for turn in scenario.turns]
        self._dressed: dict[tuple[int, bool, bool], CompiledTurn] = {}
        """Turns with ids or log-probabilities in their chunks, once somebody asked for them."""
        self._speeds = [scenario.speed.changed_by(turn.speed).changed_by(speed) for turn in scenario.turns]
        self._fallback_speed = scenario.speed.changed_by(speed)
        self.ticker = Ticker(clock)
        """What paces the passes."""
        self._closed = False

    @property
    def running(self) -> int:
        """How many passes are neither over nor aborted."""
        return self.ticker.running

    def models(self) -> Sequence[ModelInfo]:
        """Lists the models the scenario names."""
        return [ModelInfo(name, context_length=self._scenario.context_length) for name in self._scenario.models]

    def start(self, prompt: Prompt, sink: Sink) -> PacedGeneration:
        """Begins the turn that the scenario has for this prompt."""
        script, speed = self._script(prompt)
        return self.ticker.start(script, speed, sink)

    async def aclose(self) -> None:
        """Aborts what runs; passes started later fail. Safe to cancel, as it never waits."""
        self._closed = True
        self.ticker.abort_all()

    def _script(self, prompt: Prompt) -> tuple[Script, Speed]:
        if self._closed:
            return failed("server_error", "the scripted engine is closed"), self._fallback_speed
        scenario = self._scenario
        selection = scenario.select(prompt.turn, _newest_text(prompt.transcript) if scenario.reads_text else "")
        if selection is None:
            msg = f"the scripted engine has no turn for pass {prompt.turn + 1}: the scenario has ended"
            return failed("server_error", msg), self._fallback_speed
        settings = prompt.settings
        wanted = settings.token_output
        compiled = self._turn(selection.turn.index, ids=wanted.in_deltas, logprobs=LOGPROBS in settings.include)
        script = plan(
            compiled,
            self._call_ids(selection, prompt),
            input_tokens=prompt.input_tokens,
            cached_tokens=prompt.cached_tokens,
            max_output_tokens=settings.max_output_tokens if settings.HasField("max_output_tokens") else None,
        )
        if wanted.in_done:
            script = recorded(script, compiled, prompt, logprobs=wanted.logprobs)
        return script, self._speeds[selection.turn.index]

    def _turn(self, index: int, *, ids: bool, logprobs: bool) -> CompiledTurn:
        if not (ids or logprobs):
            return self._compiled[index]
        key = index, ids, logprobs
        if key not in self._dressed:
            self._dressed[key] = dressed(self._compiled[index], ids=ids, logprobs=logprobs)
        return self._dressed[key]

    def _call_ids(self, selection: Selection, prompt: Prompt) -> list[str]:
        ids: list[str] = []
        for index, call in enumerate(selection.turn.calls):
            if not call.call_id:
                ids.append(make_call_id(self._scenario.digest, prompt.response_id, prompt.turn, index))
            elif selection.may_repeat:
                ids.append(f"{call.call_id}_{prompt.turn}")
            else:
                ids.append(call.call_id)
        return ids


def _newest_text(transcript: Transcript) -> str:
    """Returns the text of the newest item, be it a warm-up's; "" where the model itself spoke last."""
    newest = next((segment.new[-1] for segment in transcript.segments() if segment.new), None)
    return "" if newest is None or newest.origin is Origin.MODEL else newest.text()
