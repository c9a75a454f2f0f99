"""What an operator lets hosted tools do: nothing, unless said otherwise.

Above: the reader of the tools file, and the rooms that run tools. Below: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

_KIB = 1024
_MIB = 1024 * 1024

SearchProviderName = Literal["brave"]


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server that requests name by its label alone; either a URL or a command."""

    url: str = ""
    """Where it answers, by streamable HTTP."""
    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Sent with every request to it, over what a request says. Secret."""
    command: tuple[str, ...] = ()
    """What starts it, and is then spoken to over its standard input and output."""
    env: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Added to the few variables that a started server gets. Secret."""
    cwd: str = ""
    """Where it is started; empty is where this server runs."""
    allowed_tools: tuple[str, ...] = ()
    """The only tools that may be called, whatever requests say; empty is all."""


@dataclass(frozen=True, slots=True)
class McpLimits:
    """What MCP servers may use. Times in seconds."""

    connect_timeout: float = 15.0
    """For starting or reaching a server, and for the handshake."""
    list_timeout: float = 20.0
    """For listing its tools."""
    call_timeout: float = 120.0
    """For one call."""
    idle_timeout: float = 300.0
    """How long a connection that nobody uses is kept."""
    close_timeout: float = 5.0
    """For a server to let go of a connection."""
    max_connections: int = 64
    """At the same time, in all."""
    max_connections_per_principal: int = 16
    max_message_bytes: int = 4 * _MIB
    """Of one answer; what is longer is not read, and a result is cut."""
    max_output_bytes: int = 256 * _KIB
    """Of one result, as the model reads it; what is longer is cut, and the model is told."""
    max_tools: int = 128
    """Of one server."""
    max_tool_bytes: int = 64 * _KIB
    """Of one tool's definition; a larger one is left out."""
    max_listing_bytes: int = 512 * _KIB
    """Of all definitions of one server; what is over is left out."""


@dataclass(frozen=True, slots=True)
class McpConfig:
    """Which MCP servers may be called."""

    servers: dict[str, McpServer] = field(default_factory=dict[str, McpServer])
    """By label."""
    allowed_urls: tuple[str, ...] = ()
    """Beginnings of URLs that a request may name as `server_url`; none by default, so that nobody can make this server
    send requests into its own network."""
    limits: McpLimits = McpLimits()


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Who searches the web."""

    provider: SearchProviderName = "brave"
    api_key: str = field(default="", repr=False)
    """Secret."""
    url: str = "https://api.search.brave.com/res/v1/web/search"
    """The provider's address."""
    timeout: float = 15.0
    """For one search, in seconds."""
    max_answer_bytes: int = 2 * _MIB
    max_snippet_chars: int = 2_000
    """Of one result, as the model reads it."""


@dataclass(frozen=True, slots=True)
class ToolsConfig:
    """All hosted tools."""

    mcp: McpConfig = field(default_factory=McpConfig)
    web_search: SearchConfig | None = None
    """None: declarations of web search are accepted, and the model is not told of them."""
