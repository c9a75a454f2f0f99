"""Inference as the server sees it: the port and its adapters.

Above it: the runtime, which knows only `port`. Below it: one module or package per kind of upstream, among them
`scripted`, a simulation that plays a scenario file, and `stepped`, which tests drive by hand.
"""
