"""A fake of an OpenAI-compatible chat server: it says a few words and calls a tool, whatever it is asked.

Above it: tests and measurements, and `python -m turnwire.bench.fakes.chat`. Below it: aiohttp. What it says depends on
the request alone: calls are numbered by the messages, and usage counts the bytes of the body, so that equal answers
mean that the same was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import msgspec
from aiohttp import web

MODEL: Final = "chat"
"""The model it serves."""
TOOL: Final = "look"
"""The tool it calls."""

_encode: Final = msgspec.json.Encoder().encode
_WORDS: Final = ("Let ", "me ", "look ", "further.")


def _event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _line({"id": "c", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice]})


def _line(chunk: dict[str, Any]) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"


async def complete(request: web.Request) -> web.StreamResponse:
    """Answers one request. Safe to cancel."""
    body = await request.read()
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    messages = body.count(b'"role":')
    call = {
        "index": 0,
        "id": f"call_{messages}",
        "type": "function",
        "function": {"name": TOOL, "arguments": '{"at":1}'},
    }
    prompt = len(body) // 4
    usage = {"prompt_tokens": prompt, "completion_tokens": 12, "total_tokens": prompt + 12}
    for word in _WORDS:
        await answer.write(_event({"content": word}))
    await answer.write(_event({"tool_calls": [call]}))
    await answer.write(_event({}, "tool_calls"))
    await answer.write(_line({"object": "chat.completion.chunk", "choices": [], "usage": usage}))
    await answer.write(b"data: [DONE]\n\n")
    return answer


async def models(_: web.Request) -> web.Response:
    """Lists the one model."""
    return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


async def main() -> None:
    """Serves at a free loopback port until it is interrupted; says the URL once it is ready."""
    app = web.Application(client_max_size=1024**3)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"chat listening on http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
