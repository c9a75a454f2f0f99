"""Registry files: engines by name, and the models they serve, read from TOML and checked as a whole.

Above it: the settings of a server. Below it: `keys`, which reads engines, and the tables of TOML files. The format is
described in `docs/engines.md`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from turnwire.server import values
from turnwire.server.engine.profile import PARAMETERS, PLAIN, Capabilities, ModelProfile, Price, unsupported_in
from turnwire.server.media.rule import TILES, ImageRule, Kind
from turnwire.server.models.keys import KEYS, Reader, finite, read_engine, read_kind
from turnwire.server.models.specs import EngineSpec, ModelSpec, Registry
from turnwire.server.policy.schemas import Schemas
from turnwire.server.policy.settings_checks import check_settings
from turnwire.server.toml.tables import FileError, Table, read_text, read_top
from turnwire.v1.errors import RequestError
from turnwire.v1.response_pb2 import ResponseCreate

_NAME: Final = re.compile(r"\S{1,256}")
_TOKENS: Final = 2**31 - 1
_MAX_PATCHES: Final = 1_000_000
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_DEFAULTS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_output_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "seed": "seed",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
"""Keys of `defaults`, with the paths of the settings."""


class RegistryError(FileError):
    """A registry file cannot be used; its text has one line per mistake."""


def load_registry(source: Path | str, environ: Mapping[str, str], origin: str | None = None) -> Registry:
    """Reads and checks a registry.

    Args:
        source: A path to read, or the TOML text itself.
        environ: Where the keys of upstreams are.
        origin: What messages call the source; by default the path, or `<models>` for a text.

    Raises:
        RegistryError: It cannot be used; names every mistake with its line and key.
    """
    folder = Path()
    if isinstance(source, Path):
        folder, origin = source.parent, origin or str(source)
        source = read_text(source, RegistryError)
    top = read_top(source, origin or "<models>", RegistryError)
    registry = _Reader(folder, environ).read(top)
    top.report.raise_if_any()
    return registry


class _Reader:
    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ
        self._names: dict[str, str] = {}
        """What each name of a model stands for, aliases too."""

    def read(self, top: Table) -> Registry:
        tables = top.named_tables("engines")
        if "engines" not in top:
            top.problem("engines", "missing: a registry needs at least one [engines.NAME]")
        engines = {name: self._engine(name, table) for name, table in tables.items()}
        models = [self._model(name, table, engines) for name, table in top.named_tables("models").items()]
        top.refuse_unknown_keys()
        return Registry(tuple(engines.values()), tuple(models))

    def _engine(self, name: str, table: Table) -> EngineSpec:
        kind = table.read("kind", read_kind)
        if "kind" not in table:
            table.problem("kind", 'missing: expected a kind of engine, such as "openai"')

        def take(key: str, make: Callable[[Path], Reader]) -> Any:
            return table.read(key, make(self._folder))

        if kind is None:
            for key, rule in KEYS.items():
                take(key, rule.make)
            engine = EngineSpec(name=name)
        else:
            engine = read_engine(kind, name, take, table.problem, self._environ)
        table.refuse_unknown_keys()
        return engine

    def _model(self, name: str, table: Table, engines: Mapping[str, EngineSpec]) -> ModelSpec:
        engine = self._engine_of(table, engines)
        kind = engine.kind if engine else ""
        if not _NAME.fullmatch(name):
            table.report.add(table.path, "expected a name of 1 to 256 characters without blanks")
        file = table.read("file", values.file(self._folder))
        if file is not None and kind not in ("", "local"):
            table.problem("file", f"is not for models of the engine {kind}, but of local")
        upstream_name = table.read("upstream_name", values.read_text) or ""
        if upstream_name and kind in ("scripted", "local"):
            table.problem("upstream_name", f"is not for models of the engine {kind}, which has no upstream")
        model = ModelSpec(
            id=name,
            engine=engine.name if engine else "",
            upstream_name=upstream_name,
            file=file,
            aliases=tuple(table.strings("aliases")),
            owned_by=table.read("owned_by", values.read_text) or "turnwire",
            profile=self._profile(table),
        )
        self._claim(name, name, table)
        for alias in model.aliases:
            self._claim(alias, name, table, "aliases")
        table.refuse_unknown_keys()
        return model

    def _engine_of(self, table: Table, engines: Mapping[str, EngineSpec]) -> EngineSpec | None:
        named = table.read("engine", values.read_text)
        if "engine" not in table:
            if len(engines) == 1:
                return next(iter(engines.values()))
            table.problem("engine", "missing: there are several engines; say which one serves this model")
        elif named is not None and named not in engines:
            table.problem("engine", f"there is no [engines.{named}]; {values.near(named, tuple(engines))}")
        return engines.get(named or "")

    def _claim(self, name: str, model: str, table: Table, *key: str) -> None:
        other = self._names.setdefault(name, model)
        # Its own id is the first name that a model claims.
        if other != model or (key and name == model):
            table.report.add((*table.path, *key), f"the name '{name}' is already that of the model '{other}'")

    def _profile(self, table: Table) -> ModelProfile:
        context = table.integer("context_length", low=1, high=_TOKENS)
        most = table.integer("max_output_tokens", low=1, high=_TOKENS)
        if context is not None and most is not None and most > context:
            table.problem("max_output_tokens", f"expected at most context_length, {context}, found {most}")
        policy = table.choice("on_unsupported", {"refuse": False, "ignore": True})
        profile = ModelProfile(
            context_length=context,
            max_output_tokens=most,
            defaults=_defaults(table.table("defaults")),
            capabilities=_capabilities(table.table("capabilities")),
            unsupported=table.read("unsupported", values.read_names(PARAMETERS)) or frozenset(),
            ignores=bool(policy),
            price=_price(table.table("price")),
            image_rule=_image_rule(table.table("images")),
        )
        _check_defaults(profile, table)
        return PLAIN if profile == PLAIN else profile


def _capabilities(table: Table | None) -> Capabilities:
    if table is None:
        return Capabilities()
    told = {field.name: table.boolean(field.name) for field in dataclasses.fields(Capabilities)}
    table.refuse_unknown_keys()
    return Capabilities(**{name: value for name, value in told.items() if value is not None})


def _image_rule(table: Table | None) -> ImageRule:
    if table is None:
        return TILES
    kinds: dict[str, Kind] = {"tile": "tile", "patch": "patch"}
    kind = table.choice("rule", kinds) or "tile"
    told: dict[str, Any] = {
        "base": table.integer("base", low=0, high=_TOKENS),
        "tile": table.integer("tile", low=0, high=_TOKENS),
        "budget": table.integer("budget", low=1, high=_MAX_PATCHES),
        "multiplier": table.read("multiplier", finite),
    }
    for key in ("budget", "multiplier") if kind == "tile" else ("base", "tile"):
        if key in table:
            table.problem(key, f"is not for the rule {kind}")
    table.refuse_unknown_keys()
    return ImageRule(kind, **{key: value for key, value in told.items() if value is not None})


def _price(table: Table | None) -> Price | None:
    if table is None:
        return None
    told = {key: table.read(key, finite) for key in ("input", "cached", "output")}
    currency = table.read("currency", _currency)
    if "input" not in table:
        table.problem("input", "missing: expected the price of a million tokens")
    table.refuse_unknown_keys()
    # Where nothing is said of cached tokens, they cost what others do.
    of_input = told["input"] or 0.0
    cached, output = told["cached"], told["output"]
    return Price(of_input, of_input if cached is None else cached, output or 0.0, currency or "USD")


def _currency(value: object) -> str:
    if isinstance(value, str) and _CURRENCY.fullmatch(value):
        return value
    msg = f'expected a currency of three letters, such as "USD", found {values.describe(value)}'
    raise ValueError(msg)


def _defaults(table: Table | None) -> ResponseCreate:
    settings = ResponseCreate()
    if table is None:
        return settings
    schemas = Schemas()
    for key, path in _DEFAULTS.items():
        value = table.value(key)
        if value is None:
            continue
        outer, _, name = path.rpartition(".")
        try:
            setattr(getattr(settings, outer) if outer else settings, name, cast("Any", value))
            check_settings(settings, schemas)
        except (TypeError, ValueError):
            table.problem(key, f"no setting has such a value: found {values.describe(value)}")
        except RequestError as refusal:
            table.problem(key, refusal.error.message)
            settings.ClearField(cast("Any", outer or name))
    table.refuse_unknown_keys()
    return settings


def _check_defaults(profile: ModelProfile, table: Table) -> None:
    """Refuses defaults that the same profile refuses to clients."""
    settings = profile.defaults
    keys = {path: key for key, path in _DEFAULTS.items()}
    for path in unsupported_in(settings, tools=False, profile=profile):
        table.report.add((*table.path, "defaults", keys[path]), "this model does not take it, as said here")
    most = profile.max_output_tokens
    if most is not None and settings.max_output_tokens > most:
        message = f"expected at most max_output_tokens, {most}, found {settings.max_output_tokens}"
        table.report.add((*table.path, "defaults", "max_output_tokens"), message)
