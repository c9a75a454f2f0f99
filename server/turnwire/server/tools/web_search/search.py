"""The web search tool: reads what the model asks for and what the request limits, and words the results.

Above: the room of hosted tools. Below: the provider.
"""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from turnwire.server.prompt.hosted_calls import search_text
from turnwire.server.session.effects import ToolResult
from turnwire.server.tools.web_search.port import SearchFailure, SearchHit, SearchProvider, SearchQuery
from turnwire.v1.tool_pb2 import WebSearchTool

_COUNTS: Final = {"low": 3, "medium": 6, "high": 12}
"""Results by `search_context_size`."""
_MAX_QUERY: Final = 400
_MAX_DOMAINS: Final = 100


class WebSearch:
    """Searches the web for the model."""

    def __init__(self, provider: SearchProvider) -> None:
        """Takes who searches."""
        self._provider = provider

    async def run(self, arguments: str, declared: WebSearchTool | None) -> ToolResult:
        """Searches. Safe to cancel."""
        text = _object(arguments).get("query")
        if not isinstance(text, str) or not text.strip():
            return ToolResult("The arguments must be an object with the text 'query'.", failed=True)
        query = _query(text.strip()[:_MAX_QUERY], declared or WebSearchTool())
        try:
            hits = await self._provider.search(query)
        except SearchFailure as failure:
            return ToolResult(str(failure), failed=True)
        kept = [hit for hit in hits if _wanted(hit, query)][: query.count]
        results = [{"title": hit.title, "url": hit.url, "snippet": hit.snippet} for hit in kept]
        return ToolResult(search_text(results), results=msgspec.json.encode(results).decode())

    async def aclose(self) -> None:
        """Lets go of the provider."""
        await self._provider.aclose()


def _query(text: str, declared: WebSearchTool) -> SearchQuery:
    filters = _object(declared.filters)
    country = _object(declared.user_location).get("country")
    return SearchQuery(
        text,
        _COUNTS.get(declared.search_context_size or "medium", _COUNTS["medium"]),
        country.upper() if isinstance(country, str) and len(country) == 2 and country.isalpha() else "",
        _domains(filters.get("allowed_domains")),
        _domains(filters.get("blocked_domains")),
    )


def _domains(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    words = [each for each in cast("list[object]", value)[:_MAX_DOMAINS] if isinstance(each, str)]
    hosts = (urlsplit(word if "//" in word else f"//{word}").hostname or "" for word in words)
    return tuple(host.rstrip(".").lower() for host in hosts if host)


def _wanted(hit: SearchHit, query: SearchQuery) -> bool:
    """Whether a page is where it may be: providers take limits as hints."""
    try:
        host = (urlsplit(hit.url).hostname or "").lower()
    except ValueError:
        return False
    if not host or any(_within(host, domain) for domain in query.blocked_domains):
        return False
    return not query.allowed_domains or any(_within(host, domain) for domain in query.allowed_domains)


def _within(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


def _object(text: str) -> dict[str, Any]:
    try:
        value: object = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
