"""Upstreams that are down, slow or rude: each gets a failure with a code, and none gets an exception."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from turnwire.server.engine.chat.engine import ChatEngine
from turnwire.server.session.chunks import Chunk, FinishReason
from turnwire.server.session.transcript import EMPTY

from .scene import FakeUpstream, RecordingSink, grown, prompt
from .upstream import PLAIN, delta, event

if TYPE_CHECKING:
    from .conftest import Make

HI = grown(EMPTY, {"role": "user", "content": "Hi"})
TEXT = event(delta(content="x"))
STOP = event(delta("stop"))
DONE = b"data: [DONE]\n\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_nobody_listens(make_engine: Make, sink: RecordingSink) -> None:
    make_engine(base_url=f"http://127.0.0.1:{free_port()}").start(prompt(HI), sink)
    failure = await sink.failure()
    assert failure.code == "engine_unavailable"
    assert failure.retry_after


async def test_nobody_has_that_name(make_engine: Make, sink: RecordingSink) -> None:
    make_engine(base_url="http://nobody.invalid").start(prompt(HI), sink)
    assert (await sink.failure()).code == "engine_unavailable"


async def test_what_listens_speaks_no_tls(make_engine: Make, upstream: FakeUpstream, sink: RecordingSink) -> None:
    make_engine(base_url=f"https://127.0.0.1:{upstream.port}").start(prompt(HI), sink)
    assert (await sink.failure()).code in ("engine_unavailable", "server_error")


async def test_a_full_pool_is_no_silent_wait(make_engine: Make, upstream: FakeUpstream, sink: RecordingSink) -> None:
    engine = make_engine(max_connections=1, connect_timeout=0.05)
    await upstream.script({"gate": "never"})
    engine.start(prompt(HI), RecordingSink())
    await upstream.happened("request 0")
    engine.start(prompt(HI), sink)
    assert (await sink.failure()).code == "engine_unavailable"


async def test_an_upstream_that_never_answers(make_engine: Make, upstream: FakeUpstream, sink: RecordingSink) -> None:
    await upstream.script({"gate": "never"})
    make_engine(first_byte_timeout=0.05).start(prompt(HI), sink)
    failure = await sink.failure()
    assert failure.code == "engine_unavailable"
    assert "0.05 seconds" in failure.message
    await upstream.happened("lost 0")


async def test_an_upstream_that_falls_silent(make_engine: Make, upstream: FakeUpstream, sink: RecordingSink) -> None:
    await upstream.script({"head": 200}, {"send": TEXT}, {"gate": "never"})
    make_engine(idle_timeout=0.05).start(prompt(HI), sink)
    assert (await sink.failure()).code == "engine_unavailable"
    assert sink.said == [("text", "x")]
    await upstream.happened("lost 0")


async def test_a_slow_prefill_is_waited_for(make_engine: Make, upstream: FakeUpstream, sink: RecordingSink) -> None:
    await upstream.script({"gate": "prefilled"}, {"head": 200}, {"send": PLAIN}, {"end": True})
    make_engine(idle_timeout=0.01, connect_timeout=0.5).start(prompt(HI), sink)
    await upstream.happened("request 0")
    assert sink.outcomes == []
    await upstream.open("prefilled")
    await sink.outcome()
    assert sink.said == [("text", "Hello.")]


async def test_usage_and_end_are_not_waited_for_without_limit(
    make_engine: Make, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    await upstream.script({"head": 200}, {"send": TEXT + STOP}, {"gate": "never"})
    make_engine(tail_timeout=0.05).start(prompt(HI), sink)
    finish = await sink.finish()
    assert finish.reason is FinishReason.STOP
    assert finish.usage.output_tokens == 1


@pytest.mark.parametrize("steps", [[{"close": True}], [{"reset": True}]])
async def test_death_before_the_first_word_may_be_tried_again(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink, steps: list[dict[str, Any]]
) -> None:
    await upstream.script(*steps)
    engine.start(prompt(HI), sink)
    failure = await sink.failure()
    assert failure.code == "engine_unavailable"
    assert failure.retry_after
    assert len(await upstream.requests()) == 1


@pytest.mark.parametrize("how", ["close", "reset", "end"])
async def test_death_in_the_middle_keeps_what_was_said(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink, how: str
) -> None:
    await upstream.script({"head": 200}, {"send": TEXT}, {"gate": "said"}, {how: True})
    engine.start(prompt(HI), sink)
    await sink.until(lambda: bool(sink.chunks))
    await upstream.open("said")
    assert (await sink.failure()).code == "server_error"
    assert sink.said == [("text", "x")]


async def test_death_after_the_finish_is_a_finish(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    await upstream.script({"head": 200}, {"send": TEXT + STOP}, {"close": True})
    engine.start(prompt(HI), sink)
    await sink.finish()


async def test_a_kept_connection_that_was_closed_is_replaced(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    warm = RecordingSink()
    engine.start(prompt(HI), warm)
    await warm.finish()
    await upstream.script({"close": True})
    engine.start(prompt(HI), sink)
    await sink.finish()
    assert sink.said == [("text", "Hello.")]
    assert engine.stats.retried == 1
    assert len(await upstream.requests()) == 3


async def test_refusals_keep_their_code_and_their_time(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    await upstream.refuse(429, b'{"error": {"message": "slow down"}}', retry_after="3")
    engine.start(prompt(HI), sink)
    failure = await sink.failure()
    assert (failure.code, failure.retry_after) == ("rate_limit_exceeded", 3.0)
    assert engine.stats.failed == {"rate_limit_exceeded": 1}


async def test_an_overflow_is_told_in_the_official_code(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    text = "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it"
    body = {"error": {"code": 400, "message": text, "type": "exceed_context_size_error"}}
    await upstream.refuse(400, json.dumps(body).encode())
    engine.start(prompt(HI), sink)
    failure = await sink.failure()
    assert failure.code == "context_length_exceeded"
    assert "4096" in failure.message


async def test_the_servers_key_is_never_told(make_engine: Make, upstream: FakeUpstream, sink: RecordingSink) -> None:
    await upstream.refuse(400, b'{"error": {"message": "bad key sk-verysecret here"}}')
    make_engine(api_key="sk-verysecret").start(prompt(HI), sink)
    assert "verysecret" not in (await sink.failure()).message


async def test_a_huge_error_is_read_only_as_far_as_it_matters(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    await upstream.script({"head": 400}, {"flood": b"x" * 60_000, "times": 10_000}, {"end": True})
    engine.start(prompt(HI), sink)
    failure = await sink.failure()
    assert failure.code == "invalid_request_error"
    assert len(failure.message) < 400
    await upstream.happened("lost 0")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ({"type": "text/html"}, b"<html>Sign in</html>"),
        ({"type": "text/event-stream"}, b"data: <oops>\n\n"),
        ({"type": "application/json"}, b'{"choices": "none"}'),
        ({"type": "application/json"}, b'{"choices": ['),
        ({"type": "application/json"}, b"[]"),
        ({"type": "image/png"}, b"\x89PNG\r\n\x1a\n" * 10),
        ({"type": "text/event-stream"}, b""),
        ({"headers": {"content-encoding": "gzip"}}, b"data: no gzip at all\n\n"),
    ],
)
async def test_answers_that_are_none(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink, head: dict[str, Any], body: bytes
) -> None:
    await upstream.stream(body, **head) if body else await upstream.stream(**head)
    engine.start(prompt(HI), sink)
    failure = await sink.failure()
    assert failure.code in ("server_error", "engine_unavailable")
    assert sink.chunks == []


@pytest.mark.parametrize(
    "raw",
    [
        b"hello?\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\ndata: ",
    ],
)
async def test_an_upstream_that_speaks_no_http(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink, raw: bytes
) -> None:
    await upstream.script({"raw": raw}, {"close": True})
    engine.start(prompt(HI), sink)
    assert (await sink.failure()).code in ("server_error", "engine_unavailable")


async def test_an_answer_without_any_framing_is_read_to_its_end(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    await upstream.script({"head": 200, "unframed": True}, {"raw": PLAIN}, {"close": True})
    engine.start(prompt(HI), sink)
    await sink.finish()
    assert sink.said == [("text", "Hello.")]


async def test_a_whole_answer_under_any_content_type_is_read(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    answer = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    await upstream.stream(json.dumps(answer).encode(), type="text/event-stream")
    engine.start(prompt(HI), sink)
    await sink.finish()
    assert sink.said == [("text", "whole")]


async def test_a_redirect_is_not_followed(engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink) -> None:
    await upstream.refuse(307, b"", location="http://127.0.0.1:9/v1/chat/completions")
    engine.start(prompt(HI), sink)
    assert "redirect" in (await sink.failure()).message


async def test_a_model_that_is_not_served_is_not_asked_for(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    engine.start(prompt(HI, model="other"), sink)
    assert sink.outcomes == []
    assert (await sink.failure()).code == "model_not_found"
    assert await upstream.requests() == []


async def test_an_item_the_model_cannot_take_is_refused_before_it_is_asked(
    make_engine: Make, upstream: FakeUpstream, sink: RecordingSink
) -> None:
    chain = grown(EMPTY, {"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]})
    make_engine().start(prompt(chain), sink)
    assert (await sink.failure()).code == "invalid_value"
    assert await upstream.requests() == []


async def test_a_sink_that_breaks_takes_nobody_else_with_it(
    engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(RecordingSink):
        def output(self, chunks: Any) -> None:
            raise ValueError

    await upstream.script({"head": 200}, {"send": TEXT}, {"gate": "never"})
    engine.start(prompt(HI), Broken())
    await upstream.happened("lost 0")
    assert "its sink failed" in caplog.text
    engine.start(prompt(HI), sink)
    await sink.finish()


async def test_nothing_is_said_after_the_end(engine: ChatEngine, upstream: FakeUpstream, sink: RecordingSink) -> None:
    await upstream.stream(TEXT + STOP + DONE + TEXT, STOP, TEXT)
    engine.start(prompt(HI), sink)
    await sink.finish()
    chunks: list[Chunk] = list(sink.chunks)
    assert len(chunks) == 1
