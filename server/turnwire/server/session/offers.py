"""What the model is offered: declared tools with those of MCP servers, as the servers listed them, in their places.

An offer is a tool set like any other: only functions, customs and what the server does not interpret. It keeps no
secret of the declaration, and equal offers are one object, so that prompts of a chain share their prefix.

Above: creates and passes. Below: tool sets and listings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from turnwire.server.prompt.hosted_calls import WEB_SEARCH, mcp_function_name
from turnwire.server.session.hosted import Kind, Listing, Target
from turnwire.server.session.toolsets import Tools, ToolSets
from turnwire.v1.item_pb2 import Item
from turnwire.v1.response_pb2 import ResponseCreate
from turnwire.v1.tool_pb2 import FunctionTool, McpTool, NamedToolChoice, ToolChoice, ToolChoiceMode, ToolSet

_MAX_OFFERS: Final = 8
"""Offers kept for one declared set: one per state of its servers' listings."""

_MAX_FUNCTIONS: Final = 1_024
"""Functions that one server may offer; clients replay listings of any length."""

_SEARCH_TOOL: Final = FunctionTool(
    name=WEB_SEARCH,
    description="Searches the web and returns titles, addresses and excerpts of the pages found.",
    parameters=(
        '{"type":"object","properties":{"query":{"type":"string","description":"What to search for."}},'
        '"required":["query"],"additionalProperties":false}'
    ),
)


def offer(tools: Tools, listings: Mapping[str, Listing], sets: ToolSets) -> Tools:
    """Returns what the model is offered of a declared set; the set itself where nothing has to be put in place.

    Args:
        tools: The declared set, checked.
        listings: What is known of MCP servers, by label; a server without a listing offers nothing.
        sets: Where equal sets become one object.
    """
    searches = WEB_SEARCH in tools.hosted and any(t.WhichOneof("kind") == "web_search" for t in tools.parsed().tools)
    if not tools.servers and not searches:
        return tools
    key = tuple(listings[label].digest if label in listings else b"" for label in tools.servers)
    known = tools.offers.get(key)
    if known is None:
        known = _build(tools, listings, sets, searches=searches)
        if len(tools.offers) >= _MAX_OFFERS:
            tools.offers.pop(next(iter(tools.offers)))
        tools.offers[key] = known
    return known


def _build(tools: Tools, listings: Mapping[str, Listing], sets: ToolSets, *, searches: bool) -> Tools:
    offered = ToolSet()
    targets = {name: tools.target(name) for name in tools.hosted}
    taken = {tool.function.name or tool.custom.name for tool in tools.parsed().tools}
    for tool in tools.parsed().tools:
        match tool.WhichOneof("kind"):
            case "mcp" if tool.mcp.server_label in tools.servers:
                listing = listings.get(tool.mcp.server_label)
                for function, target in _functions(tool.mcp, listing) if listing else ():
                    # A function of the client's keeps its name; the client could not tell the calls apart.
                    if function.name not in taken:
                        taken.add(function.name)
                        offered.tools.add().function.CopyFrom(function)
                        targets[function.name] = target
            case "web_search" if searches:
                if WEB_SEARCH not in taken:
                    taken.add(WEB_SEARCH)
                    offered.tools.add().function.CopyFrom(_SEARCH_TOOL)
                    targets[WEB_SEARCH] = Target(Kind.SEARCH, "", WEB_SEARCH)
            case _:
                offered.tools.add().CopyFrom(tool)
    return sets.offered(offered, targets)


def _functions(server: McpTool, listing: Listing) -> Iterator[tuple[FunctionTool, Target]]:
    """Yields the tools of a server that may be called, each with what runs when it is."""
    for text in Item.FromString(listing.data).mcp_list_tools.tools[:_MAX_FUNCTIONS]:
        tool = as_object(decoded(text))
        name = tool.get("name") if tool else None
        if tool is None or not isinstance(name, str) or not name or not allowed(server, tool):
            continue
        function = FunctionTool(name=mcp_function_name(server.server_label, name))
        description = tool.get("description")
        if isinstance(description, str):
            function.description = description
        schema = as_object(tool.get("input_schema"))
        if schema is not None:
            function.parameters = msgspec.json.encode(schema).decode()
        yield function, Target(Kind.MCP, server.server_label, name, asks=asks(server, tool))


def allowed(server: McpTool, tool: Mapping[str, Any]) -> bool:
    """Whether the declaration lets a listed tool be called."""
    if not server.HasField("allowed_tools"):
        return True
    wanted = decoded(server.allowed_tools)
    if wanted is None:
        return True
    if isinstance(wanted, list):
        return tool.get("name") in cast("list[object]", wanted)
    rule = as_object(wanted)
    return rule is not None and _matches(rule, tool)


def asks(server: McpTool, tool: Mapping[str, Any]) -> bool:
    """Whether the user is asked before a tool is called: always, where the declaration does not say otherwise."""
    rule = decoded(server.require_approval) if server.HasField("require_approval") else None
    rules = as_object(rule)
    if rules is None:
        return rule != "never"
    always, never = as_object(rules.get("always")), as_object(rules.get("never"))
    if always is not None and _matches(always, tool):
        return True
    return never is None or not _matches(never, tool)


def _matches(rule: Mapping[str, Any], tool: Mapping[str, Any]) -> bool:
    """Whether a filter names a tool; one that says nothing names none."""
    names, read_only = rule.get("tool_names"), rule.get("read_only")
    if names is None and read_only is None:
        return False
    if names is not None and not (isinstance(names, list) and tool.get("name") in cast("list[object]", names)):
        return False
    if read_only is None:
        return True
    annotations = as_object(tool.get("annotations")) or {}
    return bool(annotations.get("readOnlyHint")) == bool(read_only)


def decoded(text: str) -> Any:
    """Returns the value of JSON text, None where it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def as_object(value: object) -> dict[str, Any] | None:
    """Returns a JSON object, None for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def offered_settings(settings: ResponseCreate, offered: Tools) -> ResponseCreate:
    """Returns settings whose tool choice names what is offered: functions in place of servers and of web search."""
    if settings.tool_choice.WhichOneof("form") != "named" or not offered.targets:
        return settings
    choice = _choice(settings.tool_choice.named, offered)
    if choice is None:
        return settings
    changed = ResponseCreate()
    changed.CopyFrom(settings)
    changed.tool_choice.CopyFrom(choice)
    return changed


def _choice(named: NamedToolChoice, offered: Tools) -> ToolChoice | None:
    if named.type == "allowed_tools":
        texts: list[str] = []
        for text in named.tools:
            one = as_object(decoded(text))
            names = None if one is None else _names(_Chosen.of(one), offered)
            texts += [text] if names is None else [_function_choice(name) for name in names]
        if texts == list(named.tools):
            return None
        return _among(texts, named.mode)
    names = _names(_Chosen(named.type, named.name, named.server_label), offered)
    if names is None:
        return None
    if len(names) == 1:
        return ToolChoice(named=NamedToolChoice(type="function", name=names[0]))
    return _among([_function_choice(name) for name in names], "required")


def _among(texts: list[str], mode: str) -> ToolChoice:
    if not texts:
        # Nothing of what was chosen could be listed: there is nothing to call.
        return ToolChoice(mode=ToolChoiceMode.TOOL_CHOICE_MODE_NONE)
    return ToolChoice(named=NamedToolChoice(type="allowed_tools", mode=mode, tools=texts))


@dataclass(frozen=True, slots=True)
class _Chosen:
    type: str
    name: str
    label: str

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> _Chosen:
        words = (value.get(key) for key in ("type", "name", "server_label"))
        return cls(*(word if isinstance(word, str) else "" for word in words))


def _names(chosen: _Chosen, offered: Tools) -> list[str] | None:
    """Returns the functions that stand for what was chosen, None where it stands for itself."""
    if chosen.type == "mcp":
        return [
            name
            for name, target in offered.targets.items()
            if target.kind is Kind.MCP and target.label == chosen.label and chosen.name in ("", target.name)
        ]
    if chosen.type == WEB_SEARCH:
        return [name for name, target in offered.targets.items() if target.kind is Kind.SEARCH] or None
    return None


def _function_choice(name: str) -> str:
    return msgspec.json.encode({"type": "function", "name": name}).decode()


def declared_server(tools: ToolSet, label: str) -> McpTool | None:
    """Returns the declaration of an MCP server, None where there is none."""
    return next((t.mcp for t in tools.tools if t.WhichOneof("kind") == "mcp" and t.mcp.server_label == label), None)
