"""A ladder of changes: what each rung gave, whether gains multiply, their memory, where a gain turns to a loss.

In: a table with a row for each run. Out: a `LadderReport`. Begin with `study.climb_table`.
"""
