"""Channels to engines that speak gRPC, and the stubs they need.

Above it: the adapters of vLLM and SGLang. Below it: grpcio, and the package with the engines' stubs, which is an extra.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Final

import grpc
import grpc.aio

from turnwire.server.engine.tokens.port import EngineStartError

_RECONNECT_MS: Final = 2_000
"""Most time between attempts to connect. The default of two minutes would outlast an engine's restart by far."""


@dataclass(frozen=True, slots=True)
class EngineKeepalive:
    """HTTP/2 pings to an engine, in seconds. A long prefill is a quiet stream: only pings tell it from a dead peer."""

    time: float = 30.0
    """Between pings. vLLM wants 10 seconds between them at least."""
    timeout: float = 20.0
    """For the answer. Generous, since an engine's event loop may be busy with somebody's large prompt."""
    heartbeat: float = 20.0
    """Between small questions, for engines that end a connection after the third ping in a row without other traffic:
    their answers are such traffic."""


def engine_stubs(module: str, extra: str) -> ModuleType:
    """Imports generated stubs.

    Args:
        module: Such as `vllm_engine_pb2`.
        extra: The extra of this distribution that brings them.

    Raises:
        EngineStartError: They are not installed, or do not go with the protobuf that is.
    """
    try:
        return importlib.import_module(f"smg_grpc_proto.generated.{module}")
    except ModuleNotFoundError as error:
        msg = f"this engine needs its stubs: pip install 'turnwire[{extra}]' ({error.name} is missing)"
        raise EngineStartError(msg) from error
    except Exception as error:
        # The generated code checks the versions of protobuf and grpcio when it is imported, with errors of its own.
        msg = f"the engine's stubs do not go with what else is installed: pip install -U 'turnwire[{extra}]' ({error})"
        raise EngineStartError(msg) from error


def engine_channel(
    address: str, keepalive: EngineKeepalive, credentials: grpc.ChannelCredentials | None
) -> grpc.aio.Channel:
    """Opens a channel; it connects when it is first used."""
    options: list[tuple[str, int]] = [
        # A prompt of a million tokens is 3 MB; the engine's own context length is the limit that matters.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.keepalive_time_ms", int(keepalive.time * 1000)),
        ("grpc.keepalive_timeout_ms", int(keepalive.timeout * 1000)),
        # What gRPC really waits for an answer is this, a minute by default (seen with grpcio 1.85).
        ("grpc.http2.ping_timeout_ms", int(keepalive.timeout * 1000)),
        # Pings go on however long nothing else is sent, but only while a stream is open.
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
        ("grpc.enable_retries", 0),
    ]
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)
