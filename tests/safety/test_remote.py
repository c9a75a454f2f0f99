"""The adapter for moderations: what it sends, and that whatever comes back, or does not, is a failure by name."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from turnwire.server.policy.safety.remote import MAX_TEXT, MAX_TEXTS, Moderations, RemoteFailure
from turnwire.server.policy.safety.rules import RemoteConfig, RemoteRule
from turnwire.server.runtime.guard import Guard
from turnwire.server.session.screens import Classify, Direction, Flagged, Hit, Safety, Verdict

if TYPE_CHECKING:
    from tests.safety.conftest import Classifier


def config(classifier: Classifier, **more: Any) -> RemoteConfig:
    return replace(RemoteConfig(classifier.url, timeout=5.0), **more)


async def failure(config: RemoteConfig, *texts: str) -> str:
    remote = Moderations(config)
    try:
        with pytest.raises(RemoteFailure) as caught:
            await remote.classify(texts or ("hello",))
    finally:
        await remote.aclose()
    return caught.value.kind


async def test_categories_that_are_flagged_are_hits_with_the_action_configured(classifier: Classifier) -> None:
    async def answer(request: web.Request) -> web.Response:
        categories = {"violence": True, "hate": True, "sexual": False, "odd\nname": True}
        return web.json_response({"results": [{"flagged": True, "categories": categories}]})

    classifier.answer = answer
    rules = {"hate": RemoteRule(blocks=False, code="bio_policy")}
    remote = Moderations(config(classifier, model="omni", categories=rules))
    assert await remote.classify(["hello"]) == (Hit("violence", True), Hit("hate", False, "bio_policy"))
    assert classifier.bodies == [{"input": ["hello"], "model": "omni"}]
    assert "Authorization" not in classifier.headers[0]
    await remote.aclose()


async def test_a_flag_without_a_category_has_a_name(classifier: Classifier) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"results": [{"flagged": True}]})

    classifier.answer = answer
    remote = Moderations(config(classifier))
    assert await remote.classify(["hello"]) == (Hit("flagged", True),)
    await remote.aclose()


async def test_long_texts_are_sent_in_pieces_that_overlap(classifier: Classifier) -> None:
    remote = Moderations(config(classifier, overlap=100))
    text = "".join(chr(97 + n % 26) for n in range(MAX_TEXT * 40))
    assert await remote.classify([text + "flagme"]) == (Hit("violence", True),)
    pieces = [piece for body in classifier.bodies for piece in body["input"]]
    assert len(classifier.bodies) == 2
    assert max(map(len, pieces)) == MAX_TEXT
    assert len(classifier.bodies[0]["input"]) == MAX_TEXTS
    assert pieces[0] + "".join(piece[100:] for piece in pieces[1:]) == text + "flagme"
    await remote.aclose()


async def test_no_more_than_so_many_are_asked_at_once(classifier: Classifier) -> None:
    remote = Moderations(config(classifier, max_concurrent=3))
    await asyncio.gather(*(remote.classify([f"text {n}"]) for n in range(20)))
    assert classifier.most_at_once <= 3
    assert len(classifier.bodies) == 20
    await remote.aclose()


async def test_waiting_for_a_place_counts_as_waiting(classifier: Classifier) -> None:
    classifier.gate.clear()
    remote = Moderations(config(classifier, max_concurrent=1, timeout=0.1))
    outcomes = await asyncio.gather(*(remote.classify(["x"]) for _ in range(3)), return_exceptions=True)
    assert [getattr(outcome, "kind", None) for outcome in outcomes] == ["timeout"] * 3
    await remote.aclose()


async def test_one_that_hangs_is_a_timeout(classifier: Classifier) -> None:
    classifier.gate.clear()
    assert await failure(config(classifier, timeout=0.05)) == "timeout"


async def test_one_that_hangs_within_its_answer_is_a_timeout(classifier: Classifier) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"results": [')
        await asyncio.Event().wait()
        return response

    classifier.answer = answer
    assert await failure(config(classifier, timeout=0.1)) == "timeout"


async def test_one_that_is_not_there_is_unreachable() -> None:
    assert await failure(RemoteConfig("http://127.0.0.1:9/v1/moderations")) == "unreachable"


async def test_one_that_cuts_the_connection_is_unreachable(classifier: Classifier) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    classifier.answer = answer
    assert await failure(config(classifier)) == "unreachable"


@pytest.mark.parametrize("status", [500, 429, 404, 302, 204])
async def test_any_status_but_ok_is_a_failure(classifier: Classifier, status: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"location": classifier.url})

    classifier.answer = answer
    assert await failure(config(classifier)) == "status"
    assert len(classifier.bodies) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>",
        "[]",
        "{}",
        '{"results": {}}',
        '{"results": []}',
        '{"results": [{}]}',
        '{"results": [{"flagged": "yes"}]}',
        '{"results": [{"flagged": true, "categories": []}]}',
        '{"results": [{"flagged": false}, {"flagged": false}]}',
        "[" * 100_000,
        "\udcff",
    ],
)
async def test_an_answer_of_another_shape_is_garbage(classifier: Classifier, text: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=text.encode(errors="surrogateescape"), content_type="application/json")

    classifier.answer = answer
    assert await failure(config(classifier)) == "garbage"


async def test_an_answer_of_fifty_megabytes_is_not_read(classifier: Classifier) -> None:
    written = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        piece = b" " * 64 * 1024
        for _ in range(800):
            await response.write(piece)
            written += len(piece)
        return response

    classifier.answer = answer
    assert await failure(config(classifier)) == "garbage"
    assert written < 20 * 1024 * 1024


class _Counts:
    """Hears what a guard tells."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, bool]] = []
        self.answers = 0

    def flagged(self, flag: Flagged) -> None:
        raise AssertionError

    def classified(self, seconds: float) -> None:
        self.answers += 1

    def unclassified(self, kind: str, *, went_on: bool) -> None:
        self.failures.append((kind, went_on))


class _Broken:
    """A classifier with a bug."""

    async def classify(self, texts: object) -> tuple[Hit, ...]:
        msg = f"cannot take {texts!r}"
        raise ValueError(msg)

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("fails_open", [True, False])
async def test_a_crash_is_counted_and_told_as_configured(fails_open: bool) -> None:
    counts = _Counts()
    guard = Guard(Safety(), _Broken(), fails_open=fails_open, observer=counts)
    verdict = await guard.judge(Classify(1, 1, Direction.OUTPUT, text="something"))
    assert verdict == Verdict(failed=not fails_open)
    assert counts.failures == [("crash", fails_open)]
