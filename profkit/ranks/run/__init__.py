"""The ranks of a job through workers to one report.

In: sources, options, an executor. Out: outcomes, kept or made, and their report. Begin with `jobs.done` and
`fleet_report.report_of`.
"""
