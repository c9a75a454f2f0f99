"""Which engine serves which model."""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.server.engine.port import Engine, ModelInfo
from turnwire.server.engine.profile import PLAIN, ModelProfile
from turnwire.v1.errors import reject
from turnwire.v1.json.refusal import shown


class EngineRegistry:
    """Resolves model names to engines."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        """Takes the engines; where two serve a name, the first wins."""
        self.engines = tuple(engines)

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
        found = self._info(model)
        if found is None:
            aliased = (info for engine in self.engines for info in engine.models() if model in info.aliases)
            found = next(aliased, None)
        if found is not None:
            return found.id
        name = shown(model)
        raise reject("model_not_found", f"The requested model '{name}' does not exist.", param="model", model=name)

    def profile(self, model: str) -> ModelProfile:
        """Returns the profile of a resolved model; an empty one when it is served no more."""
        found = self._info(model)
        return PLAIN if found is None else found.profile

    def context_length(self, model: str) -> int | None:
        """Returns the tokens of prompt and output together of a resolved model; None where nobody says."""
        found = self._info(model)
        return None if found is None else found.context_length

    def engine(self, model: str) -> Engine | None:
        """Returns the engine of a resolved model; None when it is served no more."""
        for engine in self.engines:
            if any(info.id == model for info in engine.models()):
                return engine
        return None

    def _info(self, model: str) -> ModelInfo | None:
        for engine in self.engines:
            for info in engine.models():
                if info.id == model:
                    return info
        return None
