"""The gRPC server: addresses, health, reflection, and an orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from turnwire.server.doors.grpc.options import GrpcOptions
from turnwire.server.doors.grpc.servicer import SERVICE, ResponsesServicer
from turnwire.server.runtime.local import Keys
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.sessions import SessionRoom

_SHUTDOWN_SLACK: Final = 1.0
"""Seconds beyond the grace, in which sessions that ended at its end tell their clients so."""
_LAST_WORDS: Final = 0.25
"""Seconds for the statuses of sessions that have ended, once all have."""


def _health_servicer() -> Any:
    module: Any = health
    return module.aio.HealthServicer()


class GrpcServer:
    """The gRPC door as something that starts and stops."""

    def __init__(
        self,
        services: Services,
        keys: Keys | None = None,
        options: GrpcOptions | None = None,
        on_refused: Callable[[str], None] = lambda door: None,
        room: SessionRoom | None = None,
    ) -> None:
        """Takes what sessions share, who may come in, the settings of the transport, and who hears of bad keys.

        Without a room to share with other doors it makes one of its own, by the limits of the settings.
        """
        options = options or GrpcOptions()
        if room is None:  # an empty one counts as false
            room = SessionRoom(services, options.max_sessions, options.max_sessions_per_principal)
        self.room = room
        self.servicer = ResponsesServicer(self.room, keys, on_refused)
        self._server: grpc.aio.Server = grpc.aio.server(options=options.channel_args())
        self._server.add_generic_rpc_handlers((self.servicer.handler(),))
        self._health: Any = _health_servicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names: Sequence[str] = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        # The descriptors must be loaded for reflection to find them; the servicer's import does that.
        reflection.enable_server_reflection(names, self._server)

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Binds an address.

        Args:
            address: `host:port` (port 0 picks a free one) or `unix:PATH`.
            credentials: TLS; None for plain text.

        Returns:
            The port bound; 1 for a Unix socket.

        Raises:
            RuntimeError: The address cannot be bound.
        """
        if credentials is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, credentials)

    async def start(self) -> None:
        """Begins to serve. Not safe to cancel: stop the server instead."""
        await self._server.start()
        for name in (SERVICE, ""):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace: float, reason: str = "shutdown") -> None:
        """Drains: health says no, clients are told to go, running responses get `grace` seconds, then streams end.

        Cancelling it leaves the server running; call it again with a shorter grace.
        """
        await self._health.enter_graceful_shutdown()
        self.room.go_away(reason, grace, retry_after=0.0)
        if not grace:
            await self._server.stop(0)
            await self.room.background.aclose()
            return
        stopping = asyncio.create_task(self._server.stop(grace + _SHUTDOWN_SLACK))
        idle = asyncio.create_task(self.room.idle())
        try:
            # What runs in the background has no stream that the server could wait for.
            await asyncio.wait((idle,), timeout=grace + _SHUTDOWN_SLACK)
            # Who watches health or reflection never leaves by himself.
            await self._server.stop(_LAST_WORDS)
            await self.room.background.aclose()
        finally:
            idle.cancel()
            stopping.cancel()
            await asyncio.gather(idle, stopping, return_exceptions=True)

    async def wait(self) -> None:
        """Waits until the server has stopped. Safe to cancel."""
        await self._server.wait_for_termination()
