"""Wiring: from a configuration to a running bridge, and its orderly end. No decision is taken here.

Above it: `cli`, and tests. Below it: the doors, the port over the ways to the server, and signals.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from aiohttp import web

from turnwire.bridge.backend import BridgeBackend
from turnwire.bridge.config import BridgeConfig
from turnwire.bridge.routes import Routes
from turnwire.client.remote import RemoteBackend, RemoteOptions
from turnwire.server.address import Address
from turnwire.server.doors.binding import CannotBind, prepare
from turnwire.server.doors.http.origin import Origins
from turnwire.server.doors.http.server import HttpServer, is_upgrade
from turnwire.server.doors.websocket.door import WebSocketDoor, authorization_of
from turnwire.server.process import drain, on_signals
from turnwire.server.runtime.clock import Clock, LoopClock

_log: Final = logging.getLogger(__name__)


class CannotListen(Exception):
    """Raised with the reason why an address cannot be listened at."""


class Bridge:
    """The doors over a server elsewhere. Belongs to the event loop that it is made on."""

    def __init__(self, config: BridgeConfig, clock: Clock | None = None) -> None:
        """Takes what it is told, and the clock of time-outs; connects when it is first asked for something."""
        options = RemoteOptions()
        channel = replace(config.channel, max_message_bytes=options.channel.max_message_bytes)
        options = replace(options, channel=channel)
        clock = clock or LoopClock()
        fallback = None if config.fallback is None else RemoteBackend(config.fallback, options)
        self.routes: Final = Routes(RemoteBackend(config.server, options), fallback, clock)
        self.backend: Final = BridgeBackend(self.routes, config.authorization)
        # It asks nobody for a key, and may show one of its own.
        origins = Origins(keys=False, addresses=config.listen)
        websocket = WebSocketDoor(self.backend)
        self._http = HttpServer(self.backend, clock, websocket=websocket.handle, admit=self._admit, origins=origins)

    async def listen(self, address: Address) -> Address:
        """Listens at an address, and returns it with the port that was bound. Cancelling it leaves `stop` to call.

        Raises:
            CannotListen: It cannot be bound.
        """
        try:
            prepare(address)
            return await self._http.listen(address)
        except (CannotBind, OSError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            msg = f"cannot listen at {address}: {reason}. Choose another address with --listen"
            raise CannotListen(msg) from error

    async def stop(self, grace: float) -> None:
        """Drains: new requests are refused, those at work get `grace` seconds, then everything ends.

        Cancelling it leaves the bridge running; call it again with a shorter grace.
        """
        if grace:
            stopping = asyncio.create_task(self._http.stop(grace))
            try:
                # After the first step of `stopping`, from which on nobody new is let in.
                await asyncio.sleep(0)
                await self.backend.leave()
                await asyncio.shield(stopping)
            finally:
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
        await self._http.stop(0)
        await self.routes.aclose()

    async def _admit(self, request: web.BaseRequest) -> None:
        if is_upgrade(request):
            # Before the upgrade, so that a bad key or a server that is gone is an HTTP status.
            await self.routes.open(self.backend.shown_for(authorization_of(request)))


async def run_bridge(config: BridgeConfig, ready: Callable[[str], None]) -> int:
    """Runs a bridge until it is told to stop by SIGINT or SIGTERM; a second signal stops it at once.

    Args:
        config: Everything it is told.
        ready: Hears one line per address once it listens there.

    Returns:
        The exit code, 0.

    Raises:
        CannotListen: An address cannot be listened at.
    """
    bridge = Bridge(config)
    stopping = asyncio.Event()
    on_signals(stopping.set)
    try:
        bound = [await bridge.listen(address) for address in config.listen]
        for address in bound:
            ready(f"bridge listening on {address if address.path else f'http://{address}'}")
        _log.info("passing on to %s%s", config.server, f", else to {config.fallback}" if config.fallback else "")
        await stopping.wait()
        _log.info("draining: running responses get %g s; a second signal stops at once", config.drain_grace)
        await drain(bridge.stop, config.drain_grace)
    finally:
        await bridge.stop(0)
    return 0
