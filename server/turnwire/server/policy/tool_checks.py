"""Checks of tool sets, made once per set: names, schemas, namespaces, and which tools the server runs itself.

Above: `prepare`. Below: refusals and schemas. Headers and tokens of MCP servers are secret and never repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from turnwire.server.policy import json_text
from turnwire.server.policy.refusals import (
    duplicate,
    invalid,
    missing,
    not_among,
    not_object,
    pattern,
    shown,
    too_few,
    too_long,
    too_many,
)
from turnwire.server.policy.replays import Notices, Unnoticed
from turnwire.server.policy.schemas import Schemas
from turnwire.server.policy.wellformed import check_wellformed
from turnwire.server.session.toolsets import Tools
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.tool_pb2 import CustomTool, FunctionTool, McpTool, NamespaceTool, Tool, ToolSet, WebSearchTool

MAX_SCHEMA_VALUES: Final = 50_000
"""Values in all schemas of one set; bounds what checking a set can cost to a few seconds of one thread."""

_NAME: Final = "^[a-zA-Z0-9_.:-]+$"
_MAX_NAME: Final = 128
_GRAMMARS: Final = ("lark", "regex")
_CONTEXT_SIZES: Final = ("low", "medium", "high")


class HostedCatalogue(Protocol):
    """Knows which declared tools the server runs itself."""

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        """Returns the names, as the model calls them, of the tools that the server runs.

        Raises:
            RequestError: A declared tool cannot be run.
        """
        ...

    def hosted_servers(self, tools: ToolSet) -> tuple[str, ...]:
        """Returns the labels of the MCP servers among the tools, whose tools the server lists and calls."""
        ...


class NothingHosted:
    """The catalogue of a server that leaves every tool to its clients."""

    def hosted_names(self, tools: ToolSet) -> frozenset[str]:
        """Returns no name."""
        del tools
        return frozenset()

    def hosted_servers(self, tools: ToolSet) -> tuple[str, ...]:
        """Returns no label."""
        del tools
        return ()


class ToolChecks:
    """Checks tool sets. Safe to use from several threads: those that race come to the same result."""

    def __init__(
        self, max_tools: int, catalogue: HostedCatalogue, schemas: Schemas, notices: Notices | None = None
    ) -> None:
        """Takes the most tools of one set, nested ones included, whom to ask, and who hears of unknown tools."""
        self._notices = notices or Unnoticed()
        self._max_tools = max_tools
        self._catalogue = catalogue
        self._schemas = schemas

    def check(self, tools: Tools) -> None:
        """Checks a set unless it was found valid before.

        Raises:
            RequestError: A definition cannot be taken, with its path as `param`.
        """
        if tools.checked:
            return
        parsed = tools.parsed()
        total = sum(1 for _ in all_tools(parsed.tools))
        if total > self._max_tools:
            raise too_many("tools", self._max_tools, total)
        self._check_all(parsed.tools, "tools", _Budget())
        check_wellformed(parsed, "tools")
        for tool in all_tools(parsed.tools):
            if tool.HasField("unknown"):
                self._notices.opaque("tool", tool.unknown.type)
        # In this order: whoever sees the set as checked may use the names.
        tools.hosted = self._catalogue.hosted_names(parsed)
        tools.servers = self._catalogue.hosted_servers(parsed)
        tools.checked = True

    def _check_all(self, tools: Sequence[Tool], path: str, budget: _Budget) -> None:
        names: set[tuple[str, str]] = set()
        for index, tool in enumerate(tools):
            here = f"{path}[{index}]"
            match tool.WhichOneof("kind"):
                case "function":
                    self._check_function(tool.function, here, budget)
                    _claim(names, "tool", tool.function.name, f"{here}.name")
                case "custom":
                    _check_custom(tool.custom, here)
                    _claim(names, "tool", tool.custom.name, f"{here}.name")
                case "namespace":
                    self._check_namespace(tool.namespace, here, budget)
                    _claim(names, "namespace", tool.namespace.name, f"{here}.name")
                case "mcp":
                    _check_mcp(tool.mcp, here)
                    _claim(names, "server", tool.mcp.server_label, f"{here}.server_label")
                case "web_search":
                    _check_web_search(tool.web_search, here)
                case None:
                    raise missing(f"{here}.type")
                case _:
                    pass

    def _check_namespace(self, namespace: NamespaceTool, path: str, budget: _Budget) -> None:
        _check_name(namespace.name, f"{path}.name")
        if not namespace.tools:
            raise too_few(f"{path}.tools")
        for index, tool in enumerate(namespace.tools):
            kind = tool.WhichOneof("kind")
            if kind is not None and kind not in ("function", "custom"):
                name = tool.unknown.type if kind == "unknown" else kind
                raise not_among(f"{path}.tools[{index}].type", name, ("function", "custom"))
        self._check_all(namespace.tools, f"{path}.tools", budget)

    def _check_function(self, function: FunctionTool, path: str, budget: _Budget) -> None:
        _check_name(function.name, f"{path}.name")
        if function.parameters:
            root = self._check_schema(function, function.parameters, f"{path}.parameters", budget)
            # Arguments are always an object; a schema may leave that unsaid, but not say otherwise.
            if root not in ("", "object"):
                reason = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{root}\"'"
                raise _bad_schema(function, f"{path}.parameters", reason)
        if function.output_schema:
            self._check_schema(function, function.output_schema, f"{path}.output_schema", budget)

    def _check_schema(self, function: FunctionTool, text: str, param: str, budget: _Budget) -> str:
        verdict = self._schemas.check(text)
        if verdict.reason:
            raise _bad_schema(function, param, verdict.reason)
        budget.spend(verdict.values)
        return verdict.root_type


class _Budget:
    """Counts the values in the schemas of one set."""

    def __init__(self) -> None:
        self._left = MAX_SCHEMA_VALUES

    def spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise invalid("tools", f"the schemas together hold more than {MAX_SCHEMA_VALUES} values")


def all_tools(tools: Sequence[Tool]) -> Iterator[Tool]:
    """Yields tools and those in namespaces."""
    for tool in tools:
        yield tool
        if tool.WhichOneof("kind") == "namespace":
            yield from all_tools(tool.namespace.tools)


def _bad_schema(function: FunctionTool, param: str, reason: str) -> RequestError:
    message = f"Invalid schema for function '{function.name}': {reason}."
    return reject("invalid_function_parameters", message, param=param, name=function.name, reason=reason)


def _claim(names: set[tuple[str, str]], kind: str, name: str, param: str) -> None:
    if (kind, name) in names:
        raise duplicate(param, name)
    names.add((kind, name))


def _check_name(name: str, param: str) -> None:
    if not name:
        raise missing(param)
    if len(name) > _MAX_NAME:
        raise too_long(param, _MAX_NAME, len(name))
    if not re.fullmatch(_NAME, name):
        raise pattern(param, _NAME)


def _check_custom(custom: CustomTool, path: str) -> None:
    if not custom.name:
        raise missing(f"{path}.name")
    if len(custom.name) > _MAX_NAME:
        raise too_long(f"{path}.name", _MAX_NAME, len(custom.name))
    if not custom.format or json_text.fault(custom.format):
        # Text that is no JSON is refused with all the rest of that kind.
        return
    wanted = json_text.decoded(custom.format)
    if wanted is None:
        raise not_object(f"{path}.format")
    kind = wanted.get("type")
    if kind not in ("text", "grammar"):
        raise not_among(f"{path}.format.type", str(kind), ("text", "grammar"))
    if kind == "grammar":
        if wanted.get("syntax") not in _GRAMMARS:
            raise not_among(f"{path}.format.syntax", str(wanted.get("syntax")), _GRAMMARS)
        if not isinstance(wanted.get("definition"), str):
            raise missing(f"{path}.format.definition")


def _check_mcp(mcp: McpTool, path: str) -> None:
    if not mcp.server_label:
        raise missing(f"{path}.server_label")
    if len(mcp.server_label) > _MAX_NAME:
        raise too_long(f"{path}.server_label", _MAX_NAME, len(mcp.server_label))


def _check_web_search(search: WebSearchTool, path: str) -> None:
    size = search.search_context_size
    if search.HasField("search_context_size") and size not in _CONTEXT_SIZES:
        raise not_among(f"{path}.search_context_size", shown(size), _CONTEXT_SIZES)
