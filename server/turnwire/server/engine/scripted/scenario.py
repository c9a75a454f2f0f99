"""Scenario files: what the simulated model says turn by turn, and how fast; read from TOML and checked as a whole.

Above it: the engine and `turnwire scenario check`. Below it: `turns`, the values read, `filler`, and `toml`, which
words the mistakes. The format is described in `docs/scenarios.md`.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

from turnwire.server.engine.scripted.filler import filler
from turnwire.server.engine.scripted.turns import (
    UNLIMITED,
    Call,
    Failure,
    OnEnd,
    Scenario,
    Selection,
    Speed,
    SpeedChange,
    Turn,
)
from turnwire.server.session.chunks import CallKind, FinishReason
from turnwire.server.toml.positions import KeyPath, format_path
from turnwire.server.toml.tables import FileError, Problem, Table, describe, read_text, read_top

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Call",
    "Failure",
    "OnEnd",
    "Problem",
    "Scenario",
    "ScenarioError",
    "Selection",
    "Speed",
    "SpeedChange",
    "Turn",
    "load_scenario",
    "packaged_scenario",
]

_MAX_TOKENS = 2_000_000
_MAX_CHARACTERS = 10_000_000
_MAX_RATE = 1_000_000
_MAX_TTFT_MS = 3_600_000
_CODE = re.compile(r"[a-z][a-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class ScenarioError(FileError):
    """A scenario file cannot be played; its text has one line per mistake."""


def load_scenario(source: Path | str, origin: str | None = None) -> Scenario:
    """Reads and checks a scenario.

    Args:
        source: A path to read, or the TOML text itself.
        origin: What messages call the source; by default the path, or `<scenario>` for a text.

    Raises:
        ScenarioError: The file cannot be read or played; names every mistake with its line and key.
    """
    if isinstance(source, Path):
        origin = origin or str(source)
        source = read_text(source, ScenarioError)
    origin = origin or "<scenario>"
    top = read_top(source, origin, ScenarioError)
    digest = hashlib.sha256(source.encode()).hexdigest()
    scenario = _scenario(top, origin, digest)
    top.report.raise_if_any()
    return scenario


def packaged_scenario(name: str = "demo") -> Scenario:
    """Loads a scenario shipped with the engine: `demo` or `hello`.

    Raises:
        ScenarioError: There is no such scenario.
    """
    file = importlib.resources.files("turnwire.server.engine.scripted").joinpath("data", f"{name}.toml")
    origin = f"packaged scenario {name}"
    if not file.is_file():
        raise ScenarioError([Problem(origin, 0, "", 'there is no such scenario; there are "demo" and "hello"')])
    return load_scenario(file.read_text(encoding="utf-8"), origin)


def _scenario(top: Table, origin: str, digest: str) -> Scenario:
    on_end = top.choice("on_end", {option.value: option for option in OnEnd})
    models, context_length = _model(top.table("model"))
    speed = Speed().changed_by(_speed(top.table("speed")))
    tables = top.tables("turn")
    if "turn" not in top:
        top.problem("turn", "missing: a scenario needs at least one [[turn]]")
    turns = tuple(_turn(table, index) for index, table in enumerate(tables))
    _refuse_shared_call_ids(tables, turns)
    top.refuse_unknown_keys()
    return Scenario(origin, digest, models, context_length, speed, turns, on_end or OnEnd.LAST)


def _model(table: Table | None) -> tuple[tuple[str, ...], int | None]:
    if table is None:
        return ("scripted",), None
    name = table.string("name")
    names = table.strings("names")
    if "name" in table and "names" in table:
        table.problem("names", "expected either `name` or `names`, found both")
    models = names or ([] if name is None else [name])
    if "" in models or len(set(models)) < len(models):
        table.problem("names" if names else "name", "expected model names that are not empty and differ")
    context_length = table.integer("context_length", low=1, high=100_000_000)
    table.refuse_unknown_keys()
    return tuple(models) or ("scripted",), context_length


def _speed(table: Table | None) -> SpeedChange | None:
    if table is None:
        return None
    milliseconds = table.number("ttft_ms", high=_MAX_TTFT_MS)
    ttft = None if milliseconds is None else milliseconds / 1000
    rate: float | None
    if table.value("tokens_per_second") == "unlimited":
        rate = UNLIMITED
    else:
        rate = table.number("tokens_per_second", high=_MAX_RATE, or_else=' or "unlimited"')
        rate = UNLIMITED if rate == 0 else rate
    burst = table.integer("burst", low=1, high=_MAX_TOKENS)
    table.refuse_unknown_keys()
    return SpeedChange(ttft, rate, burst)


def _turn(table: Table, index: int) -> Turn:
    parts = {key: _words(table, key) for key in ("reasoning", "summary", "text", "refusal")}
    calls = tuple(_call(each) for each in table.tables("call"))
    finish = table.choice("finish", {reason.name.lower(): reason for reason in FinishReason})
    failure = _failure(table.table("error"))
    if failure is not None and finish is not None:
        table.problem("finish", "expected either `finish` or `error`, found both")
    turn = Turn(
        index=index,
        when=_pattern(table),
        calls=calls,
        finish=finish or FinishReason.STOP,
        failure=failure,
        speed=_speed(table.table("speed")),
        **parts,
    )
    if not any(key in table for key in (*parts, "call", "error")):
        table.report.add(table.path, "says nothing: expected text, reasoning, summary, refusal, call or error")
    table.refuse_unknown_keys()
    return turn


def _pattern(table: Table) -> re.Pattern[str] | None:
    source = table.string("when")
    if source is None:
        return None
    try:
        return re.compile(source)
    except re.error as error:
        table.problem("when", f"expected a regular expression: {error}")
        return None


def _words(table: Table, key: str) -> str:
    """Reads a string, `{ text, repeat }` or `{ tokens }`."""
    value = table.value(key)
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, dict):
        table.problem(key, f"expected a string, {{ text, repeat }} or {{ tokens }}, found {describe(value)}")
        return ""
    inner = table.table(key)
    if inner is None:
        return ""
    text = inner.string("text")
    repeat = inner.integer("repeat", low=1, high=_MAX_CHARACTERS)
    tokens = inner.integer("tokens", low=1, high=_MAX_TOKENS)
    inner.refuse_unknown_keys()
    if ("tokens" in inner) == ("text" in inner) or ("repeat" in inner and "text" not in inner):
        table.problem(key, "expected either `text`, with or without `repeat`, or `tokens`")
    elif tokens is not None:
        return filler(tokens, format_path(inner.path))
    elif text is not None:
        if len(text) * (repeat or 1) <= _MAX_CHARACTERS:
            return text * (repeat or 1)
        inner.problem("repeat", f"expected at most {_MAX_CHARACTERS} characters in all, found {len(text)} x {repeat}")
    return ""


def _call(table: Table) -> Call:
    name = table.string("name")
    if "name" not in table:
        table.problem("name", "missing: expected the tool's name")
    elif name is not None and not _NAME.fullmatch(name):
        table.problem("name", f"expected 1 to 128 letters, digits, '_', '-' or '.', found {name!r}")
    kind = table.choice("kind", {each.name.lower(): each for each in CallKind})
    if kind is None:
        kind = CallKind.CUSTOM if "input" in table else CallKind.FUNCTION
    function_text = _arguments(table)
    raw = table.string("raw_arguments")
    custom_text = _words(table, "input")
    if kind is CallKind.CUSTOM:
        for key in ("arguments", "raw_arguments"):
            if key in table:
                table.problem(key, "a custom tool takes `input`, not arguments")
        if "input" not in table:
            table.problem("input", "missing: a custom tool needs its input")
    elif "input" in table:
        table.problem("input", 'a function takes `arguments`; only kind = "custom" takes input')
    elif "arguments" in table and "raw_arguments" in table:
        table.problem("raw_arguments", "expected either `arguments` or `raw_arguments`, found both")
    call_id = table.string("call_id")
    if call_id is not None and not 1 <= len(call_id) <= 64:
        table.problem("call_id", f"expected 1 to 64 characters, found {len(call_id)}")
    table.refuse_unknown_keys()
    text = custom_text if kind is CallKind.CUSTOM else function_text if raw is None else raw
    return Call(name or "", kind, text, call_id or "")


def _arguments(table: Table) -> str:
    """Reads arguments written as a TOML table or as JSON text, which is kept as it is."""
    value = table.value("arguments")
    if value is None:
        return "{}"
    if isinstance(value, dict):
        value = cast("dict[str, object]", value)
        bad = [place for place, leaf in _leaves(value, (*table.path, "arguments")) if not _is_json(leaf)]
        for place in bad:
            table.report.add(place, "JSON has no such value: expected a string, a finite number, true or false")
        return "{}" if bad else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not isinstance(value, str):
        table.problem("arguments", f"expected a table or a string of JSON, found {describe(value)}")
        return "{}"
    try:
        parsed = json.loads(value)
    except ValueError as error:
        table.problem("arguments", f"expected JSON: {error}; for broken JSON on purpose use `raw_arguments`")
    else:
        if isinstance(parsed, dict):
            return value
        table.problem("arguments", "expected a JSON object; for anything else use `raw_arguments`")
    return "{}"


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, object]", value).items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, value


def _is_json(leaf: object) -> bool:
    return isinstance(leaf, str | int) or (isinstance(leaf, float) and math.isfinite(leaf))


def _failure(table: Table | None) -> Failure | None:
    if table is None:
        return None
    code = table.string("code")
    if "code" not in table:
        table.problem("code", 'missing: expected an error code such as "server_error"')
    elif code is not None and not _CODE.fullmatch(code):
        table.problem("code", f"expected lower-case words joined by '_', found {code!r}")
    message = table.string("message")
    after_tokens = table.integer("after_tokens", low=0, high=_MAX_TOKENS)
    retry_after = table.number("retry_after", high=86_400)
    table.refuse_unknown_keys()
    return Failure(code or "", message or "the scripted engine failed as told", after_tokens or 0, retry_after)


def _refuse_shared_call_ids(tables: list[Table], turns: tuple[Turn, ...]) -> None:
    seen: dict[str, KeyPath] = {}
    for table, turn in zip(tables, turns, strict=True):
        for index, call in enumerate(turn.calls):
            path = (*table.path, "call", index, "call_id")
            if call.call_id in seen:
                first = table.report.line(seen[call.call_id])
                table.report.add(path, f"expected an id of its own, {call.call_id!r} is already used on line {first}")
            elif call.call_id:
                seen[call.call_id] = path
