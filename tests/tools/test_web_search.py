from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from turnwire.server.session.effects import ToolResult
from turnwire.server.session.hosted import Kind, Target
from turnwire.server.tools.config import SearchConfig, ToolsConfig
from turnwire.server.tools.room import HostedRoom
from turnwire.server.tools.web_search.brave import BraveSearch
from turnwire.v1.tool_pb2 import Tool, ToolSet, WebSearchTool

SEARCH = Target(Kind.SEARCH, "", "web_search")


class Brave:
    """A local server that speaks Brave's protocol."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.status = 200
        self.body = b""
        self.slow = False
        self.url = ""

    def found(self, *results: dict[str, Any]) -> None:
        self.body = json.dumps({"type": "search", "web": {"type": "search", "results": list(results)}}).encode()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        if self.slow:
            await asyncio.Event().wait()
        if request.headers.get("X-Subscription-Token") != "s3cret":
            return web.Response(status=401, text="s3cret is missing")
        headers = {"Location": "http://127.0.0.1:1/"} if self.status == 302 else {}
        return web.Response(status=self.status, body=self.body, content_type="application/json", headers=headers)


@pytest_asyncio.fixture
async def brave() -> AsyncIterator[Brave]:
    brave = Brave()
    app = web.Application()
    app.router.add_get("/res/v1/web/search", brave.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    brave.url = f"http://127.0.0.1:{port}/res/v1/web/search"
    brave.found()
    try:
        yield brave
    finally:
        await runner.cleanup()


async def search(
    brave: Brave, arguments: str, *, key: str = "s3cret", patience: float = 10.0, **tool: Any
) -> ToolResult:
    config = SearchConfig(api_key=key, url=brave.url, timeout=patience, max_answer_bytes=100_000)
    room = HostedRoom(ToolsConfig(web_search=config), BraveSearch(config))
    try:
        return await room.run(SEARCH, arguments, ToolSet(tools=[Tool(web_search=WebSearchTool(**tool))]), "")
    finally:
        await room.aclose()


async def test_results_are_worded_and_kept(brave: Brave) -> None:
    brave.found(
        {
            "title": "The <strong>grpc</strong> page",
            "url": "https://grpc.io/",
            "description": "Fast &amp; open",
            "age": "2 days",
        },
        {"title": "Other", "url": "https://example.org/a", "description": "a", "extra_snippets": ["b", "c"]},
    )
    result = await search(brave, '{"query":"grpc"}')
    assert not result.failed
    assert result.output == (
        "[1] The grpc page\nhttps://grpc.io/\n(2 days) Fast & open\n\n[2] Other\nhttps://example.org/a\na\nb\nc"
    )
    assert json.loads(result.results)[0] == {
        "title": "The grpc page",
        "url": "https://grpc.io/",
        "snippet": "(2 days) Fast & open",
    }
    assert brave.asked == [{"q": "grpc", "count": "6", "text_decorations": "false"}]


async def test_nothing_found_is_no_failure(brave: Brave) -> None:
    brave.body = b"{}"
    assert await search(brave, '{"query":"x"}') == ToolResult("Nothing was found.", results="[]")


async def test_limits_of_the_request_reach_the_provider_and_are_kept_to(brave: Brave) -> None:
    brave.found(
        {"title": "in", "url": "https://docs.example.com/"},
        {"title": "out", "url": "https://example.com.evil.org/"},
        {"title": "blocked", "url": "https://old.example.com/"},
        {"title": "broken", "url": "http://[::1"},
    )
    result = await search(
        brave,
        '{"query":"x"}',
        search_context_size="high",
        user_location='{"type":"approximate","country":"de"}',
        filters='{"allowed_domains":["example.com"],"blocked_domains":["https://old.example.com/x"]}',
    )
    assert [hit["title"] for hit in json.loads(result.results)] == ["in"]
    query = brave.asked[0]
    assert (query["count"], query["country"]) == ("12", "DE")
    assert query["q"] == "x (site:example.com) -site:old.example.com"


@pytest.mark.parametrize("arguments", ["", "{}", "[]", "nonsense", '{"query":1}', '{"query":" "}'])
async def test_arguments_that_ask_for_nothing(brave: Brave, arguments: str) -> None:
    result = await search(brave, arguments)
    assert result.failed
    assert "query" in result.output
    assert not brave.asked


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (429, b"", "takes no more requests for now"),
        (500, b"x" * 200_000, "refused"),
        (302, b"", "refused"),
        (200, b"<html>", "an answer that is none"),
        (200, b'{"web":{"results":[{"title":1}]}}', "an answer that is none"),
        (200, b'{"web":"\xff"}', "an answer that is none"),
        (200, b'"' + b"x" * 200_000 + b'"', "too long"),
    ],
)
async def test_a_provider_that_fails_is_an_output(brave: Brave, status: int, body: bytes, words: str) -> None:
    brave.status, brave.body = status, body
    result = await search(brave, '{"query":"x"}')
    assert result.failed
    assert words in result.output


async def test_a_provider_that_does_not_answer(brave: Brave, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "turnwire")
    brave.slow = True
    assert (await search(brave, '{"query":"x"}', patience=0.2)).output == "The search took too long."
    brave.url = "http://127.0.0.1:1/"
    assert (await search(brave, '{"query":"private"}')).output == "The search service could not be reached."
    assert "private" not in caplog.text


async def test_a_wrong_key_is_not_repeated(brave: Brave, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "turnwire")
    result = await search(brave, '{"query":"x"}', key="wr0ng")
    assert result.failed
    assert "wr0ng" not in result.output + caplog.text
