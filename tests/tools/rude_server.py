"""An MCP server of the first protocol, without the SDK, over standard input and output: `python rude_server.py WAY`.

Ways: `polite`; `mute` never answers; `noisy` prints what is no message; `liar` lists what is no tool, `sloppy` tools
that cannot be used; `abyss` lists a schema that nothing can read; `endless` gives the same page for ever; `many` lists
1,000 tools; `flood` answers calls with 50 MB of one line; `quitter` ends when it is called; `deaf` neither reads nor
ends.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

WAY = sys.argv[1]
DEPTH = 300 if WAY == "abyss" else 40


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tools() -> dict[str, Any]:
    good = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}
    if WAY == "liar":
        return {"tools": [good, {"name": "text", "inputSchema": {"type": "string"}}]}
    if WAY in ("sloppy", "abyss"):
        deep: dict[str, Any] = {"type": "object"}
        for _ in range(DEPTH):
            deep = {"type": "object", "properties": {"x": deep}}
        return {
            "tools": [
                {"name": "nonsense", "inputSchema": {"type": "object", "properties": {"a": {"type": "nothing"}}}},
                {"name": "huge", "description": "x" * 200_000, "inputSchema": {"type": "object"}},
                {"name": "deep", "inputSchema": deep},
                {"name": "", "inputSchema": {"type": "object"}},
                {"name": "n" * 200, "inputSchema": {"type": "object"}},
                good,
                good,
            ]
        }
    if WAY == "endless":
        return {"tools": [good], "nextCursor": "again"}
    if WAY == "many":
        return {"tools": [{**good, "name": f"echo{n}"} for n in range(1_000)]}
    return {"tools": [good]}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "rude", "version": "1"},
                }
            }
        case "tools/list":
            return {"result": tools()}
        case "tools/call" if WAY == "quitter":
            sys.exit(0)
        case "tools/call" if WAY == "flood":
            return {"result": {"content": [{"type": "text", "text": "y" * 50_000_000}]}}
        case "tools/call":
            text = json.dumps(request["params"]["arguments"])
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


def main() -> None:
    if WAY == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
    for line in sys.stdin:
        request = json.loads(line)
        if WAY == "noisy":
            sys.stdout.write('Listening…\n\n{"jsonrpc": \n[1, 2]\n\xff\n')
        if WAY != "mute" and "id" in request:
            say({"id": request["id"], **answer(request)})


main()
