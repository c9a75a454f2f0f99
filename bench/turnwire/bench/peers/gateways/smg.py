"""The Shepherd Model Gateway, in Rust, with its backend for OpenAI-compatible servers.

Above it: the list of gateways. Below it: PyPI. It has no WebSocket for responses.
"""

from __future__ import annotations

from typing import Final

from turnwire.bench.peers.port import Gateway, Launch, Place


def launch(place: Place) -> Launch:
    """Returns how it is started."""
    listening = ("--host", "127.0.0.1", "--port", str(place.http), "--log-level", "warn")
    metrics = ("--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.spare))
    behind = ("--backend", "openai", "--worker-urls", place.upstream, "--history-backend", "memory")
    return Launch((place.tool("smg"), "launch", *listening, *metrics, *behind))


GATEWAY: Final = Gateway("smg", launch, ("smg==1.13.0",))
