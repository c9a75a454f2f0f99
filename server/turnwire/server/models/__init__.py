"""Which models are served, by which engines: read from flags or a registry file, checked, and opened.

Above it: the wiring of a server. Below it: the engines, each imported only when it is used.
"""
