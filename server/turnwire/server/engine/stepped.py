"""An engine driven by hand: whoever wrote the test says what each pass outputs, and when.

Above it: tests and the player of conformance transcripts. Below it: nothing. It keeps every prompt it was given and
everything it was told, so that a test can check both.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from turnwire.server.engine.port import ModelInfo
from turnwire.server.session.chunks import EngineFailure, Finish, FinishReason, PassUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnwire.server.engine.port import Sink
    from turnwire.server.session.chunks import Chunk
    from turnwire.server.session.prompt import Prompt


class SteppedPass:
    """One pass, and what happened to it."""

    def __init__(self, prompt: Prompt, sink: Sink, on_call: Callable[[], None]) -> None:
        self.prompt = prompt
        self.calls: list[str] = []
        """Every `pause`, `resume` and `abort`, in order, repeats included."""
        self.paused = False
        self.aborted = False
        self.ended = False
        self._sink = sink
        self._on_call = on_call

    def pause(self) -> None:
        """Notes the pause; output stays in the hands of the test."""
        self.calls.append("pause")
        self.paused = True
        self._on_call()

    def resume(self) -> None:
        """Notes that output may flow again."""
        self.calls.append("resume")
        self.paused = False
        self._on_call()

    def abort(self) -> None:
        """Notes the abort; from now on the pass can output nothing."""
        self.calls.append("abort")
        self.aborted = True
        self._on_call()

    def emit(self, chunks: Sequence[Chunk]) -> None:
        """Outputs chunks at once.

        Raises:
            RuntimeError: The pass is over or was aborted, so a real engine could not.
        """
        self._check()
        self._sink.output(chunks)

    def end(self, outcome: Finish | EngineFailure) -> None:
        """Ends the pass.

        Raises:
            RuntimeError: The pass is over or was aborted, so a real engine could not.
        """
        self._check()
        self.ended = True
        self._sink.ended(outcome)

    def _check(self) -> None:
        if self.ended or self.aborted:
            how = "aborted" if self.aborted else "over"
            msg = f"pass {self.prompt.pass_id} of {self.prompt.response_id} is {how}: nothing can be output any more"
            raise RuntimeError(msg)


class StepEngine:
    """An engine whose passes wait for `emit`, `finish` or `fail`."""

    name = "stepped"

    def __init__(self, models: Sequence[ModelInfo] = (ModelInfo("stepped"),)) -> None:
        self._models = tuple(models)
        self._changed = asyncio.Event()
        self.passes: list[SteppedPass] = []
        """Every pass, in the order of their start."""
        self.closed = False

    def models(self) -> Sequence[ModelInfo]:
        """Lists the models given to the constructor."""
        return self._models

    def start(self, prompt: Prompt, sink: Sink) -> SteppedPass:
        """Begins a pass that outputs nothing by itself."""
        started = SteppedPass(prompt, sink, self._notify)
        self.passes.append(started)
        self._notify()
        return started

    async def aclose(self) -> None:
        """Aborts every pass that is not over. Safe to cancel, as it never waits."""
        self.closed = True
        for each in self.passes:
            if not (each.ended or each.aborted):
                each.abort()

    def find(self, which: int | str) -> SteppedPass:
        """Returns a pass by its place in the order of starts, or the newest pass of a response id.

        Raises:
            LookupError: There is no such pass (yet).
        """
        if isinstance(which, int):
            if which < len(self.passes):
                return self.passes[which]
        else:
            for each in reversed(self.passes):
                if each.prompt.response_id == which:
                    return each
        msg = f"no pass {which!r} among the {len(self.passes)} started: wait with `started` first"
        raise LookupError(msg)

    def emit(self, which: int | str, chunks: Sequence[Chunk]) -> None:
        """Outputs chunks of a pass (see `find`) at once."""
        self.find(which).emit(chunks)

    def finish(
        self,
        which: int | str,
        reason: FinishReason = FinishReason.STOP,
        usage: PassUsage = PassUsage(),  # noqa: B008
    ) -> None:
        """Ends a pass (see `find`) as a model does."""
        self.find(which).end(Finish(reason, usage))

    def fail(
        self,
        which: int | str,
        code: str = "server_error",
        message: str = "the engine failed as told",
        retry_after: float | None = None,
    ) -> None:
        """Ends a pass (see `find`) as an engine in trouble does."""
        self.find(which).end(EngineFailure(code, message, retry_after))

    async def started(self, count: int) -> list[SteppedPass]:
        """Waits until `count` passes have started in all and returns them. Safe to cancel."""
        await self._until(lambda: len(self.passes) >= count)
        return self.passes[:count]

    async def told(self, which: int | str, call: Literal["pause", "resume", "abort"], times: int = 1) -> None:
        """Waits until a pass (see `find`) was told something so many times. Safe to cancel."""
        asked = self.find(which)
        await self._until(lambda: asked.calls.count(call) >= times)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            changed = self._changed
            await changed.wait()

    def _notify(self) -> None:
        # Everyone who waits holds the old event; whoever comes next waits for the next change.
        self._changed.set()
        self._changed = asyncio.Event()
