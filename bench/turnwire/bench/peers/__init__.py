"""Other gateways that serve the Responses API, and ours, in front of one and the same upstream.

Above it: the Makefile and people, by `python -m turnwire.bench.peers`. Below it: `fakes.upstream`, and gateways as
people install them, each in an environment and a process of its own.
"""
