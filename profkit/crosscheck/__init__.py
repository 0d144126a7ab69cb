"""Does the second tool confirm the first? A trace beside what another profiler recorded of the job.

The runs are different runs, so nothing is matched by time: steps by their number or order, kernels by base name, grid,
block and order in the step. Logic and limits: docs/nsight.md, "The hand-over".
"""
