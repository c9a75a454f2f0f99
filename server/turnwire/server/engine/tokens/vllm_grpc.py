"""The adapter of vLLM's gRPC server, `vllm.grpc.engine.VllmEngine`.

Above it: `rendered`. Below it: `grpc_engine`. Its messages were read in the servicer's source; where it departs from
what one would expect, the place says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import grpc

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

SERVICE: Final = "vllm.grpc.engine.VllmEngine"
_SEED_MASK: Final = 0x7FFF_FFFF
"""Its seeds have 31 bits."""


class VllmGrpcEngine(GrpcEngine):
    """A vLLM that serves gRPC."""

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
        self._pb: Any = engine_stubs("vllm_engine_pb2", "vllm")
        super().__init__(
            "vllm-grpc",
            SERVICE,
            address,
            self._pb.GenerateResponse.FromString,
            keepalive=keepalive or EngineKeepalive(),
            credentials=credentials,
            start_timeout=start_timeout,
            routing_keys=routing_keys,
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
            context_length=model.max_context_length or None,
            vocab_size=model.vocab_size or None,
            eos_ids=frozenset(model.eos_token_ids),
            server=server.server_type or "vllm-grpc",
        )

    def start(self, request: TokenRequest, sink: TokenSink) -> GrpcPass:
        """Begins a pass."""
        head = self._pb.GenerateRequest(
            request_id=request.request_id, sampling_params=self._sampling(request.sampling), stream=True
        )
        data = with_ids(head.SerializeToString(), request.prompt.packed(), tokenized=2, input_ids=2)
        abort = self._pb.AbortRequest(request_ids=[request.request_id]).SerializeToString()
        return self._begin(data, request, sink, _Reader(self.name).read, abort)

    def _sampling(self, given: Sampling) -> Any:
        params: Any = self._pb.SamplingParams(
            temperature=given.temperature,
            top_p=given.top_p,
            top_k=given.top_k,
            min_p=given.min_p,
            frequency_penalty=given.frequency_penalty,
            presence_penalty=given.presence_penalty,
            repetition_penalty=given.repetition_penalty,
            max_tokens=given.max_tokens,
            stop=given.stop,
            stop_token_ids=given.stop_token_ids,
            n=1,
            logprobs=given.logprobs,
            seed=None if given.seed is None else given.seed & _SEED_MASK,
            logit_bias=given.logit_bias,
        )
        constraint = given.constraint
        match constraint.kind if constraint else None:
            case None:
                pass
            case "json_object":
                params.json_object = True
            case kind:
                assert constraint is not None
                setattr(params, kind, constraint.text)
        return params


class _Reader:
    """Reads the messages of one pass."""

    __slots__ = ("_cached", "_engine", "_prompt", "_sampled")

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._prompt = 0
        self._cached = 0
        self._sampled = 0

    def read(self, message: Any) -> Reading:
        """Returns what a message says."""
        if message.HasField("chunk"):
            chunk = message.chunk
            self._prompt = max(self._prompt, chunk.prompt_tokens)
            self._cached = max(self._cached, chunk.cached_tokens)
            # The count in a chunk is that of the chunk, so it is not looked at.
            return self._delta(chunk.token_ids, chunk.output_logprobs if chunk.HasField("output_logprobs") else None)
        if not message.HasField("complete"):
            return None
        complete = message.complete
        # When it streamed, what it calls all output ids is the last chunk once more.
        if complete.finish_reason not in ("stop", "length"):
            return broken(
                self._engine, f"ended the output itself ({complete.finish_reason or 'no reason given'})"[:200]
            )
        return TokenEnd(
            FinishReason.LENGTH if complete.finish_reason == "length" else FinishReason.STOP,
            prompt_tokens=max(self._prompt, complete.prompt_tokens),
            cached_tokens=max(self._cached, complete.cached_tokens),
            output_tokens=self._sampled,
            stop_id=complete.matched_token_id if complete.HasField("matched_token_id") else None,
        )

    def _delta(self, ids: Any, given: Any) -> TokenDelta | None:
        if not ids:
            return None
        self._sampled += len(ids)
        if given is None:
            return TokenDelta(tuple(ids))
        return TokenDelta(
            tuple(ids),
            beside(ids, given.token_ids, given.token_logprobs),
            [[(t, finite(v)) for t, v in zip(top.token_ids, top.values, strict=False)] for top in given.top_logprobs],
        )
