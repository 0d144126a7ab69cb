"""Causes across ranks, and one verdict over them.

In: what `measure` found. Out: findings, and a `Verdict` for the job. Begin with `overall.overall`; `lateness` words
a late rank, `late_cause` decides why it is late.
"""
