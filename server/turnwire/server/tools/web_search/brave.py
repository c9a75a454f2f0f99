"""Brave Search as a provider: one GET per search, JSON back.

Above: the web search tool. Below: the HTTP client.
"""

from __future__ import annotations

import asyncio
import html
import logging
import re
from typing import Final

import aiohttp
import msgspec

from turnwire.server.tools.config import SearchConfig
from turnwire.server.tools.web_search.port import SearchFailure, SearchHit, SearchQuery

_log: Final = logging.getLogger(__name__)

_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]*>")
_MAX_COUNT: Final = 20
_MAX_TITLE: Final = 300
_MAX_SITES: Final = 8
"""Domains that fit into a query beside its words."""


class _Result(msgspec.Struct):
    title: str = ""
    url: str = ""
    description: str = ""
    extra_snippets: list[str] = []
    age: str = ""


class _Web(msgspec.Struct):
    results: list[_Result] = []


class _Answer(msgspec.Struct):
    web: _Web | None = None


class BraveSearch:
    """Searches by Brave's Web Search API."""

    def __init__(self, config: SearchConfig) -> None:
        """Takes the key and the address."""
        self._config = config
        self._session: aiohttp.ClientSession | None = None

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        """Returns the pages found. Safe to cancel.

        Raises:
            SearchFailure: Brave did not answer, or refused.
        """
        params = {"q": _words(query), "count": str(min(query.count, _MAX_COUNT)), "text_decorations": "false"}
        if query.country:
            params["country"] = query.country
        try:
            async with asyncio.timeout(self._config.timeout):
                body = await self._get(params)
        except TimeoutError:
            msg = "The search took too long."
            raise SearchFailure(msg) from None
        except (aiohttp.ClientError, OSError) as error:
            # The texts of such errors hold addresses and what was sent.
            _log.warning("web search failed: %s", type(error).__name__)
            msg = "The search service could not be reached."
            raise SearchFailure(msg) from None
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeError):
            _log.warning("the search service gave an answer that is none")
            msg = "The search service gave an answer that is none."
            raise SearchFailure(msg) from None
        return [self._hit(result) for result in (answer.web.results if answer.web else [])]

    async def _get(self, params: dict[str, str]) -> bytes:
        headers = {"X-Subscription-Token": self._config.api_key, "Accept": "application/json"}
        async with self._client().get(
            self._config.url, params=params, headers=headers, allow_redirects=False
        ) as response:
            if response.status != 200:
                _log.warning("the search service answered with status %d", response.status)
                busy = response.status == 429
                raise SearchFailure(
                    "The search service takes no more requests for now." if busy else "The search service refused."
                )
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > self._config.max_answer_bytes:
                    msg = "The search service gave an answer that is too long."
                    raise SearchFailure(msg)
            return bytes(body)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=True)
        return self._session

    def _hit(self, result: _Result) -> SearchHit:
        snippet = "\n".join(_plain(text) for text in (result.description, *result.extra_snippets) if text)
        if result.age:
            snippet = f"({_plain(result.age)[:64]}) {snippet}"
        return SearchHit(
            _plain(result.title)[:_MAX_TITLE], result.url[:2048], snippet[: self._config.max_snippet_chars]
        )

    async def aclose(self) -> None:
        """Closes connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _words(query: SearchQuery) -> str:
    sites = " OR ".join(f"site:{domain}" for domain in query.allowed_domains[:_MAX_SITES])
    blocked = " ".join(f"-site:{domain}" for domain in query.blocked_domains[:_MAX_SITES])
    return " ".join(part for part in (query.text, f"({sites})" if sites else "", blocked) if part)


def _plain(text: str) -> str:
    return html.unescape(_TAG.sub("", text)).strip()
