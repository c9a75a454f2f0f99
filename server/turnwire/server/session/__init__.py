"""The session core: what a session knows and decides, as pure functions of facts and time.

Facts go in (`Session.receive`, `engine_output`, `prepared`, …), effects and batches come out. Nothing here does I/O,
starts a task or reads a clock, so that every rule can be tested by calling it.
"""
