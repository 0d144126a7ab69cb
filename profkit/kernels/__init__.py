"""Kernel profiles to assessments: what limits a launch, on what numbers, and what to change.

Begin with `assess`. `speed`, `pipes`, `roofline` and `stalls` measure; `claims` has what ncu's rules estimate, what
they would by their formulas, and what of that can be; `fixes` and `roofs` say what to change, `assess` in which order.
"""
