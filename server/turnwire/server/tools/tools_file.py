"""Reads the tools file, TOML: MCP servers, allowed URLs, limits, web search.

Text values may name environment variables as `${NAME}`, so that secrets need not stand in the file. Above: the wiring.
Below: the configuration's values.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from turnwire.server.tools.config import McpConfig, McpLimits, McpServer, SearchConfig, ToolsConfig
from turnwire.server.tools.urls import UrlPrefix

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

_Config = TypeVar("_Config", McpLimits, SearchConfig)


class ToolsFileError(Exception):
    """The tools file cannot be used; the text has one line per mistake."""

    def __init__(self, problems: list[str]) -> None:
        """Takes one line per mistake."""
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        """One line per mistake."""


def load_tools_file(path: Path, environ: Mapping[str, str]) -> ToolsConfig:
    """Reads a tools file.

    Args:
        path: The file.
        environ: The variables that it may name.

    Raises:
        ToolsFileError: It cannot be read, or something in it is wrong; no secret is repeated.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ToolsFileError([f"{path}: cannot be read: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ToolsFileError([f"{path}: is no TOML: {error}"]) from error
    reader = _Reader(environ)
    config = reader.read(table)
    if reader.problems:
        raise ToolsFileError([f"{path}: {problem}" for problem in reader.problems])
    return config


class _Reader:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def read(self, table: Mapping[str, Any]) -> ToolsConfig:
        self._only(table, "", ("mcp", "web_search"))
        mcp = self._table(table, "mcp", "mcp")
        search = self._table(table, "web_search", "web_search") if "web_search" in table else None
        return ToolsConfig(self._mcp(mcp), None if search is None else self._search(search))

    def _mcp(self, table: Mapping[str, Any]) -> McpConfig:
        self._only(table, "mcp.", ("servers", "allowed_urls", "limits"))
        servers = {
            label: self._server(label, self._table(self._table(table, "servers", "mcp.servers"), label, label))
            for label in self._table(table, "servers", "mcp.servers")
        }
        urls = self._texts(table, "allowed_urls", "mcp.allowed_urls")
        for url in urls:
            if UrlPrefix.parse(url) is None:
                self.problems.append(f"mcp.allowed_urls: '{url}' is no http or https URL with a host and no user")
        limits = self._numbers(McpLimits(), self._table(table, "limits", "mcp.limits"), "mcp.limits")
        return McpConfig(servers, urls, limits)

    def _server(self, label: str, table: Mapping[str, Any]) -> McpServer:
        here = f"mcp.servers.{label}"
        if not _LABEL.fullmatch(label) or label == "turnwire":
            self.problems.append(f"{here}: a label has 1 to 64 letters, digits, '_' and '-', and is not 'turnwire'")
        self._only(table, f"{here}.", [field.name for field in dataclasses.fields(McpServer)])
        server = McpServer(
            url=self._text(table, "url", here),
            headers=self._map(table, "headers", here),
            command=self._texts(table, "command", f"{here}.command"),
            env=self._map(table, "env", here),
            cwd=self._text(table, "cwd", here),
            allowed_tools=self._texts(table, "allowed_tools", f"{here}.allowed_tools"),
        )
        if bool(server.url) == bool(server.command):
            self.problems.append(f"{here}: needs either 'url' or 'command'")
        elif server.url and UrlPrefix.parse(server.url) is None:
            self.problems.append(f"{here}.url: is no http or https URL with a host and no user")
        return server

    def _search(self, table: Mapping[str, Any]) -> SearchConfig:
        self._only(table, "web_search.", [field.name for field in dataclasses.fields(SearchConfig)])
        base = SearchConfig()
        provider = self._text(table, "provider", "web_search") or base.provider
        if provider != "brave":
            self.problems.append(f"web_search.provider: '{provider}' is not known; there is 'brave'")
        key = self._text(table, "api_key", "web_search")
        if not key and "api_key" not in table:
            self.problems.append("web_search.api_key: is missing; it may be given as ${NAME} of a variable")
        url = self._text(table, "url", "web_search") or base.url
        if UrlPrefix.parse(url) is None:
            self.problems.append("web_search.url: is no http or https URL with a host and no user")
        texts = ("provider", "api_key", "url")
        numbers = {key: value for key, value in table.items() if key not in texts}
        config = dataclasses.replace(base, api_key=key, url=url)
        return self._numbers(config, numbers, "web_search")

    def _only(self, table: Mapping[str, Any], place: str, known: list[str] | tuple[str, ...]) -> None:
        self.problems += [
            f"{place}{key}: is not known; known are {', '.join(known)}" for key in table if key not in known
        ]

    def _table(self, table: Mapping[str, Any], key: str, place: str) -> Mapping[str, Any]:
        value: object = table.get(key, {})
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self.problems.append(f"{place}: must be a table")
        return {}

    def _text(self, table: Mapping[str, Any], key: str, place: str) -> str:
        return self._expanded(table.get(key, ""), f"{place}.{key}")

    def _texts(self, table: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
        value: object = table.get(key, [])
        if not isinstance(value, list):
            self.problems.append(f"{place}: must be a list of texts")
            return ()
        return tuple(self._expanded(each, place) for each in cast("list[object]", value))

    def _map(self, table: Mapping[str, Any], key: str, place: str) -> dict[str, str]:
        here = f"{place}.{key}"
        return {name: self._expanded(value, f"{here}.{name}") for name, value in self._table(table, key, here).items()}

    def _expanded(self, value: object, place: str) -> str:
        if not isinstance(value, str):
            self.problems.append(f"{place}: must be a text")
            return ""
        for name in _VARIABLE.findall(value):
            if name not in self._environ:
                self.problems.append(f"{place}: the environment has no variable {name}")
        return _VARIABLE.sub(lambda match: self._environ.get(match[1], ""), value)

    def _numbers(self, base: _Config, table: Mapping[str, Any], place: str) -> _Config:
        known = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
        self._only(table, f"{place}.", [name for name, value in known.items() if isinstance(value, int | float)])
        changes: dict[str, Any] = {}
        for key, value in table.items():
            default = known.get(key)
            number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**40
            if not number or (isinstance(default, int) and not isinstance(value, int)):
                self.problems.append(f"{place}.{key}: must be a number greater than 0")
            elif isinstance(default, int | float):
                changes[key] = value
        return dataclasses.replace(base, **changes)
