"""The local engine: llama.cpp within the server's own process, each chain on a slot of its own.

Above it: the runtime, through the engine port. Below it: `config` (what it is told), `model` (the file to load),
`llama` (llama.cpp, the only module that knows `xllamacpp`), `slots` (which chain runs where; pure) and `waiting` (for a
slot), `requests` (a prompt as llama.cpp's request), `forced` (calls that have to be made; pure), `passes` (one pass)
and `engine` (the adapter). Messages, tools and answers are those of the chat engine.
"""
