"""Nsight Compute's reports, CSV pages and text pages to profiles of single kernels.

In: a file, or a folder of them. Out: `KernelProfile`s with metrics under NVIDIA's names, in base units. Begin with
`reader.read_profiles`.
"""
