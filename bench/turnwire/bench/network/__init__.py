"""A network in one process: delay and bandwidth between client and server, and the bytes counted.

Above it: the runner. Below it: TCP on loopback. What it can show: delay, bandwidth, handshakes (one round trip for TCP,
those of TLS by themselves), bytes. What it cannot: loss, and the congestion control of the kernel, since both of its
halves are connections of loopback. `SlowStart` is a model of the one part of it that matters for short messages.
"""
