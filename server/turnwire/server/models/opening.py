"""Opens the engines of a registry: imports what each needs, connects, and puts the models' profiles on top.

Above it: the wiring of a server. Below it: one function per kind of engine. Nothing of an engine is imported before it
is used, so that each kind needs only its own packages.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from turnwire.server.engine.chat.flavours import FLAVOURS
from turnwire.server.engine.leased import LeasedEngine
from turnwire.server.engine.port import Engine, ModelInfo
from turnwire.server.engine.profile import PLAIN, TEXTS, Takes
from turnwire.server.engine.profiled import ProfiledEngine
from turnwire.server.engine.scripted.engine import ScriptedEngine
from turnwire.server.engine.scripted.scenario import load_scenario, packaged_scenario
from turnwire.server.engine.spread import SpreadEngine
from turnwire.server.models.specs import TOKEN_ENGINES, EngineSpec, ModelSpec, Registry
from turnwire.server.routing.pool import Pool, Routing

if TYPE_CHECKING:
    from turnwire.server.engine.tokens.passes import CacheReport
    from turnwire.server.engine.tokens.rendering import RenderStats

E = TypeVar("E")
_Stamp = tuple[str, int, int]
"""A file with its size and the time when it was changed."""

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
    routing: Routing
    """What all pools of upstreams have in common."""
    pools: list[Pool[Any]] = field(default_factory=list[Pool[Any]])
    """Those of this engine."""

    @property
    def key(self) -> str:
        """The upstream's API key; empty for none."""
        variable = self.spec.upstream_key_env
        return self.environ.get(variable, "").strip() if variable else ""

    def pool(self, engines: Sequence[E]) -> Pool[E]:
        """Returns the pool of the engines, one for each upstream in order."""
        upstreams = self.spec.upstream
        pool = Pool(
            [(each.address, engine, each.weight) for each, engine in zip(upstreams, engines, strict=True)],
            self.spec.routing,
            self.routing,
        )
        self.pools.append(pool)
        return pool


@dataclass(frozen=True, slots=True)
class Opened:
    """An engine in use."""

    spec: EngineSpec
    """What it was opened by."""
    models: tuple[ModelSpec, ...]
    key: str = field(repr=False)
    """The API key it uses."""
    leased: LeasedEngine
    engine: Engine
    """The same one with the profiles of its models on top."""
    stamps: tuple[_Stamp, ...]
    """Of the files that it was opened by, which may be others under the same names later."""
    pools: tuple[Pool[Any], ...] = ()

    def serves(self, opening: Opening) -> bool:
        """Whether it can go on for what is asked for: all but weights, profiles, aliases and owners is the same."""
        return (
            _opens(self.spec, self.models) == _opens(opening.spec, opening.models)
            and self.key == opening.key
            and self.stamps == _stamps(opening)
        )

    def going_on(self, spec: EngineSpec, models: tuple[ModelSpec, ...]) -> Opened:
        """Returns the engine as it serves what it is asked for from now on. Weights are changed at once."""
        for pool in self.pools:
            pool.reweigh([(each.address, each.weight) for each in spec.upstream])
        return replace(self, spec=spec, models=models, engine=_profiled(self.leased, spec, models))


def _opens(spec: EngineSpec, models: Sequence[ModelSpec]) -> object:
    """Returns what an engine is opened by."""
    upstream = tuple(replace(each, weight=1.0) for each in spec.upstream)
    profiles = [(m.id, m.upstream_name, m.profile.context_length, m.profile.capabilities.images) for m in models]
    return replace(spec, upstream=upstream), profiles


def _stamps(opening: Opening) -> tuple[_Stamp, ...]:
    """Returns what tells whether files are still the same."""
    spec = opening.spec
    paths = [path for path in (spec.scenario, *(model.file for model in opening.models)) if path is not None]
    if spec.kind == "local":
        paths += map(Path, spec.models)
    if spec.tokenizer is not None:
        paths += sorted(path for path in spec.tokenizer.iterdir() if path.is_file())
    told = ((path, path.stat()) for path in paths if path.exists())
    return tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in told)


async def open_engines(
    registry: Registry, environ: Mapping[str, str] = os.environ, observer: EngineObserver | None = None
) -> list[Engine]:
    """Opens all engines; on trouble with one, those open already are closed. Safe to cancel.

    Raises:
        MissingExtraError: An engine's packages are not installed.
        EngineOpenError: An engine cannot be reached, or does not fit its configuration.
        turnwire.server.engine.scripted.scenario.ScenarioError: A scenario cannot be played.
    """
    return [opened.engine for opened in await open_registry(registry, environ, observer)]


async def open_registry(
    registry: Registry,
    environ: Mapping[str, str] = os.environ,
    observer: EngineObserver | None = None,
    routing: Routing | None = None,
    known: Sequence[Opened] = (),
) -> list[Opened]:
    """Opens all engines but those that are known and the same; see `open_engines`.

    Nothing about what is known is changed before all else is open; on trouble, nothing is.

    Args:
        registry: What is asked for.
        environ: Where the keys of upstreams are.
        observer: Hears what engines do.
        routing: What all pools of upstreams have in common.
        known: Engines in use that may go on.
    """
    for spec in registry.engines:
        _check_packages(spec)
    routing = routing or Routing()
    hears = observer or _Deaf()
    openings = [Opening(spec, registry.of(spec), environ, hears, routing) for spec in registry.engines]
    kept = [next((old for old in known if old.serves(opening)), None) for opening in openings]
    # Before they are read: what changes meanwhile is found changed the next time.
    before = [_stamps(opening) for opening in openings]
    opened = iter(await open_all(_open(opening) for opening, old in zip(openings, kept, strict=True) if old is None))
    found: list[Opened] = []
    for opening, old in zip(openings, kept, strict=True):
        spec, models = opening.spec, opening.models
        if old is not None:
            found.append(old.going_on(spec, models))
            continue
        stamps = before[len(found)]
        leased = LeasedEngine(next(opened))
        engine = _profiled(leased, spec, models)
        found.append(Opened(spec, models, opening.key, leased, engine, stamps, tuple(opening.pools)))
    return found


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
    return await _OPENERS[opening.spec.kind](opening)


def _profiled(engine: Engine, spec: EngineSpec, models: Sequence[ModelSpec]) -> Engine:
    if not models or all(model.profile is PLAIN and not model.aliases for model in models):
        return engine
    tokens = spec.kind in (*TOKEN_ENGINES, "local")
    takes = TEXTS if tokens else Takes(files=spec.kind != "openai" or FLAVOURS[spec.flavour].files)
    infos = [
        ModelInfo(model.id, model.owned_by, model.profile.context_length, model.aliases, model.profile, takes)
        for model in models
    ]
    return ProfiledEngine(engine, infos, counts=tokens)


async def _scripted(opening: Opening) -> Engine:
    spec = opening.spec
    scenario = load_scenario(spec.scenario) if spec.scenario else packaged_scenario()
    return ScriptedEngine(scenario, speed=spec.speed)


async def _openai(opening: Opening) -> Engine:
    from turnwire.server.models.chat import open_chat

    engines = await open_all(open_chat(opening, upstream) for upstream in opening.spec.upstream)
    return SpreadEngine(opening.pool(engines), opening.routing.revision)


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
