"""Images and files through a whole server: what the upstream gets, what is counted, what is refused and where."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from turnwire.bench.image_service import serve_images
from turnwire.client import connect, image_part, user
from turnwire.client.exceptions import RequestRejectedError
from turnwire.server.engine.chat.config import ChatEngineConfig, ChatModel
from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.server.engine.profile import ALL, TEXTS
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.engine.stepped import StepEngine
from turnwire.server.media.allowlist import parse_pattern
from turnwire.server.media.config import MediaConfig
from turnwire.server.media.fetch import Fetcher
from turnwire.server.media.reader import MediaReader
from turnwire.server.media.service import ImageService
from turnwire.server.policy.prepare import ITEM_OVERHEAD, Preparer
from turnwire.server.runtime.local import LocalCaller
from turnwire.server.runtime.media import MediaRoom, append_prepared_apart
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.sessions import SessionRoom
from turnwire.server.session.effects import PrepareAppend
from turnwire.server.session.limits import SessionLimits
from turnwire.server.testing import fixed_size, make_services, serving
from turnwire.v1.client_event_pb2 import RequestContext
from turnwire.v1.errors import RequestError
from turnwire.v1.item_pb2 import ContentPart, FunctionCallOutput, InputFile, InputImage, Item
from turnwire.v1.json import from_json
from turnwire.v1.response_pb2 import ResponseCreate, Verbosity
from turnwire.v1.server_event_pb2 import ResponseDone

from .conftest import Host, LoopbackOnly, Names, application
from .images import PNG_URL, image, picture, png, url_of

LARGE = image("PNG", 1024, 1024)


class Upstream:
    """A chat upstream that keeps what it gets and says one thing."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        said: list[dict[str, Any]] = [{"delta": {"content": "Seen."}}, {"delta": {}, "finish_reason": "stop"}]
        for part in said:
            await response.write(b"data: " + json.dumps({"choices": [{"index": 0, **part}]}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    def parts(self, number: int = -1) -> list[dict[str, Any]]:
        """What the last message of a request says, other than text."""
        messages: list[dict[str, Any]] = self.bodies[number]["messages"]
        return [part for message in messages for part in _content(message) if part["type"] != "text"]

    def images(self, number: int = -1) -> list[str]:
        return [part["image_url"]["url"] for part in self.parts(number)]


def _content(message: dict[str, Any]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] | str | None = message.get("content")
    return [] if content is None or isinstance(content, str) else content


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    fake = Upstream()
    runner = web.AppRunner(application(fake.handle), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield fake
    await runner.cleanup()


class House:
    """A server in the test's process."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.caller = LocalCaller(SessionRoom(services), "somebody", "http")

    async def create(self, *parts: dict[str, Any], **body: Any) -> ResponseDone:
        body = {"model": "m", "input": [{"role": "user", "content": list(parts)}]} | body
        create = from_json(ResponseCreate, json.dumps(body))
        create.echo, create.verbosity = True, Verbosity.VERBOSITY_DONE
        async with asyncio.timeout(20):
            async for events in self.caller.respond(create, RequestContext()):
                for event in events:
                    if event.HasField("done"):
                        return event.done
                    if event.HasField("rejected"):
                        raise RequestError(event.rejected.error)
        raise AssertionError

    async def refusal(self, *parts: dict[str, Any]) -> str:
        with pytest.raises(RequestError) as caught:
            await self.create(*parts)
        return str(caught.value.error)

    async def refused(self, *parts: dict[str, Any], **body: Any) -> tuple[str, str]:
        with pytest.raises(RequestError) as caught:
            await self.create(*parts, **body)
        return caught.value.error.code, caught.value.error.param


@asynccontextmanager
async def house(
    upstream: Upstream, config: MediaConfig | None = None, names: Names | None = None, **chat: Any
) -> AsyncGenerator[House, None]:
    options: dict[str, Any] = {"models": (ChatModel("m"),), **chat}
    engine = ChatEngine(ChatEngineConfig(upstream.url, **options))
    registry = EngineRegistry([engine])
    services = make_services([engine])
    config = config or MediaConfig()
    services.policy = Preparer(
        registry.resolve,
        services.limits,
        count=fixed_size,
        profile=registry.profile,
        media=MediaReader(config),
        takes=registry.takes,
    )
    services.media = MediaRoom(
        config,
        fetcher=Fetcher(config, resolver=names, addresses=LoopbackOnly()) if config.urls else None,
        service=ImageService(config) if config.service else None,
    )
    try:
        yield House(services)
    finally:
        await services.media.aclose()
        await engine.aclose()


def allowing(host: Host, **limits: Any) -> MediaConfig:
    return MediaConfig(urls=(parse_pattern(f"images.test:{host.port}"),), **limits)


async def test_an_image_reaches_the_upstream_and_is_counted_once(upstream: Upstream) -> None:
    async with house(upstream) as server:
        first = await server.create({"type": "input_text", "text": "What is it?"}, picture(url_of(LARGE)))
        second = await server.create({"type": "input_text", "text": "And now?"}, previous_response_id=first.response.id)
        visits = server.services.visits

        assert upstream.images(0) == upstream.images(1) == [url_of(LARGE)]
        assert first.usage.input_tokens == 3 + 765 + ITEM_OVERHEAD
        assert second.usage.input_tokens - first.usage.input_tokens < 20
        assert (visits.items["account"], visits.sizes["account"]) == (1, len(LARGE))
        low = await server.create(picture(url_of(LARGE), detail="low"))
        assert low.usage.input_tokens == 85 + ITEM_OVERHEAD
        assert visits.items["account"] == 2


async def test_who_sends_everything_again_pays_for_new_images_only(upstream: Upstream) -> None:
    async with house(upstream) as server:
        said: list[dict[str, Any]] = [{"role": "user", "content": [picture()]}]
        await server.create(input=said)
        said += [{"role": "assistant", "content": "Seen."}, {"role": "user", "content": [picture(detail="low")]}]
        await server.create(input=said)

        assert server.services.visits.items["account"] == 2
        assert len(upstream.images()) == 2


async def test_an_image_of_a_tool_is_read_like_any_other(upstream: Upstream) -> None:
    async with house(upstream) as server:
        call = {"type": "function_call", "call_id": "c", "name": "shot", "arguments": "{}"}
        output: dict[str, Any] = {"type": "function_call_output", "call_id": "c", "output": [picture()]}
        await server.create(input=[call, output])
        assert upstream.images() == [PNG_URL]

        output["output"] = [{"type": "input_text", "text": "x"}, picture("data:image/png;base64,AAAA")]
        assert await server.refused(input=[call, output]) == ("invalid_image_format", "input[1].output[1].image_url")


BAD = [
    ("data:image/png;base64,", "empty_image_file"),
    ("data:image/png;base64,!!!!", "invalid_base64_image"),
    ("data:image/png;base64,AAA", "invalid_base64_image"),
    ("data:image/png,abc", "invalid_base64_image"),
    ("data:,", "invalid_base64_image"),
    ("data:image/tiff;base64,AAAA", "unsupported_image_media_type"),
    ("data:text/html;base64,AAAA", "unsupported_image_media_type"),
    (url_of(b"GIF89a"), "image_parse_error"),
    (url_of(LARGE[:300]), "image_parse_error"),
    (url_of(png(100_000, 100_000)), "image_too_large"),
    (url_of(png(0, 1)), "image_too_small"),
    ("https://example.com/a.png", "invalid_image_url"),
    ("file:///etc/passwd", "invalid_image_url"),
    ("a.png", "invalid_image_url"),
]


@pytest.mark.parametrize(("url", "code"), BAD)
async def test_a_bad_image_is_refused_by_its_path_and_starts_nothing(upstream: Upstream, url: str, code: str) -> None:
    async with house(upstream) as server:
        text = {"type": "input_text", "text": "x"}
        assert await server.refused(text, picture(url)) == (code, "input[0].content[1].image_url")
        assert not upstream.bodies


async def test_what_is_mislabelled_is_judged_by_what_it_is(upstream: Upstream) -> None:
    async with house(upstream) as server:
        await server.create(picture(url_of(image("JPEG"), "image/png")), picture(url_of(image("JPEG"), "image/jpg")))
        assert len(upstream.images()) == 2


async def test_limits_hold(upstream: Upstream) -> None:
    async with house(upstream, MediaConfig(max_images=2, max_bytes=200)) as server:
        assert await server.refused(picture(), picture(), picture()) == (
            "array_above_max_length",
            "input[0].content[2]",
        )
        assert (await server.refused(picture(url_of(LARGE))))[0] == "image_file_too_large"


async def test_a_model_without_images_names_the_part(upstream: Upstream) -> None:
    async with house(upstream, models=(ChatModel("m", images=False),)) as server:
        assert await server.refused(picture()) == ("invalid_value", "input[0].content[0]")
        assert await server.refused(picture("data:,")) == ("invalid_value", "input[0].content[0]")


async def test_an_image_by_url_is_fetched_once_and_reaches_the_upstream_as_data(
    upstream: Upstream, host: Host, names: Names
) -> None:
    url = host.serve("/a.png", LARGE, Content_Type="application/octet-stream")
    async with house(upstream, allowing(host), names) as server:
        first = await server.create(picture(url), picture(url, detail="low"))
        await server.create({"type": "input_text", "text": "?"}, previous_response_id=first.response.id)
        await server.create(picture(url))

        assert upstream.images(0) == upstream.images(1) == [url_of(LARGE)] * 2
        assert upstream.images(2) == [url_of(LARGE)]
        assert len(host.requests) == 1
        assert first.usage.input_tokens == 765 + 85 + ITEM_OVERHEAD
        assert server.services.visits.items["validate"] == 3


async def test_several_images_are_fetched_at_the_same_time(upstream: Upstream, host: Host, names: Names) -> None:
    waiting = 0
    all_here = asyncio.Event()

    async def meet(request: web.Request) -> web.StreamResponse:
        nonlocal waiting
        waiting += 1
        if waiting == 4:
            all_here.set()
        await all_here.wait()
        return web.Response(body=image())

    urls = [host.url(f"/{number}.png") for number in range(4)]
    host.paths = {f"/{number}.png": meet for number in range(4)}
    async with house(upstream, allowing(host), names) as server:
        await server.create(*[picture(url) for url in urls])
        assert len(upstream.images()) == 4


async def test_a_url_that_cannot_be_fetched_is_refused_by_its_path(
    upstream: Upstream, host: Host, names: Names
) -> None:
    good, page = host.serve("/a.png", image()), host.serve("/page", b"<html>", Content_Type="image/png")
    async with house(upstream, allowing(host, max_fetched_bytes=200), names) as server:
        for url, code in [
            (host.url("/missing"), "failed_to_download_image"),
            (page, "invalid_image_format"),
            (host.serve("/empty", b""), "empty_image_file"),
            ("http://other.test/a.png", "invalid_image_url"),
        ]:
            assert await server.refused(picture(good), picture(url)) == (code, "input[0].content[1].image_url")
        more = [host.serve(f"/{number}", image()) for number in range(9)]
        assert (await server.refused(*[picture(url) for url in more]))[0] == "image_file_too_large"


async def test_a_session_that_ends_lets_go_of_what_it_was_fetching(
    upstream: Upstream, host: Host, names: Names
) -> None:
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
    async with house(upstream, allowing(host), names) as server, asyncio.timeout(10):
        creating = asyncio.create_task(server.create(picture(host.url("/slow"))))
        await asked.wait()
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        await gone.wait()
        assert not upstream.bodies


async def test_an_image_service_in_between_changes_no_answer(upstream: Upstream, host: Host, names: Names) -> None:
    url = host.serve("/a.png", LARGE)
    near = allowing(host)
    fetcher = Fetcher(near, resolver=names, addresses=LoopbackOnly())
    async with serve_images("127.0.0.1", 0, near, fetcher) as service:
        far = MediaConfig(urls=near.urls, service=service)
        outcomes: list[Any] = []
        for config in (near, far):
            async with house(upstream, config, names) as server:
                done = await server.create(picture(url_of(LARGE)), picture(url), picture(PNG_URL, detail="low"))
                refusals = [await server.refusal(picture(bad)) for bad, _ in BAD]
                outcomes.append((done.usage.input_tokens, upstream.images(), refusals))
        assert outcomes[0] == outcomes[1]


async def test_an_image_service_that_is_down_is_the_servers_trouble(upstream: Upstream) -> None:
    async with house(upstream, MediaConfig(service="http://127.0.0.1:1")) as server:
        assert await server.refused(picture()) == ("server_error", "input[0].content[0].image_url")


def file(data: bytes, media_type: str = "text/plain", **more: Any) -> dict[str, Any]:
    return {"type": "input_file", "file_data": url_of(data, media_type), **more}


async def test_a_text_is_read_and_counted_whatever_the_model_takes(upstream: Upstream) -> None:
    async with house(upstream, models=(ChatModel("m", images=False),)) as server:
        done = await server.create(file(b"one two three", filename="a.txt"))

        assert upstream.bodies[0]["messages"][0]["content"] == "File 'a.txt':\n\none two three"
        assert done.usage.input_tokens == 5 + ITEM_OVERHEAD


@pytest.mark.parametrize(
    ("part", "param"),
    [
        (file(b""), "file_data"),
        (file(b"\xff\xfe"), "file_data"),
        (file(b"a\0b"), "file_data"),
        (file(b"x", "application/zip"), "file_data"),
        (file(image(), "image/png"), "file_data"),
        (file(b"no", "application/pdf"), "file_data"),
        ({"type": "input_file", "file_data": "data:text/plain,abc"}, "file_data"),
        ({"type": "input_file", "file_data": "?"}, "file_data"),
        ({"type": "input_file", "file_url": "https://example.com/a.txt"}, "file_url"),
    ],
)
async def test_a_bad_file_is_refused_by_its_path(upstream: Upstream, part: dict[str, Any], param: str) -> None:
    async with house(upstream) as server:
        assert await server.refused(part) == ("invalid_value", f"input[0].content[0].{param}")


async def test_a_pdf_goes_to_whoever_reads_pdfs(upstream: Upstream, host: Host, names: Names) -> None:
    pdf = b"%PDF-1.7\n..."
    url = host.serve("/a.pdf", pdf, Content_Type="application/pdf")
    text = host.serve("/a.txt", b"hello", Content_Type="text/plain; charset=utf-8")
    parts: Sequence[dict[str, Any]] = (
        file(pdf, "application/pdf", filename="a.pdf"),
        {"type": "input_file", "file_url": url},
        {"type": "input_file", "file_url": text},
    )
    async with house(upstream, allowing(host), names, flavour="openai") as server:
        await server.create(*parts)
        assert [part["file"]["file_data"] for part in upstream.parts()] == [url_of(pdf, "application/pdf")] * 2
        assert "hello" in json.dumps(upstream.bodies[-1])
    async with house(upstream, allowing(host), names) as server:
        assert await server.refused(*parts) == ("invalid_value", "input[0].content[0]")


async def test_the_grpc_door_names_the_part_too_and_the_session_lives_on(upstream: Upstream) -> None:
    async with house(upstream) as server, serving(server.services) as address, connect(address) as session:
        bad, good = image_part("data:image/png;base64,AAAA"), image_part(PNG_URL)
        with pytest.raises(RequestRejectedError) as caught:
            await session.create(model="m", input=[user([bad])])
        assert (caught.value.code, caught.value.param) == ("invalid_image_format", "input[0].content[0].image_url")
        async with asyncio.timeout(10):
            stream = await session.create(model="m", input=[user([good])])
            await stream.until_done()
        assert upstream.images() == [PNG_URL]


async def test_an_appended_image_is_checked_and_counted(host: Host, names: Names) -> None:
    engine = StepEngine()
    services = make_services([engine])
    config = allowing(host)
    services.media = MediaRoom(config, fetcher=Fetcher(config, resolver=names, addresses=LoopbackOnly()))
    services.policy = Preparer(lambda name: name, services.limits, count=fixed_size, media=MediaReader(config))
    url = host.serve("/a.png", LARGE)
    call = Item(function_call_output=FunctionCallOutput(call_id="c"))
    call.function_call_output.output.parts.parts.add().input_image.image_url = url
    found = await append_prepared_apart(
        services.policy, services.media, PrepareAppend(1, 1, [call], 0, model="m", visits=services.visits), ""
    )
    await services.media.aclose()

    assert [entry.tokens for entry in found] == [765 + ITEM_OVERHEAD]
    shown = found[0].item().function_call_output.output.parts.parts[0].input_image
    sent = found[0].sent().function_call_output.output.parts.parts[0].input_image
    assert (shown.image_url, sent.image_url) == (url_of(LARGE), url)
    assert services.visits.items["account"] == 1


def test_what_no_engine_can_hand_on_is_refused_for_appends_too() -> None:
    preparer = Preparer(
        lambda name: name, SessionLimits(), count=fixed_size, takes=lambda name: TEXTS if name == "m" else ALL
    )
    for part in (
        ContentPart(input_image=InputImage(image_url=PNG_URL)),
        ContentPart(input_file=InputFile(file_id="f")),
    ):
        output = Item(function_call_output=FunctionCallOutput(call_id="c"))
        output.function_call_output.output.parts.parts.append(part)
        with pytest.raises(RequestError) as caught:
            preparer.prepare_append([output], model="m")
        assert (caught.value.error.code, caught.value.error.param) == ("invalid_value", "input[0].output[0]")
        preparer.prepare_append([output], model="other")
