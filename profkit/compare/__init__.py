"""Two sides to one answer: did the change help, by how much, how sure is that, and why.

In: captures, or tables of runs. Out: a `Comparison`, a `ScalingReport` or a `BenchReport`. Begin with
`comparison.compare` for captures, `results.compare_tables` for tables.
"""
