"""Captures of two sides: what each did per step, what changed, and which changes explain it.

In: traces. Out: sides, exact accounts of the change, readings. Begin with `sides.read_side`; `readings` lists the
questions that are asked.
"""
