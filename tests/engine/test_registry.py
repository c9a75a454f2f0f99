"""What a model's name stands for is found out once, until something changes."""

from __future__ import annotations

import pytest

from turnwire.server.engine.port import ModelInfo
from turnwire.server.engine.profile import ModelProfile
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.routing.revision import Revision
from turnwire.v1.errors import RequestError


class Changing(StepEngine):
    def become(self, *models: ModelInfo) -> None:
        self._models = models


def ask(registry: EngineRegistry, name: str) -> object:
    """Everything that a turn asks for."""
    model = registry.resolve(name)
    return model, registry.profile(model), registry.context_length(model), registry.engine(model)


def test_a_known_name_is_looked_for_once_and_the_answers_are_the_same_without_the_cache() -> None:
    engines = [StepEngine([ModelInfo(f"m{n}", aliases=(f"x{n}",), context_length=n) for n in range(50)])]
    cached, uncached = EngineRegistry(engines), EngineRegistry(engines, cached=False)
    for name in ("m40", "x40"):
        assert ask(cached, name) == ask(uncached, name)
    looked = cached.looked
    for _ in range(200):
        ask(cached, "m40")
        ask(cached, "x40")
    assert cached.looked == looked
    before = uncached.looked
    ask(uncached, "m40")
    assert uncached.looked == before + 4 * 41


def test_engines_that_are_replaced_answer_at_once() -> None:
    old, new = StepEngine([ModelInfo("m"), ModelInfo("gone")]), StepEngine([ModelInfo("m", context_length=7)])
    registry = EngineRegistry([old])
    assert registry.engine("m") is old
    assert registry.resolve("gone") == "gone"
    registry.replace([new])
    assert registry.engine("m") is new
    assert registry.context_length("m") == 7
    assert registry.engine("gone") is None
    with pytest.raises(RequestError, match="does not exist"):
        registry.resolve("gone")


def test_a_change_that_is_told_is_seen_by_all_that_share_the_revision() -> None:
    revision = Revision()
    engine = Changing([ModelInfo("m")])
    registry = EngineRegistry([engine], revision=revision)
    assert registry.profile("m") == ModelProfile()
    engine.become(ModelInfo("n"))
    revision.bump()
    assert registry.engine("m") is None
    assert registry.resolve("n") == "n"


def test_a_name_that_is_unknown_may_become_known_without_a_word() -> None:
    engine = Changing([])
    registry = EngineRegistry([engine])
    with pytest.raises(RequestError, match="does not exist"):
        registry.resolve("m")
    engine.become(ModelInfo("m"))
    assert registry.resolve("m") == "m"
