"""Causal slopes: from the steps of a probed run, and what was delayed in them, to what shortens the step.

In: the records that `profkit.capture.inside.probe` leaves in a folder. Out: a `ProbeReport`. Begin with
`report.report`; `fit` is the estimator, `against_trace` sets slopes beside the findings of a trace.
"""
