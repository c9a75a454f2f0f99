"""What the chat engine is told: the upstream, the models it serves, and its limits, as frozen values.

Above it: the wiring of a server. Below it: `flavours`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from turnwire.server.engine.chat.flavours import FLAVOURS, Flavour

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ChatModel:
    """One model of an upstream."""

    id: str
    """The name clients use."""
    upstream: str = ""
    """The name the upstream uses; empty where it is the same."""
    context_length: int | None = None
    """Tokens of prompt and output together; None where nobody says."""
    images: bool = True
    """Whether it takes images; a request with one is refused otherwise."""


@dataclass(frozen=True, slots=True)
class ChatEngineConfig:
    """Everything about one upstream. Times are in seconds."""

    base_url: str
    """Where the API stands, such as `http://127.0.0.1:8000/v1`; `/v1` is added to an address without a path."""
    flavour: str = "generic"
    """What kind of server it is: a key of `FLAVOURS`."""
    api_key: str = field(default="", repr=False)
    """Sent as a bearer token; empty sends none. Secret: never logged, never part of a message."""
    models: tuple[ChatModel, ...] = ()
    """The models served; empty asks the upstream (`GET /v1/models`) at start and every `refresh`."""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Sent with every request. May be secret."""
    extra_body: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Members of every request body; they win over what a client's settings say."""
    max_tokens_field: str = ""
    """The parameter that limits output; empty leaves it to the flavour."""
    reasoning_field: str = ""
    """The field of assistant messages that takes reasoning back; empty leaves it to the flavour, `none` sends none."""
    merge_roles: bool | None = None
    """Whether neighbouring messages of one role become one; None leaves it to the flavour."""
    late_system_as_user: bool = False
    """Whether system messages behind the first other message are sent as the user's: some templates refuse them."""
    connect_timeout: float = 5.0
    """Time to get a connection, a place in the pool included; then the upstream counts as not available."""
    first_byte_timeout: float = 600.0
    """Time from the request to the first byte of the answer: queue and prefill of the upstream."""
    idle_timeout: float = 600.0
    """Silence within an answer after which it counts as dead. Time in which the client takes nothing does not count."""
    tail_timeout: float = 5.0
    """Time for usage and the end of the stream once the model has stopped."""
    refresh: float = 30.0
    """Time between questions for the models, where they are not configured."""
    max_connections: int = 1024
    """Connections at most, which are as many passes at once."""
    keepalive: float = 60.0
    """How long an idle connection is kept for the next pass. Keep it below the upstream's own limit."""
    max_event_bytes: int = 8 * _MIB
    """The largest event of a stream."""
    max_answer_bytes: int = 32 * _MIB
    """The largest answer of an upstream that does not stream although asked to."""
    ca_file: Path | None = None
    """PEM file of the authorities to trust; None trusts the system's."""
    routing_headers: tuple[str, ...] = ()
    """Headers that carry what a conversation is routed by, for an upstream that is a router itself."""
    trust_env: bool = False
    """Whether `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY` and `.netrc` count."""

    def __post_init__(self) -> None:
        """Checks what would otherwise fail with the first pass.

        Raises:
            ValueError: The address or the flavour cannot be used; the text says what to do.
        """
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f"not the address of an upstream: {self.base_url!r}: write http://HOST:PORT/v1"
            raise ValueError(msg)
        if parts.username or parts.query or parts.fragment:
            msg = (
                "the address of an upstream takes no user, query or fragment: give a key as api_key, headers as headers"
            )
            raise ValueError(msg)
        if self.flavour not in FLAVOURS:
            msg = f"unknown flavour {self.flavour!r}: choose one of {', '.join(FLAVOURS)}"
            raise ValueError(msg)

    @property
    def kind(self) -> Flavour:
        """The flavour's row."""
        return FLAVOURS[self.flavour]

    def url(self, path: str) -> str:
        """Returns the address of a path of the API, such as `/chat/completions`."""
        base = self.base_url.rstrip("/")
        return f"{base}{path}" if urlsplit(base).path else f"{base}/v1{path}"
