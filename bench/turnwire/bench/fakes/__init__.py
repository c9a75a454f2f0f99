"""Inference engines played by processes of their own: real protocols, with the quirks of the real servers, no model.

Above it: the tests of the token engines, and the measurement of what this server adds in front of one. Below it: the
engines' published stubs. Run one with `python -m turnwire.bench.fakes.vllm_grpc`; `core` says how it is directed.
"""
