"""What is compiled where there is a C compiler, and done by Python and numpy where there is none.

`library` finds and loads what `hatch_build.py` has made of two units without dependencies, and says why where it is not
in use. Each function has a way of its own in Python that gives the same to the last bit. scan.c: bytes to columns of
numbers, for `ingest/kineto/scanner` (events of a trace: text.h, event.h, rows.h, result.h) and `ingest/nsys/fetch`
(rows of SQLite: select.h). algebra.c: times of large traces, for `model/arrays`, `timeline/host` and `timeline/replay`
by `algebra.py` (sets.h, search.h, nesting.h, order.h, clocks.h).
"""
