"""TOML files read key by key, with the line of every mistake.

Above it: scenario files, the configuration, the registry of models. Below it: nothing.
"""
