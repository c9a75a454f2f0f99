"""The HTTP door: hosts the official HTTP API, and the WebSocket door on the same path, on aiohttp."""
