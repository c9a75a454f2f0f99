"""The server's configuration as values: frozen, checked, with every default in one place.

Above it: `app`, which wires a server from it, and `cli`. Below it: the limits of a session, what engines and models are
asked for, and hosted tools. `settings` reads it from flags, environment variables and files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from turnwire.server.address import Address
from turnwire.server.ledger.budgets import Budget
from turnwire.server.ledger.config import DataConfig
from turnwire.server.media.config import MEDIA, MediaConfig
from turnwire.server.models.specs import EngineSpec, Registry
from turnwire.server.policy.safety.rules import SafetyConfig
from turnwire.server.session.conversations import ConversationLimits
from turnwire.server.session.limits import MIB, SessionLimits
from turnwire.server.tools.config import ToolsConfig

SWITCHES: Final[tuple[str, ...]] = (
    "token-cache",
    "item-cache",
    "tool-cache",
    "route-cache",
    "incremental-safety",
    "incremental-validation",
    "overlapped-ledger",
    "inline-images",
    "delta-batching",
)
"""Optimizations that `disable` can switch off by name."""

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


class ConfigError(Exception):
    """The configuration cannot be used; the text has one line per mistake and names where each came from."""

    def __init__(self, problems: list[str]) -> None:
        """Takes one line per mistake."""
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        """One line per mistake."""


class StartError(Exception):
    """The server cannot start or go on for a reason outside it, such as a port in use; the text is for its operator."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Certificates of the gRPC and HTTP doors, as PEM files."""

    cert: Path
    """The server's certificate, followed by its intermediates."""
    key: Path
    """The certificate's private key."""
    client_ca: Path | None = None
    """Certificates that sign clients' certificates; set, it makes them compulsory (mutual TLS)."""


@dataclass(frozen=True, slots=True)
class KeepaliveConfig:
    """HTTP/2 pings. They find dead peers; the sign of life that proxies want is the session's heartbeat. In seconds."""

    time: float = 30.0
    """Silence of a client after which the server pings it."""
    timeout: float = 10.0
    """Time for the answer, after which the connection is dead and its engines are freed."""
    min_client_interval: float = 5.0
    """How often a client may ping. A thinking model is a quiet stream, and grpcio's default of five minutes there kills
    connections of clients that ping every ten seconds."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What goes to standard error."""

    level: LogLevel = "info"
    """The least severe messages to write."""
    format: LogFormat = "text"
    """`text` for people, `json` for collectors: one object a line."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything a server is told before it starts."""

    grpc: tuple[Address, ...] = (Address("127.0.0.1", 50051),)
    """Where the gRPC door listens."""
    http: tuple[Address, ...] = (Address("127.0.0.1", 8080),)
    """Where the HTTP door listens, which takes WebSockets too."""
    websocket: bool = True
    """Whether the HTTP door takes WebSockets; else it answers upgrades by 426."""
    websocket_compression: bool = True
    """Whether WebSocket clients that offer permessage-deflate get it."""
    websocket_ping_interval: float = 20.0
    """Seconds of silence after which the server pings a WebSocket client."""
    websocket_pong_timeout: float = 40.0
    """Seconds for the answer, after which the client counts as gone."""
    http_compression: bool = False
    """Whether event streams are compressed for HTTP clients that offer zstd or gzip."""
    http_origins: frozenset[str] = frozenset()
    """Origins of web pages that are let in; `*` for all. Without keys no others are."""
    metrics: Address | None = field(default_factory=lambda: Address("127.0.0.1", 9464))
    """Where /metrics and /healthz are answered; None for nowhere."""
    engine: EngineSpec = field(default_factory=EngineSpec)
    """Where tokens come from, unless `models` says so."""
    models: Registry | None = None
    """Several engines and their models."""
    models_file: Path | None = None
    """Where they were read from, and are read again on SIGHUP."""
    safety: SafetyConfig | None = None
    """How responses are guarded; None looks at nothing."""
    safety_file: Path | None = None
    """Where `safety` was read, to read its rules again on SIGHUP."""
    tools: ToolsConfig | None = None
    """Which tools the server runs itself; None runs none."""
    api_key_file: Path | None = None
    """Keys that clients must show, see `keys`; None lets anybody in, as the anonymous principal."""
    seal_key_file: Path | None = None
    """Keys that seal what clients keep for the server, see `sealing`; None makes one that is gone with the process."""
    data: DataConfig | None = None
    """Where responses and the usage ledger are kept; None keeps them in memory."""
    budgets_file: Path | None = None
    """Where budgets come from, and are read again on SIGHUP."""
    budgets: Mapping[str, Budget] = field(default_factory=dict[str, Budget])
    """What principals may use."""
    allow_public: bool = False
    """Whether addresses that others can reach may be bound without keys."""
    disable: frozenset[str] = frozenset()
    """Optimizations to switch off, of `SWITCHES`."""
    tls: TlsConfig | None = None
    """Certificates of the gRPC and HTTP doors; None speaks plaintext. Unix sockets are always plaintext."""
    limits: SessionLimits = field(default_factory=SessionLimits)
    """What one session may use."""
    media: MediaConfig = MEDIA
    """What images and files may be, and where they may come from. An image service is asked where `inline-images` is
    disabled, and only there."""
    max_kept_bytes: int = 2048 * MIB
    """Bytes that all sessions together may keep for continuation, shared history counted once."""
    known: ConversationLimits = field(default_factory=ConversationLimits)
    """What is remembered of conversations whose clients send them again instead of continuing from an id."""
    keepalive: KeepaliveConfig = KeepaliveConfig()
    """HTTP/2 pings."""
    batch_window: float | None = None
    """Seconds that tokens after the first may wait for company, counted from the batch before, where a client does not
    say; 0 sends each at once, None leaves it to the door: 2 ms over gRPC, 0 elsewhere."""
    max_sessions: int = 20_000
    """Sessions at the same time; one idle session and its connection take about 65 KB."""
    max_sessions_per_key: int = 10_000
    """Sessions of one principal at the same time; without keys everybody is the same principal."""
    max_message_bytes: int = 64 * MIB
    """Largest message on the wire. Twice the largest request, so that a request over its limit is refused by name
    before the transport ends the stream."""
    log: LogConfig = LogConfig()
    """What goes to standard error."""

    @property
    def drain_grace(self) -> float:
        """Seconds that running responses get after the first signal: `limits.grace`, which clients are told too."""
        return self.limits.grace

    def public_addresses(self) -> Iterator[Address]:
        """Yields the addresses that others than this machine may reach."""
        for address in (*self.grpc, *self.http, self.metrics):
            if address is not None and address.public:
                yield address
