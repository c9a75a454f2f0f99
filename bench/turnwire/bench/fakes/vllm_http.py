"""A fake of vLLM's HTTP server: `/v1/completions` with prompts of ids, and what stands around it.

Above it: tests and measurements. Below it: `core` and aiohttp. Its habits: the first event repeats the prompt's ids,
the usage comes in an event of its own after the output, an error in the middle is an event, a lost client is an abort.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import Any

import msgspec
from aiohttp import web

from turnwire.bench.fakes.core import Director, Run
from turnwire.bench.fakes.vllm_grpc import parse_options


class _Server:
    def __init__(self, director: Director, options: argparse.Namespace) -> None:
        self._director = director
        self._options = options

    def application(self) -> web.Application:
        made = web.Application(client_max_size=256 * 1024 * 1024)
        made.router.add_get("/v1/models", self._models)
        made.router.add_get("/version", self._version)
        made.router.add_get("/health", self._health)
        made.router.add_post("/tokenize", self._tokenize)
        made.router.add_post("/v1/completions", self._completions)
        return made

    async def _models(self, _: web.Request) -> web.Response:
        options = self._options
        model = {"id": options.model, "root": f"/models/{options.model}", "max_model_len": options.context}
        return web.json_response({"object": "list", "data": [model]})

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.0.0"})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _tokenize(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = msgspec.json.decode(await request.read())
        if not self._options.encode:
            return _error(404, "Not Found")
        from turnwire.server.prompt.vocabulary import encode

        ids = list(encode(body["prompt"]))
        return web.json_response({"tokens": [token + self._options.shift for token in ids], "count": len(ids)})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = msgspec.json.decode(await request.read())
        prompt: list[int] = body.pop("prompt")
        run = self._director.begin(
            request.headers["X-Request-Id"],
            prompt,
            sampling=body,
            stream=body["stream"],
            routing_key=request.headers.get("X-SMG-Routing-Key", ""),
            session_id=request.headers.get("X-Session-ID", ""),
            authorization=request.headers.get("Authorization", ""),
        )
        script = run.script
        if script.status is not None and script.status_after is None:
            self._director.over(run, "refused")
            return _error(int(script.status[0]), script.status[1], script.retry_after)
        kind = "text/html" if script.garbage == b"html" else "text/event-stream; charset=utf-8"
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        try:
            await self._stream(response, run, prompt, body)
            self._director.over(run, "done")
        except (asyncio.CancelledError, ConnectionError):
            self._director.over(run, "cancelled")
            raise
        return response

    async def _stream(self, response: web.StreamResponse, run: Run, prompt: list[int], body: dict[str, Any]) -> None:
        script = run.script
        if script.garbage:
            await response.write(script.garbage + b"\n\n")
        first = True
        sent = 0
        async for delta in run.deltas():
            sent += len(delta)
            choice: dict[str, Any] = {"index": 0, "text": "x", "logprobs": None, "finish_reason": None}
            choice |= {"stop_reason": None, "token_ids": delta, "prompt_token_ids": prompt if first else None}
            if "logprobs" in body:
                choice["logprobs"] = _logprobs(run, delta, body["logprobs"])
            if sent == len(script.ids) and script.status is None and script.completes:
                choice["finish_reason"] = script.finish
                choice["stop_reason"] = script.matched_stop if script.matched_id is None else script.matched_id
            first = False
            await _send(response, {"id": "cmpl-1", "choices": [choice], "usage": None})
        if script.status is not None:
            error = {"message": script.status[1], "type": "InternalServerError", "code": int(script.status[0])}
            await _send(response, {"error": error})
        elif script.completes:
            usage: dict[str, Any] = {"prompt_tokens": run.prompt_tokens, "completion_tokens": sent}
            usage["total_tokens"] = run.prompt_tokens + sent
            if self._options.details:
                usage["prompt_tokens_details"] = {"cached_tokens": run.cached_tokens}
            for _ in range(script.completes):
                await _send(response, {"id": "cmpl-1", "choices": [], "usage": usage})
        if script.completes:
            await response.write(b"data: [DONE]\n\n")
        if script.linger:
            await asyncio.Event().wait()


def _logprobs(run: Run, delta: list[int], count: int) -> dict[str, Any]:
    known, values = run.logprobs(delta)
    said: dict[int, float | None] = {
        token: value if value == value else None for token, value in zip(known, values, strict=True)
    }
    return {
        "tokens": [f"token_id:{token}" for token in delta],
        "token_logprobs": [said.get(token) for token in delta],
        "top_logprobs": [
            {f"token_id:{token + n}": (said.get(token) or -0.5) - n for n in range(count)} for token in delta
        ]
        if count
        else None,
    }


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")


def _error(status: int, message: str, retry_after: str = "") -> web.Response:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return web.json_response({"error": {"message": message, "code": status}}, status=status, headers=headers)


async def _main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--encode", action="store_true", help="tokenize with o200k_harmony")
    parser.add_argument("--shift", type=int, default=0, help="what is added to each id that it tokenizes to")
    parser.add_argument("--no-details", dest="details", action="store_false", help="do not report cached tokens")
    options = parse_options("a fake of vLLM's HTTP server", parser)
    director = Director(quiet=options.quiet, ids=options.ids)
    # As uvicorn does it: a handler is cancelled when its client is gone.
    runner = web.AppRunner(_Server(director, options).application(), handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", options.port, shutdown_timeout=0.1)
    await site.start()
    director.say("listening", port=runner.addresses[0][1])
    await director.obey()
    await runner.cleanup()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
