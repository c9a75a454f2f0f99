"""The report: from a folder of result files to one Markdown and one HTML page that explain themselves.

Above it: `python -m turnwire.bench.report`, and the suites, which write it at their end. Below it: the folder's
reader, the summary's figures, and the plots. Everything between reading and writing is pure: the same folder gives the
same bytes.
"""
