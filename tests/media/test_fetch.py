"""Fetching from real hosts on loopback, under names of the tests' own."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from turnwire.server.media.errors import MediaError
from turnwire.server.media.fetch import Fetcher

from .conftest import Host, MakeFetcher, Names
from .images import image

PNG = image()


async def refused(fetcher: Fetcher, url: str) -> MediaError:
    with pytest.raises(MediaError) as caught:
        async with asyncio.timeout(10):
            await fetcher.fetch(url)
    return caught.value


async def test_what_stands_at_a_url_is_fetched_without_telling_who_asks(host: Host, make_fetcher: MakeFetcher) -> None:
    fetched = await make_fetcher().fetch(host.serve("/a.png", PNG, Content_Type="image/PNG", Set_Cookie="a=b"))

    assert (fetched.data, fetched.media_type) == (PNG, "image/png")
    await make_fetcher().fetch(host.url() + "#part")
    assert [request.path_qs for request in host.requests] == ["/a.png", "/a.png"]
    for request in host.requests:
        assert not {"Cookie", "Authorization", "Referer"} & set(request.headers)
        assert request.headers["Accept-Encoding"] == "identity"


async def test_the_environment_has_no_say(
    host: Host, make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert (await make_fetcher().fetch(host.serve("/a.png", PNG))).data == PNG


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://images.test/a.png",
        "file:///etc/passwd",
        "//images.test/a.png",
        "images.test/a.png",
        "http://",
        "http:///a.png",
        "http://[::1",
        "http://images.test:99999/",
        "http://user@images.test:{port}/a.png",
        "http://user:secret@images.test:{port}/a.png",
        "http://other.test:{port}/a.png",
        "http://images.test.evil.test:{port}/a.png",
        "http://images.test:{other}/a.png",
        "http://images.test:{port}\\@other.test/a.png",
        "http://images.test:{port}/" + "a" * 9000,
    ],
)
async def test_a_url_that_is_none_or_not_allowed_is_not_even_looked_up(
    url: str, host: Host, make_fetcher: MakeFetcher, names: Names
) -> None:
    url = url.replace("{port}", str(host.port)).replace("{other}", str(host.port % 60_000 + 1))

    error = await refused(make_fetcher(), url)
    assert error.code == "invalid_image_url"
    assert "secret" not in error.message
    assert not names.asked
    assert not host.requests


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.1.2.3"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["fd00:ec2::254"],
        ["8.8.8.8", "127.0.0.1"],
    ],
)
async def test_a_name_that_leads_inside_is_not_connected_to_whatever_dns_says(
    addresses: list[str], host: Host, make_fetcher: MakeFetcher, names: Names
) -> None:
    names.names["images.test"] = addresses

    error = await refused(make_fetcher(public=True), host.serve("/a.png", PNG))
    assert (error.code, error.metadata) == ("failed_to_download_image", {"reason": "its host may not be asked"})
    assert names.asked == ["images.test"]
    assert not host.requests


@pytest.mark.parametrize(
    "name",
    ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.1.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"],
)
async def test_an_address_is_checked_however_it_is_written(
    name: str, host: Host, make_fetcher: MakeFetcher, names: Names
) -> None:
    # As the system would resolve them.
    for odd in ("127.0.0.1.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"):
        names.names[odd] = ["127.0.0.1"]
        names.names[odd.rstrip(".")] = ["127.0.0.1"]

    error = await refused(make_fetcher(f"*:{host.port}", public=True), host.url(host=name))
    assert error.code in ("failed_to_download_image", "invalid_image_url")
    assert not host.requests


async def test_a_name_is_resolved_once_and_the_checked_address_is_the_one_that_is_asked(
    host: Host, make_fetcher: MakeFetcher, names: Names
) -> None:
    await make_fetcher().fetch(host.serve("/a.png", PNG))

    assert names.asked == ["images.test"]


async def test_redirects_are_checked_like_the_first_url(host: Host, make_fetcher: MakeFetcher, names: Names) -> None:
    names.names["inside.test"] = ["10.0.0.1"]
    host.serve("/a.png", PNG)
    host.serve("/near", b"", 302, Location="/a.png")
    host.serve("/far", b"", 307, Location="http://other.test/a.png")
    host.serve("/scheme", b"", 301, Location="file:///etc/passwd")
    host.serve("/inside", b"", 301, Location=f"http://inside.test:{host.port}/a.png")
    host.serve("/literal", b"", 301, Location="http://169.254.169.254/latest/meta-data")
    host.serve("/round", b"", 302, Location="/round")
    host.serve("/nowhere", b"", 302)
    fetcher = make_fetcher(f"images.test:{host.port}", f"inside.test:{host.port}", "169.254.169.254")

    assert (await fetcher.fetch(host.url("/near"))).data == PNG
    for path, code in [
        ("/far", "invalid_image_url"),
        ("/scheme", "invalid_image_url"),
        ("/inside", "failed_to_download_image"),
        ("/literal", "failed_to_download_image"),
        ("/round", "failed_to_download_image"),
        ("/nowhere", "failed_to_download_image"),
    ]:
        assert (await refused(fetcher, host.url(path))).code == code, path
    assert len([request for request in host.requests if request.path == "/round"]) == 4


async def test_more_than_the_limit_is_not_read(host: Host, make_fetcher: MakeFetcher) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(65_536))
            sent += 65_536

    host.paths["/endless"] = endless
    fetcher = make_fetcher(max_bytes=100_000)

    assert (await refused(fetcher, host.serve("/large", bytes(100_001)))).code == "image_file_too_large"
    assert (await refused(fetcher, host.url("/endless"))).code == "image_file_too_large"
    assert sent < 20_000_000
    assert len((await fetcher.fetch(host.serve("/most", bytes(100_000)))).data) == 100_000


async def test_who_does_not_answer_in_time_or_with_an_image_fails(host: Host, make_fetcher: MakeFetcher) -> None:
    never = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    host.paths["/silent"] = silent
    assert "0.2 s" in (await refused(make_fetcher(timeout=0.2), host.url("/silent"))).message
    never.set()
    fetcher = make_fetcher(f"images.test:{host.port}", "closed.test:1", "unknown.test")
    assert "answered 404" in (await refused(fetcher, host.url("/missing"))).message
    gzip = host.serve("/gzip", b"\x1f\x8b", Content_Encoding="gzip")
    assert "compressed" in (await refused(fetcher, gzip)).message
    for url in ("http://closed.test:1/", "http://unknown.test/"):
        error = await refused(fetcher, url)
        assert (error.code, error.metadata["reason"]) == ("failed_to_download_image", "its host cannot be reached")


async def test_a_fetch_that_is_cancelled_lets_go_of_its_host(host: Host, make_fetcher: MakeFetcher) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        asked.set()
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x")
                await asyncio.sleep(0)
        finally:
            gone.set()

    host.paths["/slow"] = slow
    fetching = asyncio.create_task(make_fetcher().fetch(host.url("/slow")))
    async with asyncio.timeout(5):
        await asked.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await gone.wait()
