"""Which engine serves which model, found out once per name until something changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turnwire.server.engine.port import Engine, ModelInfo
from turnwire.server.engine.profile import ALL, PLAIN, ModelProfile, Takes
from turnwire.server.routing.revision import Revision
from turnwire.server.session.visits import Visits
from turnwire.v1.errors import reject
from turnwire.v1.json.refusal import shown


@dataclass(frozen=True, slots=True)
class _Resolved:
    info: ModelInfo
    engine: Engine


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found out at one revision. Whoever looks something up keeps to one, so that nothing old gets into the
    next: requests are checked in threads too."""

    revision: int
    models: dict[str, _Resolved] = field(default_factory=dict[str, _Resolved])
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The ids of models by their names, aliases included."""


class EngineRegistry:
    """Resolves model names to engines. Look-ups may come from any thread, changes from the event loop's only."""

    def __init__(self, engines: Sequence[Engine], *, cached: bool = True, revision: Revision | None = None) -> None:
        """Takes the engines; where two serve a name, the first wins.

        Args:
            engines: The engines.
            cached: Whether what was found out is used again; else each look-up goes through all models.
            revision: Grows when engines serve other models than before, or fail.
        """
        self.engines = tuple(engines)
        self.looked = 0
        """Models looked at so far to resolve names: what a turn on a known model does not add to."""
        self.visits: Visits | None = None
        """Where that is noted too, once there is a place."""
        self._cached = cached
        self._revision = revision or Revision()
        self._found = _Found(self._revision.number)

    def replace(self, engines: Sequence[Engine]) -> None:
        """Serves by other engines from now on; those before are not closed, and what runs on them goes on."""
        self.engines = tuple(engines)
        self._revision.bump()

    def models(self) -> list[tuple[ModelInfo, Engine]]:
        """Lists the models with their engines, in order."""
        seen: dict[str, tuple[ModelInfo, Engine]] = {}
        for engine in self.engines:
            for model in engine.models():
                seen.setdefault(model.id, (model, engine))
        return list(seen.values())

    def resolve(self, model: str) -> str:
        """Returns the id of a model, given it or one of its aliases; ids win over aliases.

        Raises:
            RequestError: `model_not_found`, or `missing_required_parameter` for no name.
        """
        if not model:
            raise reject("missing_required_parameter", "Missing required parameter: 'model'.", param="model")
        found = self._current()
        known = found.names.get(model)
        if known is not None:
            return known
        resolved = self._resolved(model) or self._by_alias(model)
        if resolved is None:
            name = shown(model)
            raise reject("model_not_found", f"The requested model '{name}' does not exist.", param="model", model=name)
        if self._cached:
            found.names[model] = resolved.info.id
        return resolved.info.id

    def profile(self, model: str) -> ModelProfile:
        """Returns the profile of a resolved model; an empty one when it is served no more."""
        found = self._resolved(model)
        return PLAIN if found is None else found.info.profile

    def takes(self, model: str) -> Takes:
        """Returns what can be handed on to a resolved model beside texts."""
        found = self._resolved(model)
        return ALL if found is None else found.info.takes

    def context_length(self, model: str) -> int | None:
        """Returns the tokens of prompt and output together of a resolved model; None where nobody says."""
        found = self._resolved(model)
        return None if found is None else found.info.context_length

    def engine(self, model: str) -> Engine | None:
        """Returns the engine of a resolved model; None when it is served no more."""
        found = self._resolved(model)
        return None if found is None else found.engine

    def _current(self) -> _Found:
        found = self._found
        if found.revision != self._revision.number:
            found = self._found = _Found(self._revision.number)
        return found

    def _resolved(self, model: str) -> _Resolved | None:
        found = self._current()
        resolved = found.models.get(model)
        if resolved is None:
            resolved = self._by_id(model)
            if resolved is not None and self._cached:
                found.models[model] = resolved
        return resolved

    def _by_id(self, model: str) -> _Resolved | None:
        return self._search(lambda info: info.id == model)

    def _by_alias(self, model: str) -> _Resolved | None:
        return self._search(lambda info: model in info.aliases)

    def _search(self, wanted: Callable[[ModelInfo], bool]) -> _Resolved | None:
        looked = 0
        found: _Resolved | None = None
        for engine in self.engines:
            for info in engine.models():
                looked += 1
                if wanted(info):
                    found = _Resolved(info, engine)
                    break
            if found is not None:
                break
        self.looked += looked
        if self.visits is not None:
            self.visits.note("resolve", looked)
        return found
