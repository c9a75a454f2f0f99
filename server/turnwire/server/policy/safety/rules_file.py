"""Reads a safety file, TOML: categories with their words and patterns, and a remote classifier.

Above it: the configuration. Below it: the table reader, which knows the lines, and patterns, which know what cannot be
matched. Every mistake is named with its line and key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from turnwire.server import values
from turnwire.server.policy.safety.folding import fold
from turnwire.server.policy.safety.matcher import Terms
from turnwire.server.policy.safety.patterns import Pattern, PatternError, read_pattern
from turnwire.server.policy.safety.rules import BOTH, CODES, Category, RemoteConfig, RemoteRule, SafetyConfig
from turnwire.server.session.screens import Direction
from turnwire.server.toml.tables import FileError, Table, read_text, read_top

MAX_LITERALS: Final = 100_000
"""Literals of one file, those of its lists of words included."""
MAX_LITERAL: Final = 200
"""Bytes of one literal, as it is compared."""
MAX_PATTERNS: Final = 500
"""Patterns of one file."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_/-]{0,63}")
_ACTIONS: Final = {"block": True, "flag": False}
_DIRECTIONS: Final = {
    "input": frozenset({Direction.INPUT}),
    "output": frozenset({Direction.OUTPUT}),
    "both": BOTH,
}
_CODES: Final = {code: code for code in CODES}
_MODES: Final = {"gate": True, "observe": False}
_FAILURES: Final = {"open": True, "closed": False}


class SafetyFileError(FileError):
    """A safety file cannot be used; its text has one line per mistake."""


def load_safety_file(
    source: Path | str, environ: Mapping[str, str], origin: str | None = None, folder: Path | None = None
) -> SafetyConfig:
    """Reads and checks a safety file.

    Args:
        source: A path to read, or the TOML text itself.
        environ: Where the key of a remote classifier is.
        origin: What messages call the source; by default the path, or `<safety>` for a text.
        folder: Where its lists of words are; by default the file's own folder.

    Raises:
        SafetyFileError: It cannot be used; names every mistake with its line and key.
        ImportError: The packages of the extra `safety` are missing.
    """
    folder = folder or Path()
    if isinstance(source, Path):
        folder, origin = source.parent, origin or str(source)
        source = read_text(source, SafetyFileError)
    top = read_top(source, origin or "<safety>", SafetyFileError)
    config = _Reader(folder, environ).read(top)
    top.report.raise_if_any()
    return config


class _Reader:
    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ
        self._literals = 0
        self._patterns = 0

    def read(self, top: Table) -> SafetyConfig:
        gate = top.choice("mode", _MODES)
        names: set[str] = set()
        categories = tuple(self._category(table, names) for table in top.tables("category"))
        remote_table = top.table("remote")
        remote = None if remote_table is None else self._remote(remote_table)
        top.refuse_unknown_keys()
        if "category" not in top and "remote" not in top:
            top.problem("category", "there is nothing to look for: write [[category]], or [remote]")
        return SafetyConfig(gate is not False, categories, remote)

    def _category(self, table: Table, names: set[str]) -> Category:
        name = table.string("name") or ""
        if not _NAME.fullmatch(name):
            table.problem("name", "expected 1 to 64 lower-case letters, digits, '_', '-' and '/'")
        elif name in names:
            table.problem("name", f"there is a category '{name}' already")
        names.add(name)
        blocks, code = self._action(table)
        directions = table.choice("direction", _DIRECTIONS) or BOTH
        whole = table.boolean("whole_words")
        literals = [*self._inline(table), *self._words(table)]
        patterns = self._read_patterns(table)
        table.refuse_unknown_keys()
        if not {"literals", "words_file", "patterns"} & set(table.keys()):
            table.problem("literals", f"'{name}' has nothing to look for: literals, words_file or patterns")
        terms = Terms(tuple(dict.fromkeys(literals)), tuple(patterns), whole is not False, waits=blocks)
        return Category(name, terms, blocks, directions, code)

    def _action(self, table: Table) -> tuple[bool, str]:
        blocks = table.choice("action", _ACTIONS)
        code = table.choice("code", _CODES)
        return blocks is not False, code or CODES[0]

    def _inline(self, table: Table) -> list[str]:
        found: list[str] = []
        for index, literal in enumerate(table.strings("literals")):
            problem = self._literal_problem(literal)
            if problem:
                table.report.add((*table.path, "literals", index), problem)
            else:
                found.append(literal)
        return found

    def _literal_problem(self, literal: str) -> str:
        folded = fold(literal).strip()
        self._literals += 1
        if self._literals > MAX_LITERALS:
            return f"there are more than {MAX_LITERALS} literals"
        if not folded:
            return "nothing is left of it as texts are compared"
        if len(folded) > MAX_LITERAL:
            return f"is longer than {MAX_LITERAL} bytes"
        return ""

    def _words(self, table: Table) -> list[str]:
        name = table.string("words_file")
        if name is None:
            return []
        path = self._folder / name
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            table.problem("words_file", f"{path} cannot be read: {reason}")
            return []
        found: list[str] = []
        for number, line in enumerate(lines, start=1):
            word = line.strip()
            if not word or word.startswith("#"):
                continue
            if problem := self._literal_problem(word):
                table.problem("words_file", f"{path}:{number}: {problem}")
                break
            found.append(word)
        return found

    def _read_patterns(self, table: Table) -> list[Pattern]:
        found: list[Pattern] = []
        for index, source in enumerate(table.strings("patterns")):
            self._patterns += 1
            try:
                if self._patterns > MAX_PATTERNS:
                    msg = f"there are more than {MAX_PATTERNS} patterns"
                    raise PatternError(msg)
                found.append(read_pattern(source))
            except PatternError as error:
                table.report.add((*table.path, "patterns", index), str(error))
        return found

    def _remote(self, table: Table) -> RemoteConfig:
        base = RemoteConfig("")
        url = table.string("url")
        if url is None or not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", url):
            table.problem("url", "expected the http or https URL of a moderations endpoint, without a user in it")
        blocks, code = self._action(table)
        rule = RemoteRule(blocks, code)
        categories: dict[str, RemoteRule] = {}
        for name, inner in table.named_tables("categories").items():
            own_blocks, own_code = inner.choice("action", _ACTIONS), inner.choice("code", _CODES)
            categories[name] = RemoteRule(rule.blocks if own_blocks is None else own_blocks, own_code or code)
            inner.refuse_unknown_keys()
        timeout = table.read("timeout", values.duration(0.01, 60))
        fails_open = table.choice("on_failure", _FAILURES)
        overlap = table.integer("overlap", low=0, high=5_000)
        config = RemoteConfig(
            url=url or "",
            api_key=self._key(table),
            model=table.string("model") or "",
            timeout=base.timeout if timeout is None else timeout,
            max_concurrent=table.integer("max_concurrent", low=1, high=10_000) or base.max_concurrent,
            fails_open=bool(fails_open),
            directions=table.choice("direction", _DIRECTIONS) or BOTH,
            piece=table.integer("check_every", low=1, high=100_000) or base.piece,
            overlap=base.overlap if overlap is None else overlap,
            rule=rule,
            categories=categories,
        )
        table.refuse_unknown_keys()
        return config

    def _key(self, table: Table) -> str:
        name = table.string("api_key_env")
        if name is None:
            return ""
        key = self._environ.get(name, "")
        if not key:
            table.problem("api_key_env", f"the variable {name} is not set")
        return key
