"""This project's server, with the engine that asks chat completions.

Above it: the list of gateways. Below it: the command line. It keeps what it stores on disk, as the slowest of its
peers does.
"""

from __future__ import annotations

from typing import Final

from turnwire.bench.peers.port import Gateway, Launch, Place

NAME: Final = "turnwire"


def launch(place: Place) -> Launch:
    """Returns how it is started."""
    options = ("--http", f"127.0.0.1:{place.http}", "--grpc", f"127.0.0.1:{place.spare}", "--metrics", "off")
    engine = ("--engine", "openai", "--upstream", f"{place.upstream}/v1", "--data-dir", str(place.folder / "data"))
    return Launch((str(place.python), "-m", "turnwire.client.cli", "serve", *options, *engine))


GATEWAY: Final = Gateway(NAME, launch, chained=("sse", "ws", "grpc"), stores="files")
