"""Scenario files, read and checked as a whole: every mistake is told with its line and key.

Above it: the runner. Below it: `values`, and the server's reader of TOML files.

    [speed]                          # of the model, simulated
    ttft = "30ms"
    tokens_per_second = 1000         # or "unlimited"
    burst = 1

    [network]
    rtt = "50ms"
    bandwidth_mbit = 100             # each way and for each connection; 0 for no limit
    slow_start = true
    tls = false

    [load]
    rollouts = 8
    agents = 4                       # at once; or, begun at random times:
    rate = 2.5                       # rollouts per second

    [request]                        # what a conversation begins with
    instructions = "12KiB"
    tools = "20KiB"
    history = "100KiB"
    message = "400B"

    [output]                         # for trainers; by default all is streamed, as text
    verbosity = "done"               # nothing is streamed: what was said comes whole with its end; or "deltas"
    token_ids = true                 # with it the ids of all tokens, where the transport has them
    logprobs = true                  # and log-probabilities

    [fork]                           # the turns after the first two are played in eight lanes at once
    after = 2
    lanes = 8

    [idle]
    sessions = 1000
    time = "5s"

    [limits]
    max_seconds = 120

    [[turn]]                         # tokens that the model says
    repeat = 3
    reasoning = 40
    text = 20

    [[turn.call]]
    name = "run_tests"
    arguments_tokens = 15
    time = "250ms"
    output = { kind = "test-log", size = "8KiB" }   # or "file", "search", "prose"

    [[turn]]
    text = 150
    think = "1s"                     # then the user says
    reply = { kind = "prose", size = "200B" }
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from turnwire.bench.scenario.values import (
    Call,
    Fork,
    Idle,
    Kind,
    Load,
    Material,
    Network,
    Output,
    Request,
    Scenario,
    Speed,
    Turn,
)
from turnwire.server.toml.tables import FileError, Problem, Table, read_text, read_top
from turnwire.server.values import duration, rate, size

T = TypeVar("T")

MAX_TURNS: Final = 1_000
MAX_LANES: Final = 4_096
_MAX_TOKENS: Final = 1_000_000
_MAX_BYTES: Final = 16 * 1024**2
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VERBOSITIES: Final = {"deltas": False, "done": True}
_KINDS: Final = {kind.value: kind for kind in Kind}
_seconds: Final = duration(0.0, 3_600.0)
_bytes: Final = size(0, _MAX_BYTES)


class ScenarioError(FileError):
    """A scenario file cannot be used; its text has one line per mistake."""


def shipped() -> dict[str, Path]:
    """Lists the scenarios that come with the package, by name."""
    folder = Path(str(importlib.resources.files("turnwire.bench.scenario").joinpath("data")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load(name: str) -> Scenario:
    """Reads a shipped scenario by its name, or any by its path.

    Raises:
        ScenarioError: There is none, or it has mistakes, all of which are named.
    """
    return read(source_of(name), _path(name).name)


def source_of(name: str) -> str:
    """Returns the text of a scenario's file; see `load`."""
    return read_text(_path(name), ScenarioError)


def _path(name: str) -> Path:
    known = shipped()
    path = known.get(name) or Path(name)
    if path.suffix != ".toml":
        raise ScenarioError([Problem(name, 0, "", f"no such scenario; there are {', '.join(known)}, or FILE.toml")])
    return path


def read(source: str, origin: str) -> Scenario:
    """Reads a scenario from its text; `origin` names it in messages, and gives its name.

    Raises:
        ScenarioError: It has mistakes, all of which are named.
    """
    top = read_top(source, origin, ScenarioError)
    description = top.string("description") or ""
    seed = top.integer("seed", low=0, high=2**31 - 1)
    turns = _turns(top)
    scenario = Scenario(
        name=Path(origin).stem,
        description=description,
        seed=seed or 0,
        speed=_speed(_table(top, "speed")),
        network=_network(_table(top, "network")),
        load=_load(_table(top, "load")),
        request=_request(_table(top, "request")),
        turns=turns,
        fork=_fork(top.table("fork"), turns),
        idle=_idle(top.table("idle")),
        max_seconds=_limit(_table(top, "limits")),
        output=_output(_table(top, "output")),
    )
    top.refuse_unknown_keys()
    top.report.raise_if_any()
    return scenario


def _table(top: Table, key: str) -> Table:
    """Takes a table; an empty one where it is absent."""
    return top.table(key) or Table({}, (key,), top.report)


def _read(table: Table, key: str, reader: Callable[[object], T], default: T) -> T:
    value = table.read(key, reader)
    return default if value is None else value


def _count(table: Table, key: str, default: int, *, low: int = 0, high: int = _MAX_TOKENS) -> int:
    value = table.integer(key, low=low, high=high)
    return default if value is None else value


def _speed(table: Table) -> Speed:
    speed = Speed(
        _read(table, "ttft", _seconds, 0.0),
        _read(table, "tokens_per_second", rate, float("inf")),
        _count(table, "burst", 1, low=1),
    )
    table.refuse_unknown_keys()
    return speed


def _network(table: Table) -> Network:
    rtt = _read(table, "rtt", duration(0.0, 10.0), 0.0)
    megabits = table.number("bandwidth_mbit", high=100_000.0) or 0.0
    slow_start, tls = table.boolean("slow_start") or False, table.boolean("tls") or False
    network = Network(rtt, megabits * 1e6, slow_start, tls)
    if network.slow_start and not rtt:
        table.problem("slow_start", "there is no window to wait for where `rtt` is 0")
    table.refuse_unknown_keys()
    return network


def _load(table: Table) -> Load:
    agents = _count(table, "agents", 1, low=1, high=MAX_LANES)
    started = table.number("rate", high=10_000.0) or 0.0
    rollouts = _count(table, "rollouts", 1 if started else agents, low=1, high=100_000)
    if started and "agents" in table:
        table.problem("rate", "expected either `agents` or `rate`, found both")
    if not started and rollouts < agents:
        table.problem("rollouts", f"expected at least one for each of the {agents} agents, found {rollouts}")
    table.refuse_unknown_keys()
    return Load(rollouts, agents, started)


def _request(table: Table) -> Request:
    request = Request(
        _read(table, "instructions", _bytes, 1024),
        _read(table, "tools", _bytes, 0),
        _read(table, "history", _bytes, 0),
        _read(table, "message", size(1, _MAX_BYTES), 200),
    )
    table.refuse_unknown_keys()
    return request


def _output(table: Table) -> Output:
    done_only = table.choice("verbosity", _VERBOSITIES) or False
    extras = {key: table.boolean(key) or False for key in ("token_ids", "logprobs")}
    for key, wanted in extras.items():
        if wanted and not done_only:
            table.problem(key, 'comes with the end of what was said: it needs `verbosity = "done"`')
    table.refuse_unknown_keys()
    return Output(done_only, **extras)


def _fork(table: Table | None, turns: Sequence[Turn]) -> Fork | None:
    if table is None:
        return None
    fork = Fork(_count(table, "after", 1, low=1, high=MAX_TURNS), _count(table, "lanes", 2, low=2, high=MAX_LANES))
    if turns and fork.after >= len(turns):
        table.problem("after", f"expected fewer than the {len(turns)} turns, found {fork.after}")
    elif turns and turns[fork.after - 1].calls:
        table.problem("after", f"turn {fork.after} calls tools: expected one that a user answers, in each lane")
    table.refuse_unknown_keys()
    return fork


def _idle(table: Table | None) -> Idle | None:
    if table is None:
        return None
    idle = Idle(_count(table, "sessions", 100, low=1, high=100_000), _read(table, "time", _seconds, 1.0))
    table.refuse_unknown_keys()
    return idle


def _limit(table: Table) -> float:
    limit = _read(table, "max_seconds", duration(1.0, 86_400.0), 120.0)
    table.refuse_unknown_keys()
    return limit


def _turns(top: Table) -> tuple[Turn, ...]:
    if "turn" not in top:
        top.problem("turn", "missing: a scenario needs at least one [[turn]]")
    turns: list[Turn] = []
    for table in top.tables("turn"):
        repeat = _count(table, "repeat", 1, low=1, high=MAX_TURNS)
        turns += [_turn(table)] * repeat
    if len(turns) > MAX_TURNS:
        top.problem("turn", f"expected at most {MAX_TURNS} turns with repetitions, found {len(turns)}")
    elif turns and turns[-1].calls:
        top.problem("turn", "the last turn calls tools: expected one that ends the rollout")
    return tuple(turns)


def _turn(table: Table) -> Turn:
    calls = tuple(_call(call) for call in table.tables("call"))
    turn = Turn(
        _count(table, "reasoning", 0),
        _count(table, "text", 0),
        calls,
        _material(table, "reply", Material(Kind.PROSE, 200)),
        _read(table, "think", _seconds, 0.0),
    )
    if not turn.text and not calls:
        table.problem("text", "missing: a turn needs `text`, or calls")
    for key in ("reply", "think"):
        if calls and key in table:
            table.problem(key, "the outputs of its calls answer this turn, not the user")
    table.refuse_unknown_keys()
    return turn


def _call(table: Table) -> Call:
    name = table.string("name")
    if name is None or not _NAME.fullmatch(name):
        table.problem("name", f"expected a tool's name, 1 to 64 letters, digits, '_' or '-', found {name!r}")
    call = Call(
        name or "",
        _count(table, "arguments_tokens", 12, low=1),
        _read(table, "time", _seconds, 0.0),
        _material(table, "output", Material(Kind.FILE, 2048)),
    )
    table.refuse_unknown_keys()
    return call


def _material(table: Table, key: str, default: Material) -> Material:
    inner = table.table(key)
    if inner is None:
        return default
    material = Material(inner.choice("kind", _KINDS) or default.kind, _read(inner, "size", _bytes, default.size))
    inner.refuse_unknown_keys()
    return material
