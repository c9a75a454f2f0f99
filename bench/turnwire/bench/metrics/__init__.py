"""What the figures are: pure functions from moments to numbers, and from runs to intervals.

Above it: the runner and the report. Below it: nothing. No clock and no I/O.
"""
