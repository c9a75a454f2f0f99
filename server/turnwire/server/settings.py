"""Everything that can be configured: its key, flag, variable and default, and how it becomes a `ServerConfig`.

Above it: `cli`. Below it: `sources`, which finds values, `values`, which reads them, `config`, which holds them, and
the readers of engines, registry files and tools files.
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

from turnwire.server import values
from turnwire.server.config import (
    SWITCHES,
    KeepaliveConfig,
    LogConfig,
    LogFormat,
    LogLevel,
    ServerConfig,
    TlsConfig,
)
from turnwire.server.data_settings import DATA_SETTINGS, read_budgets, read_data
from turnwire.server.doors.http.origin import ANY, read_origin
from turnwire.server.media_settings import MEDIA_SETTINGS, read_media
from turnwire.server.models.keys import Reader, read_engine, read_kind
from turnwire.server.models.specs import EngineSpec, Registry
from turnwire.server.policy.safety.rules import EXTRA, SafetyConfig
from turnwire.server.policy.safety.rules_file import SafetyFileError, load_safety_file
from turnwire.server.session.conversations import ConversationLimits
from turnwire.server.session.limits import MAX_BATCH_WINDOW, MIB, SessionLimits
from turnwire.server.sources import Setting, Sources
from turnwire.server.tools.config import ToolsConfig
from turnwire.server.tools.tools_file import ToolsFileError, load_tools_file

_LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
_FORMATS: Final[tuple[LogFormat, ...]] = get_args(LogFormat)

_SETTINGS: Final = (
    Setting("config", "Read settings from a TOML file.", "", "--config", "FILE"),
    Setting("grpc", "Listen for gRPC here. Repeatable.", "127.0.0.1:50051", "--grpc", "ADDRESS", repeatable=True),
    Setting(
        "http",
        "Listen for HTTP and WebSocket here. Repeatable.",
        "127.0.0.1:8080",
        "--http",
        "ADDRESS",
        repeatable=True,
    ),
    Setting(
        "http_origins",
        "Let in web pages of this origin, or * for all. Repeatable.",
        "",
        "--http-origins",
        "ORIGIN",
        repeatable=True,
    ),
    Setting(
        "http_compression",
        "Compress event streams for HTTP clients that offer it.",
        "false",
        "--http-compression",
        "BOOL",
    ),
    Setting("websocket", "Take WebSockets on the HTTP door; else answer 426.", "true", "--websocket", "BOOL"),
    Setting(
        "websocket_compression",
        "Compress for WebSocket clients that offer it.",
        "true",
        "--websocket-compression",
        "BOOL",
    ),
    Setting("websocket_ping_interval", "Silence after which the server pings a WebSocket client.", "20s"),
    Setting("websocket_pong_timeout", "Time for the answer.", "40s"),
    Setting("metrics", "Answer /metrics and /healthz here.", "127.0.0.1:9464", "--metrics", "ADDRESS"),
    Setting(
        "engine.kind",
        "Where tokens come from: scripted (a simulation), openai, vllm, vllm-grpc, sglang-grpc, local.",
        "scripted",
        "--engine",
        "NAME",
    ),
    Setting(
        "engine.upstream", "Inference server of the engine. Repeatable.", "", "--upstream", "ADDRESS", repeatable=True
    ),
    Setting("engine.upstream_key_env", "Variable that holds the upstream's API key.", "", "--upstream-key-env", "NAME"),
    Setting(
        "engine.model",
        "Name of a model to serve, else all; of local, its GGUF file. Repeatable.",
        "",
        "--model",
        "NAME",
        repeatable=True,
        # TURNWIRE_MODEL is what clients ask for.
        variable_name="ENGINE_MODEL",
    ),
    Setting(
        "engine.flavour",
        "Habits of an openai upstream: generic (if not said), openai, vllm, llamacpp, ollama.",
        "",
        "--flavour",
        "NAME",
    ),
    Setting(
        "engine.renderer",
        "Who makes prompts for engines that take tokens: harmony (gpt-oss), template.",
        "",
        "--renderer",
        "NAME",
    ),
    Setting("engine.tokenizer", "Folder with tokenizer.json and chat template.", "", "--tokenizer", "DIR"),
    Setting(
        "engine.output_format",
        "How the model writes reasoning and calls; else found in its template.",
        "",
        "--output-format",
        "NAME",
    ),
    Setting("engine.slots", "Conversations that the local model keeps at once.", "", "--slots", "N"),
    Setting("engine.context", "Tokens of a conversation of the local model.", "", "--context", "N"),
    Setting("engine.threads", "Threads of the local model.", "", "--threads", "N"),
    Setting("engine.scenario", "What the scripted engine plays; else the packaged demo.", "", "--scenario", "FILE"),
    Setting("engine.ttft", "Time to first token, over what the scenario says.", "", "--ttft", "DURATION"),
    Setting("engine.tokens_per_second", "Rate, over what the scenario says.", "", "--tokens-per-second", "RATE"),
    Setting("engine.burst", "Tokens at once, over what the scenario says.", "", "--burst", "N"),
    Setting("models", "Serve the engines and models of a registry file, in place of --engine.", "", "--models", "FILE"),
    Setting("safety", "Guard responses by the rules and classifiers of this file.", "", "--safety", "FILE"),
    Setting("tools_file", "Run the hosted tools of this file: MCP servers, web search.", "", "--tools-file", "FILE"),
    Setting("api_key_file", "Let in only who shows a key of this file.", "", "--api-key-file", "FILE"),
    Setting("seal_key_file", "Seal what clients replay with the keys of this file.", "", "--seal-key-file", "FILE"),
    *DATA_SETTINGS,
    Setting("allow_public", "Bind addresses that others can reach even without keys.", "false", "--allow-public"),
    Setting("disable", "Switch optimizations off by name.", "", "--disable", "NAMES", repeatable=True),
    *MEDIA_SETTINGS,
    Setting("tls.cert", "Certificate chain of the gRPC and HTTP doors, PEM.", "", "--tls-cert", "FILE"),
    Setting("tls.key", "Private key of the certificate, PEM.", "", "--tls-key", "FILE"),
    Setting("tls.client_ca", "Ask clients for certificates signed by these, PEM.", "", "--tls-client-ca", "FILE"),
    Setting(
        "batch_window",
        "How long after a batch later tokens wait for the next; if not said, 2ms over gRPC, else 0s.",
        "",
        "--batch-window",
        "DURATION",
    ),
    Setting("limits.grace", "Time for running responses at shut-down.", "30s", "--drain-grace", "DURATION"),
    Setting("max_sessions", "Sessions at the same time.", "20000", "--max-sessions", "N"),
    Setting("max_sessions_per_key", "Sessions of one principal.", "10000", "--max-sessions-per-key", "N"),
    Setting("max_kept_bytes", "Bytes of conversations of all sessions.", "2GiB", "--max-kept-bytes", "SIZE"),
    Setting("known.max_age", "How long a resent conversation is known.", "15m", "--known-age", "DURATION"),
    Setting("known.max_bytes", "Bytes of conversations known so.", "256MiB", "--known-bytes", "SIZE"),
    Setting("known.max_conversations", "Points of conversations known so; 0 for none.", "16384", "--known", "N"),
    Setting("max_message_bytes", "Largest message on the wire.", "64MiB"),
    Setting("keepalive.time", "Silence after which the server pings a client.", "30s"),
    Setting("keepalive.timeout", "Time for the answer.", "10s"),
    Setting("keepalive.min_client_interval", "How often a client may ping.", "5s"),
    Setting("log.level", "Least severe log messages: debug, info, warning, error.", "info", "--log-level", "LEVEL"),
    Setting("log.format", "Log as text, or as json, one object a line.", "text", "--log-format", "FORMAT"),
)

_MAX_COUNT: Final = 2**31 - 1
_MAX_BYTES: Final = 2**32 - 1  # what the limits of a session can tell, except for the state


def _limit_settings() -> tuple[Setting, ...]:
    written = {setting.key for setting in _SETTINGS}
    keys = {f"limits.{field.name}": f"{field.default}" for field in dataclasses.fields(SessionLimits)}
    return tuple(Setting(key, "", default) for key, default in keys.items() if key not in written)


SETTINGS: Final = (*_SETTINGS, *_limit_settings())
"""Everything that can be configured, in the order of --help."""


def load_config(flags: Mapping[str, object], environ: Mapping[str, str]) -> ServerConfig:
    """Reads the configuration.

    Args:
        flags: What the command line gave, by key of the setting.
        environ: The environment.

    Raises:
        ConfigError: Something is wrong; names every mistake and where it was made.
    """
    sources = Sources(SETTINGS, flags, environ)
    path = sources.get_in("config", values.file, None)
    if path is not None:
        sources.read_toml(path)
    config = _read(sources, environ)
    _check(config, sources)
    sources.raise_if_any()
    return config


def _read(sources: Sources, environ: Mapping[str, str]) -> ServerConfig:
    base = ServerConfig()
    get, get_in = sources.get, sources.get_in
    models = _models(sources, environ)
    disable = get("disable", values.read_names(SWITCHES), base.disable)
    return ServerConfig(
        grpc=get_in("grpc", values.addresses, base.grpc),
        http=get_in("http", values.addresses, base.http),
        http_origins=get("http_origins", values.read_set(read_origin), base.http_origins),
        http_compression=get("http_compression", values.read_bool, base.http_compression),
        websocket=get("websocket", values.read_bool, base.websocket),
        websocket_compression=get("websocket_compression", values.read_bool, base.websocket_compression),
        websocket_ping_interval=get("websocket_ping_interval", values.duration(0.1), base.websocket_ping_interval),
        websocket_pong_timeout=get("websocket_pong_timeout", values.duration(0.1), base.websocket_pong_timeout),
        metrics=get_in("metrics", values.address, base.metrics),
        engine=_engine(sources, environ),
        models=models,
        models_file=None if models is None else get_in("models", values.file, None),
        safety=_safety(sources, environ),
        safety_file=get_in("safety", values.file, None),
        tools=_tools(sources, environ),
        api_key_file=get_in("api_key_file", values.file, None),
        seal_key_file=get_in("seal_key_file", values.file, None),
        data=read_data(sources, overlapped="overlapped-ledger" not in disable),
        budgets_file=get_in("budgets", values.file, None),
        budgets=read_budgets(sources),
        allow_public=get("allow_public", values.read_bool, base.allow_public),
        disable=disable,
        tls=_tls(sources),
        limits=_limits(sources),
        media=read_media(sources),
        keepalive=KeepaliveConfig(
            time=get("keepalive.time", values.duration(1), base.keepalive.time),
            timeout=get("keepalive.timeout", values.duration(0.1), base.keepalive.timeout),
            min_client_interval=get(
                "keepalive.min_client_interval", values.duration(0), base.keepalive.min_client_interval
            ),
        ),
        batch_window=get("batch_window", values.duration(0, MAX_BATCH_WINDOW), base.batch_window),
        max_sessions=get("max_sessions", values.integer(1, _MAX_COUNT), base.max_sessions),
        max_sessions_per_key=get("max_sessions_per_key", values.integer(1, _MAX_COUNT), base.max_sessions_per_key),
        max_kept_bytes=get("max_kept_bytes", values.size(1, 2**63 - 1), base.max_kept_bytes),
        known=ConversationLimits(
            max_conversations=get(
                "known.max_conversations", values.integer(0, _MAX_COUNT), base.known.max_conversations
            ),
            max_bytes=get("known.max_bytes", values.size(1, 2**63 - 1), base.known.max_bytes),
            max_age=get("known.max_age", values.duration(0.001), base.known.max_age),
        ),
        # gRPC counts message sizes in 32 bits with a sign.
        max_message_bytes=get("max_message_bytes", values.size(MIB, _MAX_COUNT), base.max_message_bytes),
        log=LogConfig(
            level=get("log.level", values.one_of(_LEVELS), base.log.level),
            format=get("log.format", values.one_of(_FORMATS), base.log.format),
        ),
    )


def _engine(sources: Sources, environ: Mapping[str, str]) -> EngineSpec:
    kind = sources.get("engine.kind", read_kind, "")
    if sources.given("engine.kind") and not kind:
        return EngineSpec()

    def take(key: str, make: Callable[[Path], Reader]) -> Any:
        return sources.get_in(f"engine.{key}", make, None)

    def complain(key: str, message: str) -> None:
        known = f"engine.{key}"
        sources.problems.append(f"{sources.place(known if sources.given(known) else 'engine.kind')}: {message}")

    engine = read_engine(kind or EngineSpec().kind, "", take, complain, environ)
    nothing: list[str] = []
    models = sources.get("engine.model", values.read_words, nothing)
    return dataclasses.replace(engine, models=_named_models(models, engine.kind, complain))


def _named_models(models: Sequence[str], kind: str, complain: Callable[[str, str], None]) -> tuple[str, ...]:
    if models and kind == "scripted":
        complain("model", "is not for the engine scripted, whose scenario names its models")
    if kind == "local":
        if len(models) > 1:
            complain("model", "the engine local serves one model; write a registry file for several, see --models")
        for path in models:
            try:
                values.file(Path())(path)
            except ValueError as error:
                complain("model", f"the engine local expects a model's GGUF file: {error}")
    return tuple(dict.fromkeys(models))


def _models(sources: Sources, environ: Mapping[str, str]) -> Registry | None:
    path = sources.get_in("models", values.file, None)
    if path is None:
        return None
    for setting in SETTINGS:
        if setting.key.startswith("engine.") and sources.given(setting.key):
            place = sources.place("models")
            sources.problems.append(f"{sources.place(setting.key)}: cannot stand beside {place}, which names engines")
    # Here, since checking files takes imports that a server without one, and --help, can do without.
    from turnwire.server.models.registry_file import RegistryError, load_registry

    try:
        return load_registry(path, environ)
    except RegistryError as error:
        sources.problems += [str(problem) for problem in error.problems]
        return None


def _safety(sources: Sources, environ: Mapping[str, str]) -> SafetyConfig | None:
    path = sources.get_in("safety", values.file, None)
    if path is None:
        return None
    try:
        return load_safety_file(path, environ)
    except SafetyFileError as error:
        sources.problems += [str(problem) for problem in error.problems]
    except ImportError as error:
        place = sources.place("safety")
        sources.problems.append(f"{place}: needs packages that are not installed: turnwire[{EXTRA}] ({error})")
    return None


def _tools(sources: Sources, environ: Mapping[str, str]) -> ToolsConfig | None:
    path = sources.get_in("tools_file", values.file, None)
    if path is None:
        return None
    try:
        return load_tools_file(path, environ)
    except ToolsFileError as error:
        sources.problems += error.problems
        return None


def _tls(sources: Sources) -> TlsConfig | None:
    cert = sources.get_in("tls.cert", values.file, None)
    key = sources.get_in("tls.key", values.file, None)
    client_ca = sources.get_in("tls.client_ca", values.file, None)
    given = [name for name in ("tls.cert", "tls.key", "tls.client_ca") if sources.given(name)]
    missing = [name for name in ("tls.cert", "tls.key") if given and name not in given]
    for name in missing:
        sources.problems.append(f"{sources.place(given[0])}: TLS needs {name} too")
    if cert is None or key is None:
        return None
    tls = TlsConfig(cert, key, client_ca)
    try:
        check_certificates(tls)
    except ValueError as error:
        sources.problems.append(f"{sources.place('tls.cert')}: {error}")
    return tls


def check_certificates(tls: TlsConfig) -> None:
    """Checks that certificates can be used; gRPC itself would only say that it cannot listen.

    Raises:
        ValueError: They cannot.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # An empty password in place of a prompt that nobody would see.
        context.load_cert_chain(tls.cert, tls.key, password="")
    except (ssl.SSLError, OSError) as error:
        msg = f"{tls.cert} and {tls.key} are no certificate with its unencrypted key, in PEM: {error}"
        raise ValueError(msg) from error
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (ssl.SSLError, OSError) as error:
            msg = f"{tls.client_ca} holds no certificates in PEM: {error}"
            raise ValueError(msg) from error


def _limits(sources: Sources) -> SessionLimits:
    changes: dict[str, object] = {}
    for field in dataclasses.fields(SessionLimits):
        key = f"limits.{field.name}"
        if sources.given(key):
            changes[field.name] = sources.get(key, limit_reader(field.name, field.default), field.default)
    limits = dataclasses.replace(SessionLimits(), **cast("dict[str, Any]", changes))
    if limits.queue_low_water >= limits.queue_high_water:
        place = sources.place("limits.queue_low_water" if "queue_low_water" in changes else "limits.queue_high_water")
        sources.problems.append(f"{place}: queue_low_water must be below queue_high_water")
    return limits


def limit_reader(name: str, default: object) -> Callable[[object], object]:
    """Returns the reader of one limit: times are floats, sizes are named so, all else is counted."""
    if isinstance(default, float):
        return values.duration(0.001)
    if name == "max_state_bytes":
        return values.size(1, 2**63 - 1)
    if name.endswith(("_bytes", "_water")):
        return values.size(1, _MAX_BYTES)
    return values.integer(1, _MAX_COUNT)


def _check(config: ServerConfig, sources: Sources) -> None:
    """Checks what no single value can tell."""
    if not (config.grpc or config.http):
        sources.problems.append(f"{sources.place('grpc')}: nothing to listen on: --http is off too")
    if "inline-images" in config.disable and not config.media.service:
        sources.problems.append(f"{sources.place('disable')}: without inline-images, --image-service has to be given")
    if config.max_message_bytes < config.limits.max_request_bytes:
        both = f"{config.max_message_bytes} is less than limits.max_request_bytes, {config.limits.max_request_bytes}"
        sources.problems.append(f"{sources.place('max_message_bytes')}: {both}")
    if ANY in config.http_origins and not sources.given("api_key_file"):
        sources.problems.append(
            f"{sources.place('http_origins')}: {ANY} would let in any page: give --api-key-file too"
        )
    # A key file that was named but cannot be read is reported as such; it is not the same as having none.
    if sources.given("api_key_file") or config.allow_public:
        return
    for address in config.public_addresses():
        place = sources.place("metrics" if address == config.metrics else "http" if address in config.http else "grpc")
        sources.problems.append(
            f"{place}: {address} can be reached by others: give --api-key-file, or --allow-public to let anybody in"
        )
