"""The safety classifiers: fast rules from a file, and remote ones behind HTTP.

Above it: the wiring, and the runtime, which asks remote ones. Below it: the values and ports of the core's `screens`.
"""
