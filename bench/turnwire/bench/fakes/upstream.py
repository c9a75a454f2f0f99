"""A fake of an inference server that gateways stand in front of: the chat API and the Responses API, both stateless.

Above it: the measurement of gateways, and `python -m turnwire.bench.fakes.upstream`. Below it: aiohttp. Whatever it is
asked, it parses the whole body, answers at once with the same text, token by token, and remembers what it got: the
newest conversation, and how many messages each request brought. A gateway that drops history does not go unnoticed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import msgspec
import uvloop
from aiohttp import web

MODEL: Final = "peer"
"""The model it serves."""
TOKENS: Final = 100
"""Tokens of an answer."""
FIRST: Final = "First"
"""The first token. No other begins like it, so it can be looked for in a stream of either form."""

_ID: Final = b"@id@"
_encode: Final = msgspec.json.Encoder().encode
_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
_NOT_FOUND: Final = {
    "error": {
        "message": "Nothing is stored here.",
        "type": "invalid_request_error",
        "param": "previous_response_id",
        "code": "previous_response_not_found",
    }
}


def words(tokens: int) -> list[str]:
    """Returns the tokens of an answer; their text is the same for everyone."""
    return [FIRST, *(f" word{n}" for n in range(1, tokens))]


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a conversation, whatever form it came in."""

    role: str
    text: str


class Seen(msgspec.Struct):
    """What an upstream got since it was last asked."""

    requests: int
    """How many."""
    form: str
    """Of the newest one: `chat`, `responses`, or nothing where there was none."""
    fewest: int
    """Messages of the request that had the fewest."""
    most: int
    """Messages of the request that had the most."""
    bytes: int
    """Body of the newest one."""
    digest: str
    """Of the newest conversation; see `digest`."""


def digest(messages: Iterable[Said]) -> str:
    """Returns what tells one conversation from another: every role and every character of it counts."""
    found = hashlib.sha256()
    for message in messages:
        found.update(_encode([message.role, message.text]))
    return found.hexdigest()


def conversation(body: dict[str, Any]) -> list[Said]:
    """Reads the messages of a body of either form; other items keep their type as their role."""
    if "messages" in body:
        items: Any = body["messages"]
    else:
        items = body.get("input", [])
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
    return [Said(str(item.get("role") or item.get("type")), _text(item.get("content"))) for item in items]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or ())


def chat_stream(tokens: Sequence[str]) -> list[bytes]:
    """Returns the events of a chat completion, encoded; its id is still to be put in."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return line({"choices": [choice]})

    def line(more: dict[str, Any]) -> bytes:
        head = {"id": f"chatcmpl-{_ID.decode()}", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        return b"data: " + _encode(head | more) + b"\n\n"

    usage = {"prompt_tokens": 1, "completion_tokens": len(tokens), "total_tokens": len(tokens) + 1}
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": token}) for token in tokens),
        chunk({}, "stop"),
        line({"choices": [], "usage": usage}),
        b"data: [DONE]\n\n",
    ]


def responses_stream(tokens: Sequence[str]) -> list[bytes]:
    """Returns the events of a response, encoded; its id is still to be put in."""
    numbers = count()
    mark = _ID.decode()
    text = "".join(tokens)
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item: dict[str, Any] = {
        "id": f"msg_{mark}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": len(tokens),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": len(tokens) + 1,
    }
    place = {"item_id": f"msg_{mark}", "output_index": 0, "content_index": 0}

    def event(kind: str, more: dict[str, Any]) -> bytes:
        body = {"type": kind, "sequence_number": next(numbers)} | more
        return b"event: " + kind.encode() + b"\ndata: " + _encode(body) + b"\n\n"

    def response(status: str, output: list[Any], used: object) -> dict[str, Any]:
        made: dict[str, Any] = {
            "id": f"resp_{mark}",
            "object": "response",
            "created_at": 1,
            "status": status,
            "model": MODEL,
            "output": output,
            "usage": used,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "top_p": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "previous_response_id": None,
            "store": False,
        }
        return {"response": made}

    begun: dict[str, Any] = item | {"status": "in_progress", "content": []}
    return [
        event("response.created", response("in_progress", [], None)),
        event("response.in_progress", response("in_progress", [], None)),
        event("response.output_item.added", {"output_index": 0, "item": begun}),
        event("response.content_part.added", place | {"part": part | {"text": ""}}),
        *(event("response.output_text.delta", place | {"delta": token, "logprobs": []}) for token in tokens),
        event("response.output_text.done", place | {"text": text, "logprobs": []}),
        event("response.content_part.done", place | {"part": part}),
        event("response.output_item.done", {"output_index": 0, "item": item}),
        event("response.completed", response("completed", [item], usage)),
    ]


@dataclass(slots=True)
class _Record:
    requests: int = 0
    form: str = ""
    fewest: int = 0
    most: int = 0
    size: int = 0
    newest: dict[str, Any] = field(default_factory=dict[str, Any])

    def note(self, form: str, body: dict[str, Any], messages: int, size: int) -> None:
        self.fewest = min(self.fewest, messages) if self.requests else messages
        self.most = max(self.most, messages)
        self.requests += 1
        self.form, self.newest, self.size = form, body, size


class Upstream:
    """Answers requests, and remembers what it was asked."""

    def __init__(self, tokens: int = TOKENS) -> None:
        """Takes how many tokens an answer has."""
        said = words(tokens)
        self._streams = {"chat": chat_stream(said), "responses": responses_stream(said)}
        self._numbers = count(1)
        self._record = _Record()

    def application(self) -> web.Application:
        """Returns what serves it."""
        app = web.Application(client_max_size=1024**3)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/seen", self._seen)
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "chat", "messages")

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "responses", "input")

    async def _answer(self, request: web.Request, form: str, where: str) -> web.StreamResponse:
        data = await request.read()
        try:
            body: dict[str, Any] = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            return web.json_response({"error": {"message": str(error), "type": "invalid_request_error"}}, status=400)
        if body.get("previous_response_id"):
            return web.json_response(_NOT_FOUND, status=404)
        messages = body.get(where) or ()
        self._record.note(form, body, 1 if isinstance(messages, str) else len(messages), len(data))
        number = b"%032x" % next(self._numbers)
        if not body.get("stream"):
            message = "This server streams only."
            return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=400)
        answer = web.StreamResponse(headers=_HEADERS)
        await answer.prepare(request)
        for event in self._streams[form]:
            await answer.write(event.replace(_ID, number))
        return answer

    async def _models(self, _: web.Request) -> web.Response:
        listed = {"id": MODEL, "object": "model", "created": 1, "owned_by": "bench", "max_model_len": 4_000_000}
        return web.json_response({"object": "list", "data": [listed]})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _seen(self, _: web.Request) -> web.Response:
        record, self._record = self._record, _Record()
        found = digest(conversation(record.newest)) if record.newest else ""
        seen = Seen(record.requests, record.form, record.fewest, record.most, record.size, found)
        return web.Response(body=_encode(seen), content_type="application/json")


async def main(tokens: int) -> None:
    """Serves at a free loopback port until it is interrupted; says the URL once it is ready."""
    runner = web.AppRunner(Upstream(tokens).application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"upstream listening on http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m turnwire.bench.fakes.upstream", description=__doc__)
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"tokens of an answer [{TOKENS}]")
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main(parser.parse_args().tokens))
