"""A fake of SGLang's gRPC server: `sglang.grpc.scheduler.SglangScheduler` with the habits of its servicer.

Above it: tests and measurements. Below it: `core` and the published stubs. Its habits: counts are of all so far, the
end repeats the last chunk as if it were all of the output, and every sampling parameter is taken as it stands.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict

from turnwire.bench.fakes.core import Director, Run
from turnwire.bench.fakes.vllm_grpc import add_servicer, parse_options, refuse, serve, tokenizer_pieces

sglang_scheduler_pb2: Any = importlib.import_module("smg_grpc_proto.generated.sglang_scheduler_pb2")


def _complaint(params: Any) -> str:
    """Checks parameters as SGLang's `SamplingParams.verify` does; a zero is not "unset" there."""
    if params.temperature < 0.0:
        return f"temperature must be non-negative, got {params.temperature}."
    if not 0.0 < params.top_p <= 1.0:
        return f"top_p must be in (0, 1], got {params.top_p}."
    if not 0.0 <= params.min_p <= 1.0:
        return f"min_p must be in [0, 1], got {params.min_p}."
    if params.top_k < 1 and params.top_k != -1:
        return f"top_k must be -1 (disable), or at least 1, got {params.top_k}."
    if not 0.0 < params.repetition_penalty <= 2.0:
        return f"repetition_penalty must be in (0, 2], got {params.repetition_penalty}."
    if params.n != 1:
        return f"n must be 1 here, got {params.n}."
    return ""


class _Servicer:
    def __init__(self, director: Director, options: argparse.Namespace) -> None:
        self._director = director
        self._options = options

    async def generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        metadata: dict[str, str] = dict(context.invocation_metadata() or ())
        run = self._director.begin(
            request.request_id,
            request.tokenized.input_ids,
            sampling=MessageToDict(request.sampling_params, preserving_proto_field_name=True),
            stream=request.stream,
            logprob_start_len=request.logprob_start_len,
            routing_key=metadata.get("x-smg-routing-key", ""),
        )
        script = run.script
        try:
            if complaint := _complaint(request.sampling_params):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, complaint)
            if script.status is not None and script.status_after is None:
                await refuse(context, script)
            count = request.top_logprobs_num if request.return_logprob else None
            sent = 0
            last: list[int] = []
            async for delta in run.deltas():
                last = delta
                sent += len(delta)
                yield _chunk(run, delta, sent, count)
            if script.status is not None:
                await refuse(context, script)
            for _ in range(script.completes):
                yield _complete(run, last, sent, count)
            if script.linger:
                await asyncio.Event().wait()
            self._director.over(run, "aborted" if run.aborted.is_set() else "done")
        except asyncio.CancelledError:
            self._director.over(run, "cancelled")
            raise

    async def abort(self, request: Any, _: Any) -> Any:
        found = self._director.abort(request.request_id)
        return sglang_scheduler_pb2.AbortResponse(success=found, message=request.request_id)

    async def health_check(self, _: Any, __: Any) -> Any:
        return sglang_scheduler_pb2.HealthCheckResponse(healthy=True, message="Health check passed")

    async def get_model_info(self, _: Any, __: Any) -> Any:
        options = self._options
        self._director.say("model_info")
        return sglang_scheduler_pb2.GetModelInfoResponse(
            model_path=f"/models/{options.model}",
            is_generation=not options.embedding,
            max_context_length=options.context,
            vocab_size=options.vocab,
            served_model_name=options.model,
            eos_token_ids=options.eos,
            weight_version=options.weights,
        )

    async def get_server_info(self, _: Any, __: Any) -> Any:
        return sglang_scheduler_pb2.GetServerInfoResponse(server_type="grpc", sglang_version="0.0.0")

    async def get_tokenizer(self, _: Any, context: Any) -> AsyncIterator[Any]:
        async for piece in tokenizer_pieces(self._options.tokenizer, context):
            yield piece


def _logprobs(run: Run, ids: list[int], count: int | None) -> Any:
    if count is None:
        return None
    known, values = run.logprobs(ids)
    tops = [
        sglang_scheduler_pb2.TopLogProbs(
            token_ids=[each + n for n in range(count)], values=[value - n for n in range(count)]
        )
        for each, value in zip(known, values, strict=True)
        if count
    ]
    return sglang_scheduler_pb2.OutputLogProbs(token_logprobs=values, token_ids=known, top_logprobs=tops)


def _chunk(run: Run, delta: list[int], sent: int, count: int | None) -> Any:
    return sglang_scheduler_pb2.GenerateResponse(
        request_id=run.request_id,
        chunk=sglang_scheduler_pb2.GenerateStreamChunk(
            token_ids=delta,
            prompt_tokens=run.prompt_tokens,
            completion_tokens=sent,
            cached_tokens=run.cached_tokens,
            output_logprobs=_logprobs(run, delta, count),
        ),
    )


def _complete(run: Run, last: list[int], sent: int, count: int | None) -> Any:
    script = run.script
    complete = sglang_scheduler_pb2.GenerateComplete(
        output_ids=last,
        finish_reason="abort" if run.aborted.is_set() else script.finish,
        prompt_tokens=run.prompt_tokens,
        completion_tokens=sent,
        cached_tokens=run.cached_tokens,
        output_logprobs=_logprobs(run, last, count),
    )
    if script.matched_id is not None:
        complete.matched_token_id = script.matched_id
    if script.matched_stop is not None:
        complete.matched_stop_str = script.matched_stop
    return sglang_scheduler_pb2.GenerateResponse(request_id=run.request_id, complete=complete)


async def _main() -> None:
    options = parse_options("a fake of SGLang's gRPC server")
    director = Director(quiet=options.quiet, ids=options.ids)
    # As SGLang sets them. The name of the least time between pings is none that gRPC knows, so that its default holds:
    # without other traffic a ping within five minutes is a strike, and the third strike ends the connection.
    server = grpc.aio.server(
        options=[
            ("grpc.max_send_message_length", 256 * 1024 * 1024),
            ("grpc.max_receive_message_length", 256 * 1024 * 1024),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", options.ping_ms),
            ("grpc.keepalive_permit_without_calls", 1),
        ]
    )
    add_servicer(server, "sglang.grpc.scheduler.SglangScheduler", sglang_scheduler_pb2, _Servicer(director, options))
    await serve(server, director, options)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
