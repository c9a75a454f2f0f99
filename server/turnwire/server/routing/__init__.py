"""Which of several equal upstreams serves a pass: the choice by weights, their health, and moving on when one fails.

Above it: the engines that are made of several upstreams, and the registry of engines. Below it: the chains of the
session core. `choice` and `health` are pure, `pool` is the upstreams of one model with both, `attempt` is a pass that
moves on, `checks` asks upstreams how they are, and `revision` tells caches when what they know is old.
"""
