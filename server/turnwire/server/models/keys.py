"""The settings of engines: how each is read, which kinds take it, and what a kind cannot do without.

Above it: the settings of a server and the registry file, which have the same keys in different places. Below it: the
readers of single values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from turnwire.server import values
from turnwire.server.engine.chat.flavours import FLAVOURS
from turnwire.server.engine.scripted.turns import SpeedChange
from turnwire.server.models.specs import ENGINES, TOKEN_ENGINES, EngineSpec, UpstreamSpec
from turnwire.server.prompt.parsing import FORMATS
from turnwire.server.routing.health import RoutingPolicy
from turnwire.server.routing.pool import MAX_WEIGHT

Reader = Callable[[object], Any]
Take = Callable[[str, Callable[[Path], Reader]], Any]
"""Returns the value of a key, given what makes its reader for a folder; None where it was not given or is wrong."""
Complain = Callable[[str, str], None]
"""Takes a key and what is wrong with it."""

RENDERERS: Final = ("harmony", "template")
_GRPC: Final = ("vllm-grpc", "sglang-grpc")
_HTTP: Final = ("openai", "vllm")
_REMOTE: Final = (*_HTTP, *_GRPC)
_HEADER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TAKEN: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "te",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "x-request-id",
    }
)
"""Headers that say something else already."""
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
    routing: bool = False
    """Whether it is one of `RoutingPolicy`, which only the registry file has."""


def _plain(read: Reader) -> Callable[[Path], Reader]:
    return lambda _: read


def _upstreams(value: object) -> tuple[UpstreamSpec, ...]:
    """Reads addresses, or tables with an address and more, one or several."""
    found: list[UpstreamSpec] = []
    several = isinstance(value, list)
    for index, each in enumerate(cast("list[object]", value) if several else [value]):
        if isinstance(each, dict):
            found.append(_upstream(cast("dict[str, object]", each), f"number {index + 1}: " if several else ""))
        elif isinstance(each, str):
            found += (UpstreamSpec(word) for word in values.read_words(each))
        else:
            msg = f"expected an address or a table with one, found {values.describe(each)}"
            raise ValueError(msg)
    if not found:
        msg = "expected at least one"
        raise ValueError(msg)
    addresses = [each.address for each in found]
    for address in addresses:
        if addresses.count(address) > 1:
            msg = f"{address} is named twice"
            raise ValueError(msg)
    if not any(each.weight for each in found):
        msg = "expected at least one with a weight of more than 0"
        raise ValueError(msg)
    return tuple(found)


def _upstream(table: dict[str, object], place: str) -> UpstreamSpec:
    """Reads one of several; `place` says which."""
    given: dict[str, Any] = {}
    for key, value in table.items():
        reader = _UPSTREAM.get(key)
        if reader is None:
            msg = f"{place}unknown key '{key}'; {values.near(key, tuple(_UPSTREAM))}"
            raise ValueError(msg)
        try:
            given[key] = reader(value)
        except ValueError as error:
            msg = f"{place}{key}: {error}"
            raise ValueError(msg) from error
    if "address" not in given:
        msg = f"{place}address: missing"
        raise ValueError(msg)
    return UpstreamSpec(**given)


def _weight(value: object) -> float:
    weight = finite(value)
    if weight <= MAX_WEIGHT:
        return weight
    msg = f"expected at most {MAX_WEIGHT:g}, found {weight:g}"
    raise ValueError(msg)


def _headers(value: object) -> tuple[str, ...]:
    """Reads names of headers; an empty array is none."""
    names = tuple(values.read_words(value))
    for name in names:
        if not _HEADER.fullmatch(name) or name.lower() in _TAKEN or name.lower().startswith("grpc-"):
            msg = f"expected names of headers such as x-session-id, found '{name}'"
            raise ValueError(msg)
    return names


_UPSTREAM: Final[Mapping[str, Reader]] = {
    "address": values.read_text,
    "weight": _weight,
    "routing_headers": _headers,
}
"""What can be said of one upstream."""


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
    "upstream": Key(_plain(_upstreams), _REMOTE),
    "routing_headers": Key(_plain(_headers), _REMOTE),
    "max_tries": Key(_plain(values.integer(1, 100)), _REMOTE, routing=True),
    "max_failures": Key(_plain(values.integer(1, 1_000_000)), _REMOTE, routing=True),
    "ejection_time": Key(_TIME, _REMOTE, routing=True),
    "max_ejection_time": Key(_TIME, _REMOTE, routing=True),
    "check_interval": Key(_plain(values.duration(0.1, 86_400)), _REMOTE, routing=True),
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
    routing: dict[str, Any] = {}
    for key, rule in KEYS.items():
        value = take(key, rule.make)
        if value is None:
            continue
        if kind not in rule.kinds:
            complain(key, f"is not for the engine {kind}, but for {', '.join(rule.kinds)}")
        elif rule.option:
            options[key] = value
        elif rule.routing:
            routing[key] = value
        else:
            found[key] = value
    speed = SpeedChange(**{key: found.pop(key) for key in _SPEED if key in found})
    headers: tuple[str, ...] | None = found.pop("routing_headers", None)
    if headers is not None:
        found["upstream"] = tuple(
            replace(each, routing_headers=headers) if each.routing_headers is None else each
            for each in found.get("upstream", ())
        )
    policy = RoutingPolicy(**routing)
    if policy.max_ejection_time < policy.ejection_time:
        complain(
            "max_ejection_time" if "max_ejection_time" in routing else "ejection_time",
            f"expected ejection_time, {policy.ejection_time:g} s, to be at most max_ejection_time,"
            f" {policy.max_ejection_time:g} s",
        )
    engine = EngineSpec(kind=kind, name=name, speed=speed, options=options, routing=policy, **found)
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
    for address in (each.address for each in engine.upstream):
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
