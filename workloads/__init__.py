"""Training programs with one known bottleneck each and a healthy twin; every dose is a flag.

They are the ground truth of profkit: nothing here imports profkit, so a program can be run, traced
and timed by any tool. `python -m workloads.train --help` lists the doses.
"""
