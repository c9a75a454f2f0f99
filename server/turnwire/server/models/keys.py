"""The settings of engines: how each is read, which kinds take it, and what a kind cannot do without.

Above it: the settings of a server and the registry file, which have the same keys in different places. Below it: the
readers of single values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from turnwire.server import values
from turnwire.server.engine.chat.flavours import FLAVOURS
from turnwire.server.engine.scripted.turns import SpeedChange
from turnwire.server.models.specs import ENGINES, TOKEN_ENGINES, EngineSpec
from turnwire.server.prompt.parsing import FORMATS

Reader = Callable[[object], Any]
Take = Callable[[str, Callable[[Path], Reader]], Any]
"""Returns the value of a key, given what makes its reader for a folder; None where it was not given or is wrong."""
Complain = Callable[[str, str], None]
"""Takes a key and what is wrong with it."""

RENDERERS: Final = ("harmony", "template")
_GRPC: Final = ("vllm-grpc", "sglang-grpc")
_HTTP: Final = ("openai", "vllm")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_COUNT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Key:
    """One setting."""

    make: Callable[[Path], Reader]
    """Makes its reader for the folder that paths are relative to."""
    kinds: tuple[str, ...]
    """The kinds of engines that take it."""
    option: bool = False
    """Whether it is one of `EngineSpec.options`, which only the registry file has."""


def _plain(read: Reader) -> Callable[[Path], Reader]:
    return lambda _: read


def _words(value: object) -> tuple[str, ...]:
    words = tuple(values.read_words(value))
    if not words:
        msg = "expected at least one"
        raise ValueError(msg)
    return words


def _variable(value: object) -> str:
    name = values.read_text(value)
    if _VARIABLE.fullmatch(name):
        return name
    msg = "expected the name of an environment variable, not the key itself"
    raise ValueError(msg)


def _folder(base: Path) -> Reader:
    def read(value: object) -> Path:
        path = base / Path(values.read_text(value)).expanduser()
        if (path / "tokenizer.json").is_file():
            return path
        msg = f"expected a folder with a tokenizer.json, found {path}"
        raise ValueError(msg)

    return read


def _body(value: object) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    msg = f"expected a table, found {values.describe(value)}"
    raise ValueError(msg)


_TIME: Final = _plain(values.duration(0.001, 86_400))

KEYS: Final[Mapping[str, Key]] = {
    "scenario": Key(values.file, ("scripted",)),
    "ttft": Key(_plain(values.duration(0, 3600)), ("scripted",)),
    "tokens_per_second": Key(_plain(values.rate), ("scripted",)),
    "burst": Key(_plain(values.integer(1, 2_000_000)), ("scripted",)),
    "upstream": Key(_plain(_words), (*_HTTP, *_GRPC)),
    "upstream_key_env": Key(_plain(_variable), _HTTP),
    "flavour": Key(_plain(values.one_of(tuple(FLAVOURS))), ("openai",)),
    "renderer": Key(_plain(values.one_of(RENDERERS)), TOKEN_ENGINES),
    "tokenizer": Key(_folder, TOKEN_ENGINES),
    "output_format": Key(_plain(values.one_of(FORMATS)), TOKEN_ENGINES),
    "start_timeout": Key(_TIME, TOKEN_ENGINES),
    "slots": Key(_plain(values.integer(1, 1024)), ("local",)),
    "context": Key(_plain(values.integer(256, _MAX_COUNT)), ("local",)),
    "threads": Key(_plain(values.integer(1, 1024)), ("local",)),
    "connect_timeout": Key(_TIME, ("openai",), option=True),
    "first_byte_timeout": Key(_TIME, ("openai",), option=True),
    "idle_timeout": Key(_TIME, ("openai",), option=True),
    "max_connections": Key(_plain(values.integer(1, 65_536)), ("openai",), option=True),
    "max_tokens_field": Key(_plain(values.read_text), ("openai",), option=True),
    "reasoning_field": Key(_plain(values.read_text), ("openai",), option=True),
    "merge_roles": Key(_plain(values.read_bool), ("openai",), option=True),
    "late_system_as_user": Key(_plain(values.read_bool), ("openai",), option=True),
    "ca_file": Key(values.file, ("openai",), option=True),
    "trust_env": Key(_plain(values.read_bool), ("openai",), option=True),
    "extra_body": Key(_plain(_body), ("openai",), option=True),
}
"""Everything that can be said of an engine, but for its kind."""

_SPEED: Final = ("ttft", "tokens_per_second", "burst")


def read_kind(value: object) -> str:
    """Reads the kind of an engine."""
    if value in ENGINES:
        return str(value)
    hint = values.near(value, ENGINES) if isinstance(value, str) else f"there are {', '.join(ENGINES)}"
    msg = f"there is no engine {values.describe(value)}; {hint}"
    raise ValueError(msg)


def read_engine(kind: str, name: str, take: Take, complain: Complain, environ: Mapping[str, str]) -> EngineSpec:
    """Reads and checks what was said of an engine.

    Args:
        kind: Its kind.
        name: Its name in the registry file.
        take: Finds and reads values.
        complain: Takes mistakes; the engine is then not to be used.
        environ: Where the key of an upstream is.
    """
    found: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for key, rule in KEYS.items():
        value = take(key, rule.make)
        if value is None:
            continue
        if kind not in rule.kinds:
            complain(key, f"is not for the engine {kind}, but for {', '.join(rule.kinds)}")
        elif rule.option:
            options[key] = value
        else:
            found[key] = value
    speed = SpeedChange(**{key: found.pop(key) for key in _SPEED if key in found})
    engine = EngineSpec(kind=kind, name=name, speed=speed, options=options, **found)
    _check_upstream(engine, complain, environ)
    _check_renderer(engine, complain)
    return engine


def _check_upstream(engine: EngineSpec, complain: Complain, environ: Mapping[str, str]) -> None:
    variable = engine.upstream_key_env
    if variable and not environ.get(variable, "").strip():
        complain("upstream_key_env", f"the environment has no variable {variable}, or an empty one")
    if engine.kind not in KEYS["upstream"].kinds:
        return
    example = "127.0.0.1:50051" if engine.kind in _GRPC else "http://127.0.0.1:8000/v1"
    if not engine.upstream:
        complain("upstream", f"the engine {engine.kind} needs an upstream, such as {example}")
    for address in engine.upstream:
        good = _is_target(address) if engine.kind in _GRPC else _is_url(address)
        if not good:
            complain("upstream", f"the engine {engine.kind} expects an address such as {example}, found '{address}'")


def _is_target(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    return address.startswith("unix:") or bool("://" not in address and host and colon and port.isdigit())


def _is_url(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.scheme in ("http", "https") and parts.hostname) and not (
        parts.username or parts.query or parts.fragment
    )


def _check_renderer(engine: EngineSpec, complain: Complain) -> None:
    if engine.renderer == "harmony":
        if engine.tokenizer is not None:
            complain("tokenizer", "harmony brings its own tokenizer; leave this out")
        if engine.output_format not in ("", "harmony"):
            complain("output_format", "models that are spoken to in harmony answer in harmony; leave this out")
    elif engine.kind == "vllm" and engine.tokenizer is None:
        # Its HTTP server does not give its tokenizer away; the others do.
        complain(
            "renderer",
            'the engine vllm needs renderer "harmony" for a gpt-oss model, or else a tokenizer: a folder with the'
            " model's tokenizer.json and chat template",
        )


def finite(value: object) -> float:
    """Reads a number of at least 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    msg = f"expected a number of at least 0, found {values.describe(value)}"
    raise ValueError(msg)
