"""The vLLM project's Agentic API, a gateway in Rust with SQLite behind it.

Above it: the list of gateways. Below it: PyPI.
"""

from __future__ import annotations

from typing import Final

from turnwire.bench.peers.port import Gateway, Launch, Place


def launch(place: Place) -> Launch:
    """Returns how it is started."""
    command = (
        place.tool("agentic-server"),
        "--llm-api-base",
        place.upstream,
        "--gateway-host",
        "127.0.0.1",
        "--gateway-port",
        str(place.http),
        "--db-url",
        f"sqlite://{place.folder}/responses.sqlite",
    )
    return Launch(command, {"AGENTIC_API_HOME": str(place.folder)})


GATEWAY: Final = Gateway("agentic-api", launch, ("agentic-api==0.9.0",), chained=("sse", "ws"), stores="SQLite")
