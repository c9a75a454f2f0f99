"""Where configuration values come from: flags, then environment variables, then a TOML file, then defaults.

Above it: `settings`, which knows the values. Below it: nothing that knows them. All mistakes are collected, each with
the flag, the variable, or the file, line and key where it was made.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

from turnwire.server.config import ConfigError
from turnwire.server.toml.positions import key_lines
from turnwire.server.values import describe, near

T = TypeVar("T")

PREFIX: Final = "TURNWIRE_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be configured."""

    key: str
    """Place in the TOML file, such as `engine.scenario`."""
    help: str
    """A sentence for --help and the documentation."""
    default: str = ""
    """The default as it would be written, empty if there is none."""
    flag: str = ""
    """Such as `--scenario`; empty where only the file and the environment have it."""
    metavar: str = ""
    """What stands for the value in --help; empty for a switch."""
    repeatable: bool = False
    """Whether the flag may be given several times."""
    variable_name: str = ""
    """What the variable is called after the prefix, where the flag's name is taken."""

    @property
    def variable(self) -> str:
        """Name of the environment variable: the flag's, or else the key's."""
        if self.variable_name:
            return PREFIX + self.variable_name
        return PREFIX + re.sub(r"[^A-Z0-9]", "_", (self.flag.removeprefix("--") or self.key).upper())


@dataclass(frozen=True, slots=True)
class _Found:
    value: object
    place: str
    folder: Path
    """What relative paths are relative to."""


class Sources:
    """All values that were given, by key, the strongest source winning."""

    def __init__(self, settings: Sequence[Setting], flags: Mapping[str, object], environ: Mapping[str, str]) -> None:
        """Gathers flags (by key; None and empty ones were not given) and variables; empty variables count as unset."""
        self.problems: list[str] = []
        self._settings = {setting.key: setting for setting in settings}
        self._found: dict[str, _Found] = {}
        for setting in settings:
            value = flags.get(setting.key)
            text = environ.get(setting.variable, "").strip()
            if value is not None and value not in ((), []):
                value = list(cast("tuple[object]", value)) if isinstance(value, tuple) else value
                self._found[setting.key] = _Found(value, setting.flag, Path())
            elif text:
                self._found[setting.key] = _Found(text, setting.variable, Path())
        self._refuse_unknown_variables(environ)

    def read_toml(self, path: Path) -> None:
        """Adds what a file says where nothing stronger did."""
        try:
            text = path.read_text(encoding="utf-8")
            document = tomllib.loads(text)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            self.problems.append(f"{self.place('config')}: cannot read {path}: {reason}")
            return
        except tomllib.TOMLDecodeError as error:
            self.problems.append(f"{path}: not valid TOML: {error}")
            return
        lines = key_lines(text)
        for keys, value in _leaves(document, {key.split(".")[0] for key in self._settings if "." in key}):
            key = ".".join(keys)
            place = f"{path}:{lines.get(keys, 1)}: key '{key}'"
            if key in self._settings and key != "config":
                self._found.setdefault(key, _Found(value, place, path.parent))
            else:
                self._refuse_unknown_key(key, value, place)

    def get(self, key: str, read: Callable[[object], T], default: T) -> T:
        """Reads one value."""
        return self.get_in(key, lambda _: read, default)

    def get_in(self, key: str, make: Callable[[Path], Callable[[object], T]], default: T) -> T:
        """Reads one value that may hold paths, with a reader made for the folder that they are relative to."""
        found = self._found.get(key)
        if found is None:
            return default
        try:
            return make(found.folder)(found.value)
        except ValueError as error:
            problem = f"{found.place}: {error}"
            if problem not in self.problems:
                # A setting that several parts are made from is read several times.
                self.problems.append(problem)
            return default

    def given(self, key: str) -> bool:
        """Tells whether any source has a value."""
        return key in self._found

    def place(self, key: str) -> str:
        """Names where a value was given, for messages about several values."""
        found = self._found.get(key)
        return found.place if found else f"{self._settings[key].flag or key} (by default)"

    def raise_if_any(self) -> None:
        """Raises `ConfigError` with all mistakes so far."""
        if self.problems:
            raise ConfigError(self.problems)

    def _refuse_unknown_variables(self, environ: Mapping[str, str]) -> None:
        """Refuses misspelt variables of the tables that only the server has; others may be a client's."""
        known = {setting.variable for setting in self._settings.values()}
        tables = {key.split(".")[0].upper() for key in self._settings if "." in key}
        for name in sorted(environ):
            table = name.removeprefix(PREFIX).split("_")[0]
            if name.startswith(PREFIX) and table in tables and name not in known:
                self.problems.append(f"{name}: unknown variable; {near(name, known)}")

    def _refuse_unknown_key(self, key: str, value: object, place: str) -> None:
        table = key.rpartition(".")[0]
        known = [each.rpartition(".")[2] for each in self._settings if each.rpartition(".")[0] == table]
        inside = [each for each in self._settings if each.startswith(f"{key}.")]
        if inside:
            self.problems.append(f"{place}: expected a table, found {describe(value)}")
        else:
            if not table:
                known += sorted({each.split(".")[0] for each in self._settings if "." in each})
                known.remove("config")
            self.problems.append(f"{place}: unknown key; {near(key.rpartition('.')[2], known)}")


def _leaves(document: Mapping[str, object], tables: set[str]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yields every key of a document and of its known tables, with its value."""
    for key, value in document.items():
        if key in tables and isinstance(value, dict):
            for inner, each in cast("dict[str, object]", value).items():
                yield (key, inner), each
        else:
            yield (key,), value
