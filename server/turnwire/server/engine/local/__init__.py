"""The local engine: llama.cpp within the server's own process, each chain on a slot of its own.

Above it: the runtime, through the engine port. Below it: `config` (what it is told), `model` (the file to load),
`llama` (llama.cpp, the only module that knows `xllamacpp`), `slots` (which chain runs where; pure) and `waiting` (for a
slot), `passes` (one pass), `answers` (what llama.cpp says, as chunks) and `engine` (the adapter).

A request is one of two. With a prompt of ids, by `token_requests`: rendering and parsing are those of the token
engines, `speech` finds the model's format, `gguf`, `vocabulary` and `spelling` are its tokenizer, `schemas` and
`forced` (pure) say what an answer is held to. Or as a chat, by `requests`, where messages, tools and answers are those
of the chat engine: for formats that are not known here.
"""
