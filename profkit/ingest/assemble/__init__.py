"""Columns to a `Trace`: strings interned, rows sorted, launches linked to kernels, steps found.

In: a `RawTrace`, whoever read it. Out: a `Trace`, with a warning for each thing that could not be true. Begin with
`build.build_trace`.
"""
