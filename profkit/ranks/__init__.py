"""Many ranks: who is late, who waits, and why.

In: the traces of the ranks of one job. Out: a `Report` with its `Fleet`. A trace goes through `reduce` (to a few KB),
`align` (the same collective on every rank, one clock), `measure` (waits, lateness, transfer), `findings` (causes and
one verdict) and `run` (workers, kept ranks, the report). Begin with `run.fleet_report`.
"""
