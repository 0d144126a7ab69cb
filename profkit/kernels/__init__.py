"""Kernel profiles to assessments: what limits a launch, on what numbers, and what to change.

Begin with `assess`. `speed`, `occupancy`, `pipes`, `roofline` and `stalls` measure; `topics` says what each of ncu's
rules is about, `formulas` what they would estimate, `claims` what of that can be; `fixes` and `roofs` say what to
change, `advice` in which order.
"""
