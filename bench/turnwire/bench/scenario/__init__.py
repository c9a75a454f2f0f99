"""Rollouts as data: what an agent and its model say to each other, how fast, over which network, how many at once.

Above it: the runner and the drivers. Below it: the scripted engine's format, which a scenario is compiled to.
"""
