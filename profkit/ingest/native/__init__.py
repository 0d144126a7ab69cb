"""What is compiled where there is a C compiler, and read by Python where there is none: bytes to columns of numbers.

`library` finds and loads what `hatch_build.py` has made of scan.c, one unit without dependencies, and says why where it
is not in use. Two sources call it, each with a way of its own in Python that gives the same to the last bit:
`kineto.native` (events of a trace: text.h, event.h, rows.h, result.h) and `nsys.fetch` (rows of SQLite: select.h).
"""
