"""Two measurements against each other: what became better, what worse, and what is noise.

Above it: people and the Makefile, by `python -m turnwire.bench.compare OLD NEW`. Below it: the readers of result files
and `metrics`. Everything but the command is pure.
"""
