"""What records the steps: torch.profiler or an Nsight tool, ranges around phases, and a watch on the host.

In: options and step numbers. Out: one session's export, and what was seen beside it. Begin with `recorder`. Runs in the
traced process: standard library and torch only.
"""
