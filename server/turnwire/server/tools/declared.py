"""From a declared MCP server to the one that is really called, or to the reason why it is not.

Above: the room of hosted tools. Below: the operator's configuration. Headers and tokens are secret: they are never
part of an error.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from turnwire.server.prompt.hosted_calls import OWN_LABEL
from turnwire.server.tools.config import McpConfig, McpServer
from turnwire.server.tools.urls import permitted
from turnwire.v1.errors import RequestError, reject
from turnwire.v1.tool_pb2 import McpTool

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_OURS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "keep-alive",
        "last-event-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to the protocol; so do all that begin with `mcp-` or `proxy-`."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A server to call: everything a connection depends on."""

    label: str
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str = ""
    allowed_tools: tuple[str, ...] = ()
    """Of the operator; empty is all."""

    def fingerprint(self) -> bytes:
        """Returns what tells connections apart, without its secrets."""
        parts = (self.url, sorted(self.headers.items()), self.command, sorted(self.env.items()), self.cwd)
        return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).digest()


def resolve(tool: McpTool, config: McpConfig, param: str) -> ServerSpec:
    """Returns the server that a declaration means.

    Args:
        tool: The declaration.
        config: What the operator allows.
        param: The path of the declaration, for errors.

    Raises:
        RequestError: It cannot be called.
    """
    label = tool.server_label
    if label == OWN_LABEL:
        raise _invalid(f"{param}.server_label", f"'{OWN_LABEL}' is the label of this server's own tools")
    _check_filters(tool, param)
    preset = config.servers.get(label)
    if preset is not None and tool.server_url in ("", preset.url):
        return _from_preset(label, preset, tool, param)
    if not tool.server_url:
        if preset is None and not config.servers:
            message = f"Missing required parameter: '{param}.server_url'."
        else:
            message = (
                f"Missing required parameter: '{param}.server_url'. This server knows no MCP server '{label[:64]}'."
            )
        raise reject("missing_required_parameter", message, param=f"{param}.server_url")
    if not permitted(tool.server_url, config.allowed_urls):
        message = (
            f"Unsupported parameter: '{param}.server_url' names a server that this server's operator does not allow."
        )
        raise reject("unsupported_parameter", message, param=f"{param}.server_url")
    return ServerSpec(label, url=tool.server_url, headers=_headers(tool, param))


def _from_preset(label: str, preset: McpServer, tool: McpTool, param: str) -> ServerSpec:
    if preset.command:
        for name in ("headers", "authorization"):
            if getattr(tool, name):
                message = f"Unsupported parameter: '{param}.{name}' has no meaning for the server '{label}'."
                raise reject("unsupported_parameter", message, param=f"{param}.{name}")
        return ServerSpec(
            label, command=preset.command, env=preset.env, cwd=preset.cwd, allowed_tools=preset.allowed_tools
        )
    headers = _headers(tool, param) | {name.lower(): value for name, value in preset.headers.items()}
    return ServerSpec(label, url=preset.url, headers=headers, allowed_tools=preset.allowed_tools)


def _headers(tool: McpTool, param: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in tool.headers.items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise _invalid(f"{param}.headers", "a name or a value cannot be a header's")
        if lower in _OURS or lower.startswith(("mcp-", "proxy-")):
            raise _invalid(f"{param}.headers", f"'{lower}' belongs to the protocol")
        headers[lower] = value
    if tool.authorization:
        if not _VALUE.fullmatch(tool.authorization):
            raise _invalid(f"{param}.authorization", "it cannot be a header's value")
        headers["authorization"] = f"Bearer {tool.authorization.removeprefix('Bearer ')}"
    return headers


def _invalid(param: str, reason: str) -> RequestError:
    return reject("invalid_value", f"Invalid '{param}': {reason}.", param=param)


def _check_filters(tool: McpTool, param: str) -> None:
    """Checks that what limits the tools can be understood: a limit that is not understood must not be ignored."""
    if tool.HasField("allowed_tools"):
        wanted = _decoded(tool.allowed_tools)
        if wanted is not None and not _names(wanted) and not _is_filter(wanted):
            raise _invalid(
                f"{param}.allowed_tools", "expected a list of names, or an object with tool_names or read_only"
            )
    if tool.HasField("require_approval"):
        rule = _decoded(tool.require_approval)
        if rule is None or rule in ("always", "never"):
            return
        if not isinstance(rule, dict) or not all(
            key in ("always", "never") and (each is None or _is_filter(each))
            for key, each in cast("dict[str, object]", rule).items()
        ):
            raise _invalid(f"{param}.require_approval", "expected 'always', 'never', or an object of filters for them")


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return False


def _names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value))


def _is_filter(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    rule = cast("dict[str, object]", value)
    return (
        set(rule) <= {"tool_names", "read_only"}
        and (rule.get("tool_names") is None or _names(rule["tool_names"]))
        and (rule.get("read_only") is None or isinstance(rule["read_only"], bool))
    )
