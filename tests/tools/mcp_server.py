"""An MCP server in a process of its own, on the official SDK: `python mcp_server.py stdio|http|json`.

It tells the test what happens to it over the loopback port in WITNESS, a line each.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.types import ToolAnnotations


class Witness:
    def __init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", int(os.environ["WITNESS"])))

    def tell(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\n")


witness = Witness()
server = MCPServer("tests")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def shout(text: str) -> str:
    """Says a text loudly."""
    return text.upper()


@server.tool(structured_output=False)
def big(size: int) -> str:
    """Says a lot."""
    return "é" * (size // 2)


@server.tool()
def fail(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)


@server.tool()
async def hang() -> str:
    """Never ends by itself."""
    witness.tell("hanging")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        witness.tell("cancelled")
        raise
    return ""


@server.tool()
def die() -> str:
    """Takes the server with it."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@server.tool(structured_output=False)
def picture() -> Image:
    """Draws."""
    return Image(data=b"\x89PNG" + bytes(96), format="png")


@server.tool()
def headers(ctx: Context) -> list[str]:
    """Tells what it was sent."""
    assert ctx.request_context.request is not None
    return [f"{name}: {value}" for name, value in ctx.request_context.request.headers.items()]


@server.tool()
def environment(name: str) -> str:
    """Tells a variable."""
    return os.environ.get(name, "unset")


async def _http(*, json: bool) -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    app = server.streamable_http_app(json_response=json)
    config = uvicorn.Config(app, log_level="critical")
    witness.tell(f"port {listening.getsockname()[1]}")
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    witness.tell("started")
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        asyncio.run(_http(json=sys.argv[1] == "json"))
