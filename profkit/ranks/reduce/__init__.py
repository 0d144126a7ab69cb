"""One rank's trace to its summary: all that the other ranks must know of it, and nothing that grows with the trace.

In: a `Trace`. Out: an `Outcome` with a `RankSummary`: rows of collectives, steps, waits, names. Begin with
`summary.summarise`; `bundle` merges the outcomes of many ranks for a parent of thousands.
"""
