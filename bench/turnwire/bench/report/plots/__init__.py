"""The report's plots: each module takes plain values and returns one SVG.

Above it: the report's sections. Below it: matplotlib, and `style`, which all share.
"""
