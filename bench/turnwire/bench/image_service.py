"""An image service as servers had it before: one more hop, which looks at images with the very same code.

Above it: the ablation bench, and `python -m turnwire.bench.image_service`. Below it: `turnwire.server.media`. It takes
`POST /v1/images` with `{"image_url": ..., "detail": ...}`, or an image's bytes, and answers
`{"width", "height", "tokens", "data_url"}`; what it refuses is a 400 with `{"error": {"code", "message", "metadata"}}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import click
import msgspec
from aiohttp import web

from turnwire.server.media.allowlist import parse_pattern
from turnwire.server.media.config import MediaConfig
from turnwire.server.media.data_url import data_url, is_data_url
from turnwire.server.media.errors import MediaError
from turnwire.server.media.fetch import Fetcher, UrlFetcher
from turnwire.server.media.measure import measure
from turnwire.server.media.reader import image_data, not_fetched
from turnwire.server.media.rule import TILES
from turnwire.server.media.service import PATH

_MAX_BODY: Final = 64 * 1024 * 1024


class Request(msgspec.Struct):
    """What is asked."""

    image_url: str
    detail: str = "auto"


class Answer(msgspec.Struct):
    """What an image is."""

    width: int
    height: int
    tokens: int
    """By the rule for tiles."""
    data_url: str
    """The image itself; empty where it came as a data: URL, which is not sent back."""


class Images:
    """Answers requests."""

    def __init__(self, config: MediaConfig, fetcher: UrlFetcher) -> None:
        """Takes the limits, and who fetches."""
        self._config = config
        self._fetcher = fetcher

    async def handle(self, request: web.Request) -> web.Response:
        """Answers one request. Safe to cancel."""
        body = await request.read()
        try:
            if request.content_type != "application/json":
                return await self._answer(body, "auto", sent=False)
            asked = msgspec.json.decode(body, type=Request)
            if is_data_url(asked.image_url):
                data = await asyncio.to_thread(image_data, asked.image_url, self._config)
                return await self._answer(data, asked.detail, sent=True)
            if not self._config.urls:
                raise MediaError("invalid_image_url", not_fetched(asked.image_url))
            fetched = await self._fetcher.fetch(asked.image_url)
            return await self._answer(fetched.data, asked.detail, sent=False)
        except MediaError as error:
            return _refused(error)
        except msgspec.MsgspecError as error:
            return _refused(MediaError("invalid_image", str(error)))

    async def _answer(self, data: bytes, detail: str, *, sent: bool) -> web.Response:
        measured = await asyncio.to_thread(measure, data, self._config)
        answer = Answer(
            measured.width,
            measured.height,
            TILES.tokens(measured.width, measured.height, detail),
            "" if sent else data_url(measured.media_type, data),
        )
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _refused(error: MediaError) -> web.Response:
    told = {"code": error.code, "message": error.message, "metadata": error.metadata}
    body = msgspec.json.encode({"error": told})
    return web.Response(status=400, body=body, content_type="application/json")


@asynccontextmanager
async def serve_images(
    host: str, port: int, config: MediaConfig | None = None, fetcher: UrlFetcher | None = None
) -> AsyncGenerator[str, None]:
    """Serves for the length of the block, and yields the URL; the fetcher is closed at the end.

    Args:
        host: Address to listen at.
        port: Port; 0 picks a free one.
        config: Limits, and hosts to fetch from.
        fetcher: Who fetches; by default as a server does.
    """
    config = config or MediaConfig()
    fetcher = fetcher or Fetcher(config)
    app = web.Application(client_max_size=_MAX_BODY)
    app.router.add_post(PATH, Images(config, fetcher).handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await fetcher.aclose()


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", default=0, show_default=True, help="Port; 0 picks a free one.")
@click.option("--image-urls", multiple=True, metavar="HOST", help="Fetch from this host. Repeatable.")
def main(host: str, port: int, image_urls: tuple[str, ...]) -> None:
    """Serves images until it is interrupted; prints the URL once it is ready."""

    async def run() -> None:
        config = MediaConfig(urls=tuple(parse_pattern(each) for each in image_urls))
        async with serve_images(host, port, config) as url:
            click.echo(f"images listening on {url}")
            await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    main()
