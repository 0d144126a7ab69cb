"""Nsight Systems' exports: SQLite tables of any version to columns, one set for each process.

In: an SQLite export, or a report that nsys exports first. Out: a `RawTrace` for each process with kernels. Begin with
`reader.read_export`.
"""
