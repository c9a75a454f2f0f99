"""Hosts of images on loopback, reached under names that only these tests resolve."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from turnwire.server.media.addresses import Address
from turnwire.server.media.allowlist import parse_pattern
from turnwire.server.media.config import MediaConfig
from turnwire.server.media.fetch import Fetcher

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(handler: Handler) -> web.Application:
    """An application with one answer to everything."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handler)
    return app


class LoopbackOnly:
    """Allows what the tests serve from, and nothing that is public."""

    def allows(self, address: Address) -> bool:
        return address.is_loopback


class Names(AbstractResolver):
    """Resolves the names of a test, and counts how often."""

    def __init__(self, names: Mapping[str, list[str]]) -> None:
        self.names = dict(names)
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if host not in self.names:
            raise OSError(f"{host} is unknown")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.names[host]
        ]

    async def close(self) -> None:
        pass


class Host:
    """A host of images."""

    def __init__(self) -> None:
        self.port = 0
        self.paths: dict[str, Handler] = {}
        self.requests: list[web.Request] = []

    def url(self, path: str = "/a.png", host: str = "images.test") -> str:
        return f"http://{host}:{self.port}{path}"

    def serve(self, path: str, body: bytes, status: int = 200, **headers: str) -> str:
        """Answers a path, and returns its URL."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(body=body, status=status, headers=named)

        self.paths[path] = answer
        return self.url(path)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if request.path not in self.paths:
            return web.Response(status=404)
        return await self.paths[request.path](request)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    host = Host()
    runner = web.AppRunner(application(host.handle), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host.port = runner.addresses[0][1]
    yield host
    await runner.cleanup()


@pytest.fixture
def names() -> Names:
    return Names({"images.test": ["127.0.0.1"]})


MakeFetcher = Callable[..., Fetcher]


@pytest.fixture
async def make_fetcher(host: Host, names: Names) -> AsyncIterator[MakeFetcher]:
    made: list[Fetcher] = []

    def make(*patterns: str, public: bool = False, **limits: Any) -> Fetcher:
        urls = tuple(parse_pattern(each) for each in patterns or (f"images.test:{host.port}",))
        config = MediaConfig(urls=urls, **limits)
        made.append(Fetcher(config, resolver=names, addresses=None if public else LoopbackOnly()))
        return made[-1]

    yield make
    for fetcher in made:
        await fetcher.aclose()
