"""Training programs with one known bottleneck each and a healthy twin; every dose is a flag.

They are the ground truth of profkit: no program here needs profkit, so it can be run, traced
and timed by any tool. `python -m workloads.train --help` lists the doses, `python -m workloads.fsdp_vlm --help` those
of training on several ranks. `workloads.miniatures` retells public training scripts, with the faults they came
with.
"""
