"""Opens the engines of a registry: imports what each needs, connects, and puts the models' profiles on top.

Above it: the wiring of a server. Below it: one function per kind of engine. Nothing of an engine is imported before it
is used, so that each kind needs only its own packages.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from turnwire.server.engine.port import Engine, ModelInfo
from turnwire.server.engine.profile import PLAIN
from turnwire.server.engine.profiled import ProfiledEngine
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.scenario import load_scenario, packaged_scenario
from turnwire.server.engine.spread import SpreadEngine
from turnwire.server.models.specs import TOKEN_ENGINES, EngineSpec, ModelSpec, Registry

if TYPE_CHECKING:
    from turnwire.server.engine.tokens.passes import CacheReport
    from turnwire.server.engine.tokens.rendering import RenderStats

_NEEDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "vllm-grpc": ("vllm", ("smg_grpc_proto",)),
    "sglang-grpc": ("sglang", ("smg_grpc_proto",)),
    "local": ("local", ("xllamacpp",)),
}
"""The extra that each kind of engine needs, and the modules that it brings."""
_TEMPLATE: Final[tuple[str, tuple[str, ...]]] = ("template", ("tokenizers", "jinja2"))


class EngineObserver(Protocol):
    """Hears what engines do, for metrics."""

    def rendered(self, stats: RenderStats, /) -> None:
        """A prompt was put into tokens."""

    def cached(self, report: CacheReport, /) -> None:
        """A pass told what the engine's prefix cache gave."""


class _Deaf:
    def rendered(self, stats: RenderStats, /) -> None:
        pass

    def cached(self, report: CacheReport, /) -> None:
        pass


class MissingExtraError(Exception):
    """Packages are not installed; the text names what to install."""


class EngineOpenError(Exception):
    """An engine cannot be used as it was configured; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class Opening:
    """An engine on its way."""

    spec: EngineSpec
    models: tuple[ModelSpec, ...]
    """Those of the registry that it serves."""
    environ: Mapping[str, str]
    """Where the keys of upstreams are."""
    observer: EngineObserver

    @property
    def key(self) -> str:
        """The upstream's API key; empty for none."""
        variable = self.spec.upstream_key_env
        return self.environ.get(variable, "").strip() if variable else ""


async def open_engines(
    registry: Registry, environ: Mapping[str, str] = os.environ, observer: EngineObserver | None = None
) -> list[Engine]:
    """Opens all engines; on trouble with one, those open already are closed. Safe to cancel.

    Raises:
        MissingExtraError: An engine's packages are not installed.
        EngineOpenError: An engine cannot be reached, or does not fit its configuration.
        turnwire.server.engine.scripted.scenario.ScenarioError: A scenario cannot be played.
    """
    for spec in registry.engines:
        _check_packages(spec)
    hears = observer or _Deaf()
    return await open_all(_open(Opening(spec, registry.of(spec), environ, hears)) for spec in registry.engines)


async def open_all(starting: Iterable[Awaitable[Engine]]) -> list[Engine]:
    """Opens engines one by one; if one of them cannot be, those before it are closed. Safe to cancel."""
    opened: list[Engine] = []
    async with AsyncExitStack() as stack:
        for start in starting:
            engine = await start
            stack.push_async_callback(engine.aclose)
            opened.append(engine)
        stack.pop_all()
    return opened


def _check_packages(spec: EngineSpec) -> None:
    needed: list[tuple[str, tuple[str, ...]]] = []
    if spec.kind in _NEEDS:
        needed.append(_NEEDS[spec.kind])
    if renders_by_template(spec):
        needed.append(_TEMPLATE)
    missing = [
        (module, extra) for extra, modules in needed for module in modules if importlib.util.find_spec(module) is None
    ]
    if missing:
        extras = ",".join(dict.fromkeys(extra for _, extra in missing))
        modules = ", ".join(module for module, _ in missing)
        msg = f"the engine {spec.kind} needs {modules}: pip install 'turnwire[server,{extras}]'"
        raise MissingExtraError(msg)


def renders_by_template(spec: EngineSpec) -> bool:
    """Whether an engine's prompts are made by a chat template."""
    return spec.kind in TOKEN_ENGINES and spec.renderer != "harmony"


async def _open(opening: Opening) -> Engine:
    spec, models = opening.spec, opening.models
    engine = await _OPENERS[spec.kind](opening)
    if not models or all(model.profile is PLAIN and not model.aliases for model in models):
        return engine
    infos = [
        ModelInfo(model.id, model.owned_by, model.profile.context_length, model.aliases, model.profile)
        for model in models
    ]
    return ProfiledEngine(engine, infos, counts=spec.kind in (*TOKEN_ENGINES, "local"))


async def _scripted(opening: Opening) -> Engine:
    spec = opening.spec
    scenario = load_scenario(spec.scenario) if spec.scenario else packaged_scenario()
    return ScriptedEngine(scenario, speed=spec.speed)


async def _openai(opening: Opening) -> Engine:
    from turnwire.server.models.chat import open_chat

    engines = await open_all(open_chat(opening, upstream) for upstream in opening.spec.upstream)
    return engines[0] if len(engines) == 1 else SpreadEngine(engines)


async def _tokens(opening: Opening) -> Engine:
    from turnwire.server.models.tokens import open_tokens

    return await open_tokens(opening)


async def _local(opening: Opening) -> Engine:
    from turnwire.server.models.local import open_local

    return await open_local(opening)


_OPENERS: Final[Mapping[str, Callable[[Opening], Awaitable[Engine]]]] = {
    "scripted": _scripted,
    "openai": _openai,
    "vllm": _tokens,
    "vllm-grpc": _tokens,
    "sglang-grpc": _tokens,
    "local": _local,
}
