"""A fake of vLLM's gRPC server: `vllm.grpc.engine.VllmEngine` with the habits of its servicer.

Above it: tests and measurements. Below it: `core` and the published stubs. Its habits: a chunk counts its own tokens
only, the end repeats the last chunk as if it were all of the output, log-probabilities leave out what is not known.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import importlib
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict

from turnwire.bench.fakes.core import Director, Run, Script

# Imported so, since they come without types.
common_pb2: Any = importlib.import_module("smg_grpc_proto.generated.common_pb2")
vllm_engine_pb2: Any = importlib.import_module("smg_grpc_proto.generated.vllm_engine_pb2")

_PIECE: Final = 64 * 1024


def tokenizer_zip(folder: Path) -> bytes:
    """Packs a tokenizer's files as the servicers do."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                archive.write(path, path.name)
    return out.getvalue()


async def tokenizer_pieces(folder: Path | None, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
    """Yields an archive in pieces, its hash on the last."""
    if folder is None:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "Tokenizer path is not configured on this server.")
        return
    data = tokenizer_zip(folder)
    for at in range(0, len(data), _PIECE):
        last = at + _PIECE >= len(data)
        yield common_pb2.GetTokenizerChunk(
            data=data[at : at + _PIECE], sha256=hashlib.sha256(data).hexdigest() if last else ""
        )


async def refuse(context: grpc.aio.ServicerContext[Any, Any], script: Script) -> None:
    """Ends an RPC with the script's status."""
    assert script.status is not None
    trailing = (("retry-after", script.retry_after),) if script.retry_after else ()
    await context.abort(grpc.StatusCode[script.status[0]], script.status[1], trailing)


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
            routing_key=metadata.get("x-smg-routing-key", ""),
        )
        script = run.script
        try:
            if script.status is not None and script.status_after is None:
                await refuse(context, script)
            count = request.sampling_params.logprobs if request.sampling_params.HasField("logprobs") else None
            last: list[int] = []
            async for delta in run.deltas():
                last = delta
                yield _chunk(run, delta, count)
            if script.status is not None:
                await refuse(context, script)
            for _ in range(script.completes):
                yield _complete(run, last, count)
            if script.linger:
                await asyncio.Event().wait()
            self._director.over(run, "aborted" if run.aborted.is_set() else "done")
        except asyncio.CancelledError:
            self._director.over(run, "cancelled")
            raise

    async def abort(self, request: Any, _: Any) -> Any:
        for request_id in request.request_ids:
            self._director.abort(request_id)
        return vllm_engine_pb2.AbortResponse()

    async def health_check(self, _: Any, __: Any) -> Any:
        return vllm_engine_pb2.HealthCheckResponse(healthy=True, message="Health")

    async def get_model_info(self, _: Any, __: Any) -> Any:
        options = self._options
        return vllm_engine_pb2.GetModelInfoResponse(
            model_path=f"/models/{options.model}",
            is_generation=not options.embedding,
            max_context_length=options.context,
            vocab_size=options.vocab,
            served_model_name=options.model,
            eos_token_ids=options.eos,
        )

    async def get_server_info(self, _: Any, __: Any) -> Any:
        return vllm_engine_pb2.GetServerInfoResponse(server_type="vllm-grpc", data_parallel_size=1)

    async def get_tokenizer(self, _: Any, context: Any) -> AsyncIterator[Any]:
        async for piece in tokenizer_pieces(self._options.tokenizer, context):
            yield piece


def _logprobs(run: Run, ids: list[int], count: int | None) -> Any:
    if count is None:
        return None
    known, values = run.logprobs(ids)
    tops = [
        vllm_engine_pb2.TopLogProbs(
            token_ids=[each + n for n in range(count)], values=[value - n for n in range(count)]
        )
        for each, value in zip(known, values, strict=True)
        if count
    ]
    return vllm_engine_pb2.OutputLogProbs(token_logprobs=values, token_ids=known, top_logprobs=tops)


def _chunk(run: Run, delta: list[int], count: int | None) -> Any:
    return vllm_engine_pb2.GenerateResponse(
        chunk=vllm_engine_pb2.GenerateStreamChunk(
            token_ids=delta,
            prompt_tokens=run.prompt_tokens,
            completion_tokens=len(delta),
            cached_tokens=run.cached_tokens,
            output_logprobs=_logprobs(run, delta, count),
        )
    )


def _complete(run: Run, last: list[int], count: int | None) -> Any:
    script = run.script
    complete = vllm_engine_pb2.GenerateComplete(
        output_ids=last,
        finish_reason="abort" if run.aborted.is_set() else script.finish,
        prompt_tokens=run.prompt_tokens,
        completion_tokens=len(last),
        cached_tokens=run.cached_tokens,
        output_logprobs=_logprobs(run, last, count),
    )
    if script.matched_id is not None:
        complete.matched_token_id = script.matched_id
    if script.matched_stop is not None:
        complete.matched_stop_str = script.matched_stop
    return vllm_engine_pb2.GenerateResponse(complete=complete)


def parse_options(description: str, *parents: argparse.ArgumentParser) -> argparse.Namespace:
    """Reads the command line that fake engines share, and what one has beside."""
    parser = argparse.ArgumentParser(description=description, parents=parents)
    parser.add_argument("--quiet", action="store_true", help="report nothing but the port; no prefix cache")
    parser.add_argument("--ids", type=int, nargs="*", default=[], help="what is sampled where no script says else")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--context", type=int, default=131_072)
    parser.add_argument("--vocab", type=int, default=201_088)
    parser.add_argument("--eos", type=int, nargs="*", default=[200_002])
    parser.add_argument("--weights", default="w1", help="version of the weights, where the protocol reports one")
    parser.add_argument("--embedding", action="store_true", help="serve a model that does not generate")
    parser.add_argument("--tokenizer", type=Path, help="folder with the tokenizer's files")
    parser.add_argument(
        "--ping-ms", type=int, default=10_000, help="least time between a client's pings that is asked for"
    )
    return parser.parse_args()


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def add_servicer(server: grpc.aio.Server, service: str, messages: Any, servicer: Any) -> None:
    """Registers the methods that a fake has."""

    def unary(method: str, call: Any) -> Any:
        read = getattr(messages, f"{method}Request").FromString
        return grpc.unary_unary_rpc_method_handler(call, request_deserializer=read, response_serializer=_serialize)

    def stream(request: Any, call: Any) -> Any:
        return grpc.unary_stream_rpc_method_handler(
            call, request_deserializer=request.FromString, response_serializer=_serialize
        )

    handlers: dict[str, Any] = {
        "Generate": stream(messages.GenerateRequest, servicer.generate),
        "GetTokenizer": stream(common_pb2.GetTokenizerRequest, servicer.get_tokenizer),
        "Abort": unary("Abort", servicer.abort),
        "HealthCheck": unary("HealthCheck", servicer.health_check),
        "GetModelInfo": unary("GetModelInfo", servicer.get_model_info),
        "GetServerInfo": unary("GetServerInfo", servicer.get_server_info),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


async def serve(server: grpc.aio.Server, director: Director, options: argparse.Namespace) -> None:
    """Serves until standard input ends. Safe to cancel."""
    port = server.add_insecure_port(f"127.0.0.1:{options.port}")
    await server.start()
    director.say("listening", port=port)
    await director.obey()
    await server.stop(0)


async def _main() -> None:
    options = parse_options("a fake of vLLM's gRPC server")
    director = Director(quiet=options.quiet, ids=options.ids)
    # As vLLM sets them: any size, and pings from ten seconds on, without counting strikes.
    server = grpc.aio.server(
        options=[
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", options.ping_ms),
            ("grpc.keepalive_permit_without_calls", 1),
        ]
    )
    add_servicer(server, "vllm.grpc.engine.VllmEngine", vllm_engine_pb2, _Servicer(director, options))
    await serve(server, director, options)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
