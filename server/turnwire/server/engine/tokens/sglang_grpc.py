"""The adapter of SGLang's gRPC server, `sglang.grpc.scheduler.SglangScheduler`.

Above it: `rendered`. Below it: `grpc_engine`. Its messages were read in the servicer's source; where it departs from
what one would expect, the place says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import grpc
import grpc.aio

from turnwire.server.engine.tokens.failures import broken
from turnwire.server.engine.tokens.grpc_channel import EngineKeepalive, engine_stubs
from turnwire.server.engine.tokens.grpc_engine import ROUTING_KEYS, GrpcEngine
from turnwire.server.engine.tokens.grpc_pass import GrpcPass, Reading
from turnwire.server.engine.tokens.logprobs import beside, finite
from turnwire.server.engine.tokens.port import (
    EngineFacts,
    EngineStartError,
    Sampling,
    TokenDelta,
    TokenEnd,
    TokenRequest,
    TokenSink,
)
from turnwire.server.engine.tokens.wire import with_ids
from turnwire.server.session.chunks import FinishReason

SERVICE: Final = "sglang.grpc.scheduler.SglangScheduler"
_ANY_OBJECT: Final = '{"type":"object"}'
_WEIGHTS_TIMEOUT: Final = 5.0
"""Seconds to wait for the version of the weights."""


class SglangGrpcEngine(GrpcEngine):
    """An SGLang that serves gRPC. Its protocol has no seed."""

    def __init__(
        self,
        address: str,
        *,
        keepalive: EngineKeepalive | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        start_timeout: float = 20.0,
        routing_keys: Sequence[str] = ROUTING_KEYS,
    ) -> None:
        """Prepares the connection; see `GrpcEngine`.

        Raises:
            EngineStartError: The stubs are not installed.
        """
        self._pb: Any = engine_stubs("sglang_scheduler_pb2", "sglang")
        super().__init__(
            "sglang-grpc",
            SERVICE,
            address,
            self._pb.GenerateResponse.FromString,
            keepalive=keepalive or EngineKeepalive(),
            credentials=credentials,
            start_timeout=start_timeout,
            routing_keys=routing_keys,
            # It means to allow pings from 10 seconds on, but sets that under a name which gRPC does not know.
            heartbeat="GetModelInfo",
        )
        self._questions: set[asyncio.Task[None]] = set()
        self._model_info: grpc.aio.UnaryUnaryMultiCallable[bytes, Any] = self._channel.unary_unary(
            f"/{SERVICE}/GetModelInfo",
            request_serializer=None,
            response_deserializer=self._pb.GetModelInfoResponse.FromString,
        )

    async def facts(self) -> EngineFacts:
        """Asks for the model and the server. Safe to cancel.

        Raises:
            EngineStartError: It cannot be reached, is of another kind, or serves no model that generates.
        """
        model = await self._ask("GetModelInfo", self._pb.GetModelInfoResponse.FromString)
        server = await self._ask("GetServerInfo", self._pb.GetServerInfoResponse.FromString)
        if not model.is_generation:
            msg = f"{self.name} at {self.address}: {model.served_model_name or model.model_path} does not generate text"
            raise EngineStartError(msg)
        return EngineFacts(
            model=model.served_model_name or model.model_path,
            model_path=model.model_path,
            context_length=model.max_context_length if model.max_context_length > 0 else None,
            vocab_size=model.vocab_size if model.vocab_size > 0 else None,
            eos_ids=frozenset(model.eos_token_ids),
            weight_version=model.weight_version,
            server=f"sglang {server.sglang_version}".strip(),
        )

    def start(self, request: TokenRequest, sink: TokenSink) -> GrpcPass:
        """Begins a pass."""
        sampling = request.sampling
        head = self._pb.GenerateRequest(
            request_id=request.request_id,
            sampling_params=self._sampling(sampling),
            return_logprob=sampling.logprobs is not None,
            # A zero would make it compute those of the whole prompt.
            logprob_start_len=-1,
            top_logprobs_num=sampling.logprobs or 0,
            stream=True,
        )
        data = with_ids(head.SerializeToString(), request.prompt.packed(), tokenized=2, input_ids=2)
        abort = self._pb.AbortRequest(request_id=request.request_id, reason="client").SerializeToString()
        reader = _Reader(self.name)
        begun = self._begin(data, request, sink, reader.read, abort)
        if request.wants_weights:
            self._ask_weights(reader)
        return begun

    def _ask_weights(self, reader: _Reader) -> None:
        """Asks for the weights of now: trainers replace them while the engine runs, and answers do not name them."""
        call: grpc.aio.UnaryUnaryCall[bytes, Any] = self._model_info(b"", timeout=_WEIGHTS_TIMEOUT)

        async def ask() -> None:
            with contextlib.suppress(grpc.aio.AioRpcError):
                reader.weights = (await call).weight_version

        task = asyncio.get_running_loop().create_task(ask())
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    def _sampling(self, given: Sampling) -> Any:
        # Nothing may be left out: what is not set is a zero there, which means greedy sampling, or nonsense.
        params: Any = self._pb.SamplingParams(
            temperature=given.temperature,
            top_p=given.top_p,
            top_k=given.top_k or -1,
            min_p=given.min_p,
            frequency_penalty=given.frequency_penalty,
            presence_penalty=given.presence_penalty,
            repetition_penalty=given.repetition_penalty,
            max_new_tokens=given.max_tokens,
            stop=given.stop,
            stop_token_ids=given.stop_token_ids,
            n=1,
            # The id that ended sampling is output too.
            no_stop_trim=True,
            logit_bias={str(token): bias for token, bias in given.logit_bias.items()},
        )
        constraint = given.constraint
        match constraint.kind if constraint else None:
            case None:
                pass
            case "json_object":
                params.json_schema = _ANY_OBJECT
            case kind:
                assert constraint is not None
                setattr(params, kind, constraint.text)
        return params


class _Reader:
    """Reads the messages of one pass."""

    __slots__ = ("_engine", "weights")

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self.weights = ""

    def read(self, message: Any) -> Reading:
        """Returns what a message says."""
        if message.HasField("chunk"):
            chunk = message.chunk
            return self._delta(chunk.token_ids, chunk.output_logprobs if chunk.HasField("output_logprobs") else None)
        if not message.HasField("complete"):
            return None
        complete = message.complete
        # When it streamed, what it calls the output ids is the last chunk once more; the counts are of all of it.
        if complete.finish_reason not in ("stop", "length"):
            return broken(
                self._engine, f"ended the output itself ({complete.finish_reason or 'no reason given'})"[:200]
            )
        return TokenEnd(
            FinishReason.LENGTH if complete.finish_reason == "length" else FinishReason.STOP,
            prompt_tokens=complete.prompt_tokens,
            cached_tokens=complete.cached_tokens,
            output_tokens=complete.completion_tokens,
            reasoning_tokens=complete.reasoning_tokens,
            stop_id=complete.matched_token_id if complete.HasField("matched_token_id") else None,
            weight_version=self.weights,
        )

    def _delta(self, ids: Any, given: Any) -> TokenDelta | None:
        if not ids:
            return None
        if given is None:
            return TokenDelta(tuple(ids))
        return TokenDelta(
            tuple(ids),
            beside(ids, given.token_ids, given.token_logprobs),
            [[(t, finite(v)) for t, v in zip(top.token_ids, top.values, strict=False)] for top in given.top_logprobs],
        )
