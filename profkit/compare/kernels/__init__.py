"""Two sides of Nsight Compute's profiles to what changed in each kernel.

In: profiles of both sides. Out: a `KernelComparison`. Begin with `compared.py`; which launches are the same kernel is
in `matching.py`, which numbers are shown in `metrics.py`.
"""
