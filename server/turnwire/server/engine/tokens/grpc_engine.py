"""What the engines that speak gRPC have in common: a channel, the passes on it, telling the engine to abort.

Above it: the adapters of vLLM and SGLang. Below it: `grpc_pass`, `grpc_channel`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from turnwire.server.engine.tokens.agreement import compare_tables
from turnwire.server.engine.tokens.bundle import TokenizerBundle, read_bundle
from turnwire.server.engine.tokens.failures import grpc_failure, words
from turnwire.server.engine.tokens.grpc_channel import EngineKeepalive, engine_channel, engine_stubs
from turnwire.server.engine.tokens.grpc_pass import GrpcPass, Reading
from turnwire.server.engine.tokens.port import EngineStartError, TokenRequest, TokenSink
from turnwire.server.prompt.parsing import TokenTable
from turnwire.server.session.chunks import EngineFailure

ROUTING_KEYS: Final = ("x-smg-routing-key",)
"""The metadata keys under which routers in front of such engines look for what belongs together; engines ignore them.
SMG, SGLang's gateway, reads this one."""

_UNREACHED: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

_log: Final = logging.getLogger(__name__)

_CHECK_TIMEOUT: Final = 5.0
"""Seconds for the answer to the question whether the engine is well."""

_ABORT_TIMEOUT: Final = 5.0
"""Seconds for telling an engine to abort; the cancelled RPC says the same by another way."""


class GrpcEngine:
    """One engine behind one channel."""

    def __init__(
        self,
        name: str,
        service: str,
        address: str,
        response: Callable[[bytes], Any],
        *,
        keepalive: EngineKeepalive,
        credentials: grpc.ChannelCredentials | None,
        start_timeout: float,
        heartbeat: str = "",
        routing_keys: Sequence[str] = ROUTING_KEYS,
    ) -> None:
        """Prepares a channel, which connects when it is first used.

        Args:
            name: Label of the engine.
            service: Full name of its service.
            address: `host:port`, or `unix:PATH`.
            response: Parses a message of its Generate.
            keepalive: Pings.
            credentials: TLS; None speaks plaintext, which is all that vLLM offers.
            start_timeout: Seconds to wait for the engine at the start.
            heartbeat: A method that takes nothing, called now and then while passes run; empty for none.
            routing_keys: Metadata keys that carry what a pass's chain is routed by.
        """
        self.name = name
        self.address = address
        self._service = service
        self._start_timeout = start_timeout
        self._routing_keys = tuple(key.lower() for key in routing_keys)
        self._channel = engine_channel(address, keepalive, credentials)
        # Without a serializer the call takes bytes as they are.
        self._generate: grpc.aio.UnaryStreamMultiCallable[bytes, Any] = self._channel.unary_stream(
            f"/{service}/Generate", request_serializer=None, response_deserializer=response
        )
        self._keepalive = keepalive
        self._heartbeat = heartbeat
        self._beating: asyncio.TimerHandle | None = None
        self._passes: set[GrpcPass] = set()
        self._told: set[grpc.aio.Call] = set()

    @property
    def running(self) -> int:
        """How many passes have not ended, or whose RPC has not."""
        return len(self._passes)

    async def tokenizer(self) -> TokenizerBundle:
        """Fetches the files of the engine's tokenizer. Safe to cancel.

        Raises:
            EngineStartError: The engine has none, or sent what cannot be read.
        """
        common = engine_stubs("common_pb2", self.name.partition("-")[0])
        method: grpc.aio.UnaryStreamMultiCallable[bytes, Any] = self._channel.unary_stream(
            f"/{self._service}/GetTokenizer",
            request_serializer=None,
            response_deserializer=common.GetTokenizerChunk.FromString,
        )
        call = method(b"", timeout=self._start_timeout, wait_for_ready=True)
        bundle: TokenizerBundle = await self._asked("GetTokenizer", read_bundle(f"{self.name} at {self.address}", call))
        return bundle

    async def disagreement(self, table: TokenTable) -> str:
        """Compares the engine's vocabulary with ours, where it has files of one. Safe to cancel.

        Raises:
            EngineStartError: It cannot be reached, or sent what cannot be read.
        """
        try:
            files = (await self.tokenizer()).files
        except EngineStartError as error:
            cause = error.__cause__
            if isinstance(cause, grpc.aio.AioRpcError) and cause.code() not in _UNREACHED:
                _log.info("%s: its tokenizer cannot be compared: %s", self.name, error)
                return ""
            raise
        data = files.get("tokenizer.json")
        if data is None:
            return ""
        try:
            theirs = TokenTable.from_tokenizer_json(data)
        except ValueError as error:
            _log.info("%s: its tokenizer cannot be compared: %s", self.name, error)
            return ""
        return compare_tables(table, theirs)

    async def check(self) -> EngineFailure | None:
        """Asks for the model, which costs the engine nothing; its health check may run the model. Safe to cancel."""
        asking: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            f"/{self._service}/GetModelInfo", request_serializer=None, response_deserializer=None
        )
        call = asking(b"", timeout=_CHECK_TIMEOUT)
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return grpc_failure(self.name, error.code(), error.details() or "", None)
        return None

    async def aclose(self) -> None:
        """Aborts what runs and closes the channel. Cancelling it leaves the engine unusable."""
        for each in tuple(self._passes):
            each.abort()
        for each in tuple(self._passes):
            await each.closed()
        if self._beating is not None:
            self._beating.cancel()
        # The engine hears of the aborts before the channel goes, unless it is gone itself.
        if self._told:
            await asyncio.wait([asyncio.ensure_future(call.code()) for call in self._told], timeout=1.0)
        await self._channel.close(grace=None)

    def _begin(
        self, request: bytes, given: TokenRequest, sink: TokenSink, read: Callable[[Any], Reading], abort: bytes
    ) -> GrpcPass:
        key = given.chain.key
        metadata = tuple((name, key) for name in self._routing_keys) if key else None
        call = self._generate(request, metadata=metadata)
        begun = GrpcPass(
            self.name, call, sink, read, lambda: self._tell("Abort", abort, _ABORT_TIMEOUT), self._passes.discard
        )
        self._passes.add(begun)
        if self._heartbeat and self._beating is None:
            self._beat_later()
        return begun

    def _beat_later(self) -> None:
        self._beating = asyncio.get_running_loop().call_later(self._keepalive.heartbeat, self._beat)

    def _beat(self) -> None:
        """Asks something small, so that pings during a long silence are not taken for abuse."""
        self._beating = None
        if self._passes:
            self._tell(self._heartbeat, b"", self._keepalive.timeout)
            self._beat_later()

    async def _ask(self, method: str, response: Callable[[bytes], Any]) -> Any:
        """Calls a method that takes nothing."""
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, Any] = self._channel.unary_unary(
            f"/{self._service}/{method}", request_serializer=None, response_deserializer=response
        )
        return await self._asked(method, call(b"", timeout=self._start_timeout, wait_for_ready=True))

    async def _asked(self, method: str, answer: Awaitable[Any]) -> Any:
        try:
            return await answer
        except grpc.aio.AioRpcError as error:
            where = f"{self.name} at {self.address}"
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                msg = f"{where}: no {self._service}/{method} there; is it another kind of engine?"
            elif error.code() in _UNREACHED:
                msg = f"{where}: not reached within {self._start_timeout:g} s; is it running?"
            else:
                msg = f"{where}: {method} failed: {error.code().name}: {words(error.details() or '')}"
            raise EngineStartError(msg) from error

    def _tell(self, method: str, request: bytes, timeout: float) -> None:
        """Calls a method whose answer does not matter."""
        asking: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            f"/{self._service}/{method}", request_serializer=None, response_deserializer=None
        )
        call = asking(request, timeout=timeout)
        self._told.add(call)

        def done(_: Any) -> None:
            self._told.discard(call)

        call.add_done_callback(done)
