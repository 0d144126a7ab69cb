"""Interleaved repeats of two commands.

In: two commands. Out: trials, and a `BenchReport`. Begin with `interleaved.measure`.
"""
