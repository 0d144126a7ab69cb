"""Lateness so large that it needs no test against chance: what short captures can say of who is late."""

from __future__ import annotations

import numpy as np

from profkit.findings.stragglers import LATE_RANK
from profkit.model.arrays import I64, Bool
from profkit.ranks.measure.permutation_test import MIN_STEPS, summed_by_block


def is_gross(step: I64, late_ns: I64, present: Bool, column: int, effect: float) -> bool:
    """Whether a rank's lateness [n, R] stands far above the others' in a capture too short for a test.

    In two steps or more: in each of them several times that of any other rank, where the steps are too few for any
    order of the ranks to be unlikely. In one step, or without steps, and with less than 20 collectives: a fifth of the
    time, and as far above the others in all. Else the test decides.
    """
    there = np.flatnonzero(present.any(axis=0))
    others = np.setdiff1d(there, column)
    if others.size == 0:
        return False
    numbers, block = np.unique(step, return_inverse=True)
    n_steps = int((numbers >= 0).sum())
    ratio = LATE_RANK.limit("gross_ratio")
    if n_steps > 1:
        if n_steps >= MIN_STEPS and there.size ** (1.0 - n_steps) < LATE_RANK.limit("p") / 2:
            return False
        by_step = summed_by_block(block.reshape(-1), late_ns)[numbers >= 0]
        return bool((by_step[:, column] > ratio * by_step[:, others].max(axis=1)).all())
    if late_ns.shape[0] >= LATE_RANK.limit("few"):
        return False
    total = late_ns.sum(axis=0)
    return effect >= LATE_RANK.limit("gross_effect") and bool(total[column] > ratio * total[others].max())
