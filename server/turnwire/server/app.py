"""Wiring: from a configuration to a running server, and its orderly end. No decision is taken here."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

import grpc
from prometheus_client import CollectorRegistry

from turnwire.server.address import Address
from turnwire.server.config import ConfigError, ServerConfig, StartError, TlsConfig
from turnwire.server.doors.binding import CannotBind, prepare
from turnwire.server.doors.grpc.options import GrpcOptions
from turnwire.server.doors.grpc.server import GrpcServer
from turnwire.server.doors.http.options import HttpOptions
from turnwire.server.doors.http.origin import Origins
from turnwire.server.doors.http.server import HttpServer
from turnwire.server.doors.websocket.door import WebSocketDoor
from turnwire.server.doors.websocket.options import WebSocketOptions
from turnwire.server.engine.profile import Price
from turnwire.server.engine.registry import EngineRegistry
from turnwire.server.guarding import guarded, rules_reload
from turnwire.server.keys import KeyRing
from turnwire.server.ledger.budgets import Budgets
from turnwire.server.ledger.budgets_file import reload_budgets
from turnwire.server.ledger.opening import DataError, DataRoom
from turnwire.server.ledger.port import Ledger
from turnwire.server.ledger.recorder import BudgetLedger, PriceOf
from turnwire.server.media.fetch import Fetcher
from turnwire.server.media.reader import MediaReader
from turnwire.server.media.service import ImageService
from turnwire.server.models.opening import EngineOpenError, MissingExtraError, open_registry
from turnwire.server.models.reload import Models
from turnwire.server.models.specs import Registry
from turnwire.server.policy.anew import Anew
from turnwire.server.policy.prepare import Preparer
from turnwire.server.policy.schemas import Schemas
from turnwire.server.process import drain, on_signals
from turnwire.server.prompt import vocabulary
from turnwire.server.routing.pool import Routing
from turnwire.server.runtime.clock import LoopClock
from turnwire.server.runtime.local import LocalBackend
from turnwire.server.runtime.media import MediaRoom
from turnwire.server.runtime.services import Services
from turnwire.server.runtime.sessions import SessionRoom, forget_in_time
from turnwire.server.sealing import SealFileError, Seals
from turnwire.server.session.budget import Budget
from turnwire.server.session.conversations import Conversations
from turnwire.server.session.switches import Switches
from turnwire.server.session.toolsets import ToolSets
from turnwire.server.session.visits import Visits
from turnwire.server.store.durable import DurableStore
from turnwire.server.store.memory import MemoryStore
from turnwire.server.telemetry.carried import CarriedMetrics
from turnwire.server.telemetry.endpoint import MetricsEndpoint
from turnwire.server.telemetry.engine_metrics import EngineMetrics, PricedMetrics
from turnwire.server.telemetry.kept_metrics import KeptMetrics
from turnwire.server.telemetry.ledger_metrics import LedgerMetrics
from turnwire.server.telemetry.metrics import Metrics
from turnwire.server.telemetry.routing_metrics import RoutingMetrics
from turnwire.server.tools.config import ToolsConfig
from turnwire.server.tools.port import HostedTools, NoHostedTools
from turnwire.server.tools.room import HostedRoom, MissingExtra, open_room

_log: Final = logging.getLogger(__name__)

_COLLECTED_AFTER: Final = (2_000, 10, 50)
"""New objects after which the collector looks at the youngest, and how often before it looks at older ones. A turn
leaves it nothing to find, and each session a few dozen objects in cycles when it ends. A full collection beside 9,000
idle sessions was seen to take 400 ms, in which all lanes stand still; by Python's own numbers opening them brought
seven collections, by these none. A million objects that are garbage would bring one."""


async def _models(config: ServerConfig, metrics: EngineMetrics, routing_metrics: RoutingMetrics) -> Models:
    routing = Routing(cached="route-cache" not in config.disable, observer=routing_metrics)
    registry = config.models or Registry((config.engine,))
    try:
        opened = await open_registry(registry, os.environ, metrics, routing)
    except MissingExtraError as error:
        raise ConfigError([str(error)]) from error
    except EngineOpenError as error:
        raise StartError(str(error)) from error
    engines = EngineRegistry((), cached=routing.cached, revision=routing.revision)
    path = config.models_file
    return Models(engines, opened, path, os.environ, metrics, routing, routing_metrics.reloaded)


def _hosted(config: ToolsConfig) -> HostedRoom:
    try:
        return open_room(config)
    except MissingExtra as error:
        raise ConfigError([str(error)]) from error


def _seals(config: ServerConfig) -> Seals:
    if config.seal_key_file is None:
        return Seals.fresh()
    try:
        return Seals.load(config.seal_key_file)
    except SealFileError as error:
        raise ConfigError([str(error)]) from error


@dataclass(frozen=True, slots=True)
class _Books:
    """Where responses are kept and accounted for."""

    store: DurableStore | MemoryStore
    ledger: Ledger
    tool_sets: ToolSets
    budgets: Budgets
    visits: Visits


def _books(config: ServerConfig, metrics: CollectorRegistry, price: PriceOf, stack: AsyncExitStack) -> _Books:
    wall = LoopClock().wall
    budgets = Budgets(config.budgets, wall)
    tool_sets = ToolSets(cached="tool-cache" not in config.disable)
    visits = Visits()
    ledger_metrics = LedgerMetrics(metrics)
    if config.data is None:
        _log.info("responses and usage are kept in memory and end with the process: there is no --data-dir")
        return _Books(MemoryStore(), BudgetLedger(budgets, price), tool_sets, budgets, visits)
    try:
        room = DataRoom(config.data, budgets, price, wall, tool_sets, ledger_metrics, visits)
    except DataError as error:
        raise StartError(str(error)) from error
    ledger_metrics.watch(room.consumer)
    stack.push_async_callback(room.aclose)
    return _Books(room.store, room.ledger, tool_sets, budgets, visits)


def _services(
    config: ServerConfig, registry: EngineRegistry, tools: HostedTools, metrics: Metrics, books: _Books
) -> Services:
    seals = _seals(config)
    switches = Switches.without(config.disable)
    media = config.media if "inline-images" in config.disable else replace(config.media, service="")
    reader = MediaReader(media)
    checks = Preparer(
        registry.resolve,
        config.limits,
        count=vocabulary.count,
        hosted=tools,
        profile=registry.profile,
        seals=seals,
        find_items=books.store.find_items,
        notices=CarriedMetrics(metrics.registry),
        media=reader,
        takes=registry.takes,
        schemas=Schemas(cached=switches.tool_cache),
    )
    policy, guard = guarded(config, checks, metrics.registry)
    budget = Budget(config.max_kept_bytes)
    remembers = config.known.max_conversations > 0 and switches.item_cache
    conversations = Conversations(os.urandom(32), config.known, budget) if remembers else None
    if conversations is not None and isinstance(books.store, DurableStore):
        books.store.mark = conversations.marker.mark
    services = Services(
        engines=registry,
        policy=policy,
        guard=guard,
        store=books.store,
        ledger=books.ledger,
        tool_sets=books.tool_sets,
        visits=books.visits,
        seals=seals,
        tools=tools,
        clock=LoopClock(),
        count_tokens=vocabulary.count,
        limits=config.limits,
        observer=metrics,
        server=f"turnwire/{version('turnwire')}",
        batch_window=config.batch_window if switches.delta_batching else 0.0,
        switches=switches,
        anew=Anew(reader),
        budget=budget,
        conversations=conversations,
        media=MediaRoom(
            media,
            fetcher=Fetcher(media) if media.urls else None,
            service=ImageService(media) if media.service else None,
        ),
    )
    KeptMetrics(metrics.registry, budget, conversations, services.visits)
    return services


def _options(config: ServerConfig) -> GrpcOptions:
    return GrpcOptions(
        max_message_bytes=config.max_message_bytes,
        keepalive_time=config.keepalive.time,
        keepalive_timeout=config.keepalive.timeout,
        min_client_ping_interval=config.keepalive.min_client_interval,
        max_sessions=config.max_sessions,
        max_sessions_per_principal=config.max_sessions_per_key,
    )


def _credentials(tls: TlsConfig | None) -> grpc.ServerCredentials | None:
    if tls is None:
        return None
    pair = (_read(tls.key), _read(tls.cert))
    clients = _read(tls.client_ca) if tls.client_ca else None
    return grpc.ssl_server_credentials([pair], clients, require_client_auth=clients is not None)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror}"
        raise StartError(msg) from error


def _ssl_context(tls: TlsConfig | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.cert, tls.key, password="")
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (ssl.SSLError, OSError) as error:
        msg = f"the certificates cannot be used: {error}"
        raise StartError(msg) from error
    return context


def _http_server(config: ServerConfig, room: SessionRoom, backend: LocalBackend) -> HttpServer:
    limits = config.limits
    websocket = WebSocketDoor(
        backend,
        WebSocketOptions(
            max_message_bytes=min(WebSocketOptions().max_message_bytes, limits.max_request_bytes),
            stall_timeout=limits.stall_timeout,
            ping_interval=config.websocket_ping_interval,
            pong_timeout=config.websocket_pong_timeout,
            compression=config.websocket_compression,
        ),
    )
    return HttpServer(
        backend,
        room.services.clock,
        HttpOptions(
            max_body_bytes=limits.max_request_bytes,
            stall_timeout=limits.stall_timeout,
            compression=config.http_compression,
        ),
        websocket.handle if config.websocket else None,
        origins=Origins(config.http_origins, keys=config.api_key_file is not None, addresses=config.http),
    )


async def _open_http(server: HttpServer, address: Address, tls: ssl.SSLContext | None) -> str:
    """Listens, and returns the URL."""
    try:
        prepare(address)
        bound = await server.listen(address, None if address.path else tls)
    except (CannotBind, OSError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        msg = f"cannot listen at {address}: {reason}. Choose another address with --http"
        raise StartError(msg) from error
    return str(bound) if bound.path else f"{'https' if tls else 'http'}://{bound}"


def _listen(server: GrpcServer, address: Address, credentials: grpc.ServerCredentials | None) -> Address:
    try:
        prepare(address)
        port = server.listen(str(address), None if address.path else credentials)
    except (CannotBind, RuntimeError) as error:
        msg = f"cannot listen at {address}: {error}. Choose another address with --grpc"
        raise StartError(msg) from error
    return address if address.path else address.bound_to(port)


async def _expose(endpoint: MetricsEndpoint, address: Address) -> Address:
    try:
        return await endpoint.start(address)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        msg = f"cannot listen at {address}: {reason}. Choose another address with --metrics"
        raise StartError(msg) from error


async def run_server(config: ServerConfig, ready: Callable[[str], None]) -> int:
    """Runs a server until it is told to stop by SIGINT or SIGTERM; a second signal stops it at once.

    Args:
        config: Everything it is told.
        ready: Hears one line per address once it listens there.

    Returns:
        The exit code, 0.

    Raises:
        StartError: An address, a file or an engine cannot be used.
        ConfigError: Packages that the configuration needs are not installed.
        ScenarioError: The scenario cannot be played.
        KeyFileError: The key file cannot be used.
    """
    keys = KeyRing.load(config.api_key_file) if config.api_key_file else None
    async with AsyncExitStack() as stack:
        tools: HostedTools = NoHostedTools()
        if config.tools is not None:
            tools = room = _hosted(config.tools)
            stack.push_async_callback(room.aclose)
        collectors = CollectorRegistry()
        metrics = EngineMetrics(collectors)
        models = await _models(config, metrics, RoutingMetrics(collectors))
        stack.push_async_callback(models.aclose)
        engines = models.engines

        def price(model: str) -> Price | None:
            return engines.profile(model).price

        priced = PricedMetrics(collectors, metrics, price)
        books = _books(config, collectors, price, stack)

        def reload() -> None:
            if config.models_file is not None:
                models.request()
            if config.budgets_file is not None:
                reload_budgets(config.budgets_file, books.budgets)
            if rules is not None:
                rules.request()

        services = _services(config, engines, tools, priced, books)
        rules = rules_reload(config, services.guard, os.environ)
        if config.models_file is not None or config.budgets_file is not None or rules is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
        stack.push_async_callback(services.media.aclose)
        stack.push_async_callback(services.guard.aclose)
        if rules is not None:
            stack.push_async_callback(rules.aclose)
        await _serve(config, services, priced, keys, ready)
    return 0


async def _serve(
    config: ServerConfig, services: Services, metrics: Metrics, keys: KeyRing | None, ready: Callable[[str], None]
) -> None:
    metrics.watch(lambda: [session.gauges() for session in services.sessions.values()])
    # Now and not with the first request, which would wait half a second for it.
    vocabulary.encoding()
    # What is there now stays: looking through it again with every full collection would stop all lanes for that long.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)
    room = SessionRoom(services, config.max_sessions, config.max_sessions_per_key)
    grpc_server = GrpcServer(services, keys, _options(config), on_refused=metrics.auth_failed, room=room)
    http_server = _http_server(config, room, LocalBackend(room, keys, metrics.auth_failed))
    credentials = _credentials(config.tls)
    bound = [_listen(grpc_server, address, credentials) for address in config.grpc]
    forgetting = asyncio.create_task(forget_in_time(services))
    stopping = asyncio.Event()
    endpoint = MetricsEndpoint(metrics.registry, healthy=lambda: not stopping.is_set())

    async def stop(grace: float) -> None:
        # Sessions of all doors hear of it at the same time.
        room.go_away("shutdown", grace, retry_after=0.0)
        await asyncio.gather(grpc_server.stop(grace), http_server.stop(grace))

    # Before anybody hears that the server is ready, since the next thing may be a signal.
    on_signals(stopping.set)
    try:
        metrics_at = await _expose(endpoint, config.metrics) if config.metrics else None
        tls = _ssl_context(config.tls)
        urls = [await _open_http(http_server, address, tls) for address in config.http]
        await grpc_server.start()
        for address in bound:
            ready(f"grpc listening on {address}")
        for url in urls:
            ready(f"http listening on {url}")
        if metrics_at is not None:
            ready(f"metrics listening on {_url(metrics_at)}")
        await stopping.wait()
        _log.info("draining: running responses get %g s; a second signal stops at once", config.drain_grace)
        await drain(stop, config.drain_grace)
    finally:
        forgetting.cancel()
        await stop(0)
        await endpoint.stop()


def _url(address: Address) -> str:
    return str(address) if address.path else f"http://{address}/metrics"
