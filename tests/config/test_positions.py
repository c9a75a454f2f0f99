from __future__ import annotations

import tomllib
from typing import cast

from turnwire.server.toml.positions import KeyPath, format_path, key_lines

SOURCE = '''\
# comment = 1
top = "a # not a comment"

[speed] # comment
ttft_ms = 1
"quoted key" = 2
a.b.c = 3

[[turn]]
text = """
[[turn]]
fake = 1 \\""" still in
"""
call = [
  { name = "x", arguments = { deep = [1, { er = 2 }] } }, # }
  # ]
  { name = 'y' },
]

[[turn]]
reasoning = \'\'\'
two\'\'\'\'\'
[[turn.call]]
name = "z"
arguments = { when = 2024-01-01T10:00:00Z, list = [
  "]", "}" ] }
[turn.call.extra]
key = true
[[turn.call]]
name = "last"
'''


def paths(value: object, path: KeyPath = ()) -> set[KeyPath]:
    found: set[KeyPath] = {path} if path else set()
    if isinstance(value, dict):
        for key, inner in cast("dict[str, object]", value).items():
            found |= paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            found |= paths(inner, (*path, index))
    return found


def test_every_key_and_element_has_a_line() -> None:
    assert set(key_lines(SOURCE)) == paths(tomllib.loads(SOURCE))


def test_lines_are_those_of_the_file() -> None:
    lines = key_lines(SOURCE)
    assert lines["top",] == 2
    assert lines["speed", "quoted key"] == 6
    assert lines["speed", "a", "b", "c"] == 7
    assert lines["turn", 0] == 9
    assert lines["turn", 0, "call", 0, "arguments", "deep", 1, "er"] == 15
    assert lines["turn", 0, "call", 1, "name"] == 17
    assert lines["turn", 1] == 20
    assert lines["turn", 1, "call", 0, "name"] == 24
    assert lines["turn", 1, "call", 0, "arguments", "list", 0] == 26
    assert lines["turn", 1, "call", 0, "extra", "key"] == 28
    assert lines["turn", 1, "call", 1, "name"] == 30


def test_carriage_returns_do_not_shift_lines() -> None:
    assert key_lines(SOURCE.replace("\n", "\r\n")) == key_lines(SOURCE)


def test_paths_read_like_code() -> None:
    assert format_path(("turn", 2, "call", 0, "arguments")) == "turn[2].call[0].arguments"
