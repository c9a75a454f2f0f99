"""The budgets P1 to P8: from a folder of result files to a table that says of each whether it is met. Pure.

Above it: the suites and the report. Below it: the folder's reader, the figures of each kind, and `metrics`.
"""
