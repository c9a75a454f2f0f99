"""Engines that take and give token ids.

Above: the registry of engines. Below: renderers and parsers of `prompt/`, and the protocols of inference servers.
"""
