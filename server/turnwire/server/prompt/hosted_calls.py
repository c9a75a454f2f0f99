"""How the model sees hosted tools: the names of its functions, and the call and output that one item stands for.

Above: the session core, which offers the functions, and renderers, which show past calls. Below: nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from turnwire.v1.item_pb2 import Item, McpCall, WebSearchCall

WEB_SEARCH: Final = "web_search"
"""The function by which the model searches the web."""

OWN_LABEL: Final = "turnwire"
"""The server label of functions that the server runs by itself; no MCP server may have it."""

_MAX_NAME: Final = 64
_PLAIN: Final = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]+")
_HASH_DIGITS: Final = 10


def mcp_function_name(label: str, tool: str) -> str:
    """Returns the name by which the model calls a tool of an MCP server: `label__tool`.

    Every engine takes it: 1 to 64 characters of `[A-Za-z0-9_-]`. Where label and tool do not fit, or would not be told
    apart, what fits is kept and a hash of both is added; different tools thus have different names.
    """
    name = f"{label}__{tool}"
    if len(name) <= _MAX_NAME and _PLAIN.fullmatch(label) and _PLAIN.fullmatch(tool):
        return name
    digest = hashlib.blake2b(f"{label}\0{tool}".encode(errors="replace"), digest_size=_HASH_DIGITS // 2).hexdigest()
    kept = _FOREIGN.sub("_", name)[: _MAX_NAME - _HASH_DIGITS - 3].rstrip("_") or "mcp"
    # Three underscores: never equal to a name of the plain form, which has two.
    return f"{kept}___{digest}"


@dataclass(frozen=True, slots=True)
class HostedExchange:
    """A hosted call as a function call with its output."""

    name: str
    """The function, as it was offered to the model."""
    arguments: str
    """JSON text as the model wrote it."""
    output: str
    """What the model is told; a failure is told too."""
    approved: bool = False
    """Whether the call stood in an approval request before, which a renderer may have shown as the call already."""


def hosted_exchange(item: Item) -> HostedExchange | None:
    """Returns what a finished hosted call looks like to the model, None for items of other kinds.

    `mcp_list_tools` needs no place in a prompt, since the functions stand among the tools. An approval request is a
    call whose output follows with the `mcp_call` that names it, also where the user did not approve.
    """
    match item.WhichOneof("kind"):
        case "mcp_call":
            return _mcp(item.mcp_call)
        case "web_search_call":
            return _search(item.web_search_call)
        case _:
            return None


def _mcp(call: McpCall) -> HostedExchange:
    # The server's own functions are not called by the name of a server.
    own = call.server_label == OWN_LABEL
    name = call.name if own else mcp_function_name(call.server_label, call.name)
    output = call.error if call.HasField("error") else call.output
    return HostedExchange(name, call.arguments, output, approved=bool(call.approval_request_id))


def _search(call: WebSearchCall) -> HostedExchange:
    action = _object(call.action)
    extra = _object(call.extra_json)
    query = action.get("query")
    arguments = msgspec.json.encode({"query": query if isinstance(query, str) else ""}).decode()
    error = extra.get("error")
    if isinstance(error, str):
        return HostedExchange(WEB_SEARCH, arguments, error)
    return HostedExchange(WEB_SEARCH, arguments, search_text(extra.get("results")))


def search_text(results: object) -> str:
    """Returns what the model reads of search results, a list of objects with title, url and snippet."""
    blocks: list[str] = []
    for number, result in enumerate(cast("list[object]", results) if isinstance(results, list) else [], start=1):
        if isinstance(result, dict):
            fields = cast("Mapping[str, object]", result)
            lines = [str(fields[key]) for key in ("title", "url", "snippet") if fields.get(key)]
            blocks.append(f"[{number}] " + "\n".join(lines))
    return "\n\n".join(blocks) or "Nothing was found."


def _object(text: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
