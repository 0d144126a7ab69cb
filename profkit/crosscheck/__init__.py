"""Does the second tool confirm the first? A trace beside what another profiler recorded of the same job.

In: a report with its traces, and another tool's timelines or kernel profiles. Out: a `Handover` for the report. Begin
with `run.handed_over`.
"""
