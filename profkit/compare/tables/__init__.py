"""Result tables as people keep them: CSV, TSV, JSON; columns found by their names.

In: a file. Out: a `ResultTable` with one row per run. Begin with `result_tables.read_table`.
"""
