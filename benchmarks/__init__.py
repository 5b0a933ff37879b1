"""Benchmarks: one file a protocol, each runnable alone (`python -m benchmarks.encode --help`).

A protocol prints a table and writes JSON and a plot under benchmarks/results/. Peers run in the same run on the same
texts, and every timed result is compared with the reference's ids.
"""
