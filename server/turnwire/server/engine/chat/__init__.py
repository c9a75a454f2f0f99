"""The chat engine: the engine port over any OpenAI-compatible `/v1/chat/completions` upstream.

Above it: the runtime, through the engine port. Below it: `config` and `flavours` (what an upstream is and understands),
`history` (items as chat messages, each encoded once), `tools` and `body` (the rest of the request), `sse`, `stream`,
`calls` and `custom_input` (the answer as chunks; pure), `errors` (trouble as official codes), `upstream` (HTTP),
`passes` (one pass) and `engine` (the adapter).
"""
