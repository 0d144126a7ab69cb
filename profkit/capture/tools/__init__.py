"""Command lines of Nsight Systems and Nsight Compute as they are installed here.

In: what is to be recorded, and the user's command. Out: an argument list. Begin with `nsys.nsys_line`
and `ncu.ncu_line`. `clocks` samples clocks beside a command.
"""
