"""Drawn jobs of one device, run by a simulator: what removing a cause gives is known, for it is run again without it.

In: a seed. Out: a job, its trace, and the true gain of each cause. Begin with `job.drawn`; `python -m tests.sim` prints
how the predicted ceilings of two hundred of them compare.
"""
