"""Scaling studies: efficiency with its interval, and whether the base deserves to be one.

In: tables or captures of several sizes. Out: a `ScalingReport`. Begin with `study.scale`.
"""
