"""A toy's text files: a row is a table, a name, a start and a length in microseconds.

In: lines of text. Out: a `RawTrace`. Begin with `source.TOY`.
"""
