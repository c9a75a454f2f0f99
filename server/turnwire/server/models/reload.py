"""Reads the registry file again while the server runs, and puts what it says in place of what was served.

Above it: the wiring of a server, which hands it the signal. Below it: `registry_file` and `opening`. All that is asked
for is opened before anything changes, and everything changes at once; what runs on engines that are not asked for any
more goes on, and they are closed after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from turnwire.server.engine.leased import LeasedEngine
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.engine.scripted.scenario import ScenarioError
from turnwire.server.models.opening import (
    EngineObserver,
    EngineOpenError,
    MissingExtraError,
    Opened,
    open_registry,
)
from turnwire.server.models.registry_file import RegistryError, load_registry
from turnwire.server.models.specs import Registry
from turnwire.server.routing.pool import Routing

_log: Final = logging.getLogger(__name__)

APPLIED: Final = "applied"
"""The outcome of a reload after which the file is what is served."""
REFUSED: Final = "refused"
"""The outcome of a reload that changed nothing."""


class Models:
    """The engines of a server, and what replaces them."""

    def __init__(
        self,
        engines: EngineRegistry,
        opened: Sequence[Opened],
        path: Path | None,
        environ: Mapping[str, str],
        observer: EngineObserver,
        routing: Routing,
        on_reload: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Takes what is served.

        Args:
            engines: Who resolves names of models; is told of the engines here.
            opened: The engines, which are closed with this one.
            path: The registry file; None where engines come from elsewhere, and nothing can be read again.
            environ: Where the keys of upstreams are.
            observer: Hears what engines do.
            routing: What all pools of upstreams have in common.
            on_reload: Hears the outcome of each reload, `APPLIED` or `REFUSED`.
        """
        self.engines: Final = engines
        """Who resolves names of models."""
        self._opened = tuple(opened)
        self._path = path
        self._environ = environ
        self._observer = observer
        self._routing = routing
        self._on_reload = on_reload
        self._asked = False
        self._reloading: asyncio.Task[None] | None = None
        self._retiring: dict[asyncio.Task[None], LeasedEngine] = {}
        self._closed = False
        engines.replace([each.engine for each in opened])

    @property
    def retiring(self) -> int:
        """How many engines are not asked for any more and still at work."""
        return len(self._retiring)

    def request(self) -> None:
        """Reads the file again soon; asked again meanwhile, once more after that. For handlers of signals."""
        self._asked = True
        if self._reloading is None and not self._closed:
            self._reloading = asyncio.get_running_loop().create_task(self._serve())

    async def reload(self) -> str:
        """Reads the file and serves what it says; returns the outcome, which the log explains.

        Cancelling it before anything has changed changes nothing.
        """
        outcome = REFUSED
        try:
            outcome = await self._reload()
        except RegistryError as error:
            for problem in error.problems:
                _log.error("%s", problem)
        except (EngineOpenError, MissingExtraError, ScenarioError, OSError) as error:
            for line in str(error).splitlines():
                _log.error("%s", line)
        except Exception:
            _log.exception("the registry file %s cannot be used", self._path)
        if outcome == REFUSED:
            _log.error("%s was not put into use: what was served before is served still", self._path)
        self._on_reload(outcome)
        return outcome

    async def aclose(self) -> None:
        """Closes all engines, those that are at work still too. Cancelling it may leave some open."""
        self._closed = True
        tasks = [*self._retiring] if self._reloading is None else [*self._retiring, self._reloading]
        left = list(self._retiring.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(each.aclose() for each in (*left, *(opened.leased for opened in self._opened))))

    async def _serve(self) -> None:
        try:
            while self._asked:
                self._asked = False
                await self.reload()
        finally:
            self._reloading = None

    async def _reload(self) -> str:
        assert self._path is not None
        registry = await asyncio.to_thread(load_registry, self._path, self._environ)
        opened = await open_registry(registry, self._environ, self._observer, self._routing, self._opened)
        before, self._opened = self._opened, tuple(opened)
        self.engines.replace([each.engine for each in opened])
        kept = {each.leased for each in opened}
        gone = [each.leased for each in before if each.leased not in kept]
        fresh = kept - {each.leased for each in before}
        for leased in gone:
            self._retire(leased)
        _log.info(
            "%s was read again: %d engines as before, %d new, %d closed when idle; %s",
            self._path,
            len(kept) - len(fresh),
            len(fresh),
            len(gone),
            _models_of(registry, self.engines),
        )
        return APPLIED

    def _retire(self, leased: LeasedEngine) -> None:
        task = asyncio.get_running_loop().create_task(leased.retire())
        self._retiring[task] = leased
        task.add_done_callback(self._retired)

    def _retired(self, task: asyncio.Task[None]) -> None:
        del self._retiring[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an engine could not be closed", exc_info=error)


def _models_of(registry: Registry, engines: EngineRegistry) -> str:
    """Returns the names of what is served, as far as a line has room for them."""
    names = [info.id for info, _ in engines.models()] or [model.id for model in registry.models]
    shown = ", ".join(names[:10])
    return f"models: {shown}{', …' if len(names) > 10 else ''}"
