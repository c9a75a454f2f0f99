"""Makes texts of a given size and kind: source files, test logs, what a search finds, prose. A seed makes one text.

Above it: `compiling`. Below it: nothing. They are shaped like the real thing (line lengths, indentation, repeated
names), since that decides how they compress and into how many tokens they are cut; they mean nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from turnwire.bench.scenario.values import Kind, Material

_NOUNS: Final = (
    *("order", "batch", "cache", "ledger", "token", "parser", "stream", "index", "buffer", "config", "record"),
    *("session", "worker", "queue", "route", "filter", "schema", "cursor", "window", "policy", "shard", "report"),
)
_VERBS: Final = (
    *("load", "store", "merge", "parse", "build", "check", "fetch", "apply"),
    *("drop", "split", "count", "flush", "close", "open", "resolve", "render"),
)
_FOLDERS: Final = ("core", "io", "api", "billing", "storage", "util", "web")


def make(material: Material, seed: str) -> str:
    """Returns a text of exactly so many bytes, all of them ASCII."""
    choice = random.Random(f"{material.kind.value} {seed}")
    lines: list[str] = []
    size = 0
    for line in _MAKERS[material.kind](choice):
        if size >= material.size:
            break
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)[: material.size].ljust(material.size)


def _path(choice: random.Random) -> str:
    return f"src/{choice.choice(_FOLDERS)}/{choice.choice(_NOUNS)}_{choice.choice(_NOUNS)}.py"


def _file(choice: random.Random) -> Iterator[str]:
    yield f'"""Keeps each {choice.choice(_NOUNS)} beside its {choice.choice(_NOUNS)}."""'
    yield ""
    for _ in range(choice.randint(3, 7)):
        yield f"from {choice.choice(_FOLDERS)}.{choice.choice(_NOUNS)} import {choice.choice(_NOUNS).title()}"
    while True:
        noun, other, verb = choice.choice(_NOUNS), choice.choice(_NOUNS), choice.choice(_VERBS)
        yield ""
        yield ""
        yield f"def {verb}_{noun}({noun}: {noun.title()}, {other}_count: int = {choice.randint(0, 64)}) -> bool:"
        yield f'    """Returns whether the {noun} could {verb} its {other}."""'
        for _ in range(choice.randint(2, 9)):
            third, action = choice.choice(_NOUNS), choice.choice(_VERBS)
            match choice.randrange(4):
                case 0:
                    yield f"    if {noun}.{third} is None or {other}_count > {choice.randint(1, 999)}:"
                    yield f'        raise ValueError(f"no {third} to {action}: {{{noun}!r}}")'
                case 1:
                    yield f"    {third} = self._{action}_{third}({noun}, limit={other}_count)"
                case 2:
                    yield f"    for {third} in {noun}.{third}s:"
                    yield f"        {third}.{action}({other}_count + {choice.randint(1, 9)})"
                case _:
                    yield f"    # The {third} has to {action} first, since its {other} is shared."
        yield f"    return {other}_count == len({noun}.{other}s)"


def _test_log(choice: random.Random) -> Iterator[str]:
    yield "============================= test session starts =============================="
    yield "platform linux -- Python 3.11.7, pytest-9.2.0, pluggy-1.6.0"
    yield "rootdir: /home/dev/project"
    yield f"collected {choice.randint(80, 900)} items"
    yield ""
    for percent in range(2, 101, 2):
        dots = "." * choice.randint(3, 40)
        yield f"tests/{choice.choice(_FOLDERS)}/test_{choice.choice(_NOUNS)}.py {dots} [{percent:3d}%]"
    while True:
        noun, verb = choice.choice(_NOUNS), choice.choice(_VERBS)
        line = choice.randint(10, 400)
        yield f"_________________________ test_{verb}_{noun}_keeps_order _________________________"
        yield ""
        yield f"    def test_{verb}_{noun}_keeps_order(tmp_path):"
        yield f"        {noun} = {noun.title()}(tmp_path, limit={choice.randint(1, 99)})"
        yield f">       assert {noun}.{verb}() == {choice.randint(0, 99)}"
        yield f"E       AssertionError: assert {choice.randint(0, 99)} == {choice.randint(100, 199)}"
        yield ""
        yield f"tests/{choice.choice(_FOLDERS)}/test_{noun}.py:{line}: AssertionError"


def _search(choice: random.Random) -> Iterator[str]:
    while True:
        noun, verb = choice.choice(_NOUNS), choice.choice(_VERBS)
        yield f"{_path(choice)}:{choice.randint(1, 900)}:    {noun} = {verb}_{noun}({choice.choice(_NOUNS)})"


def _prose(choice: random.Random) -> Iterator[str]:
    while True:
        words = [choice.choice((choice.choice(_NOUNS), choice.choice(_VERBS), "the", "of", "and")) for _ in range(15)]
        yield " ".join(words).capitalize() + "."


_MAKERS: Final[dict[Kind, Callable[[random.Random], Iterator[str]]]] = {
    Kind.FILE: _file,
    Kind.TEST_LOG: _test_log,
    Kind.SEARCH: _search,
    Kind.PROSE: _prose,
}
