"""Suites: measurements in a row, each a command of its own; resumable, and with the budgets and the report at the end.

Above it: people and the Makefile, by `python -m turnwire.bench.suite NAME`. Below it: the measuring modules, as
processes, and the folder of their files.
"""
