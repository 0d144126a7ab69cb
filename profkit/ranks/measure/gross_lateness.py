"""Lateness so large that it needs no test against chance: what short captures can say of who is late."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from profkit.findings.stragglers import LATE_RANK
from profkit.model.arrays import I64, Bool
from profkit.ranks.measure.permutation_test import MIN_STEPS, lateness_ns, summed_by_block
from profkit.ranks.reduce.records import RankSummary
from profkit.ranks.reduce.work_counts import of_steps

_FEW = 3
"""Other ranks of which the largest lateness says little about the next."""


def is_gross(  # noqa: PLR0913 - what `find_stragglers` knows of one rank
    step: I64,
    late_ns: I64,
    present: Bool,
    column: int,
    *,
    rank: int,
    effect: float,
    by_rank: Mapping[int, RankSummary],
) -> bool:
    """Whether a rank's lateness [n, R] stands far above the others' in a capture too short for a test.

    In two steps or more: in each of them several times that of any other rank, where the steps are too few for any
    order of the ranks to be unlikely. In one step, or without steps, and with less than 20 collectives: a fifth of the
    time, and as far above the others in all. Else the test decides. Of a pair one is always the later: there the job's
    other ranks are the comparison, by their own time in each step, and without any it takes a fifth of the time.
    """
    there = np.flatnonzero(present.any(axis=0))
    others = np.setdiff1d(there, column)
    if others.size == 0:
        return False
    numbers, block = np.unique(step, return_inverse=True)
    n_steps = int((numbers >= 0).sum())
    if n_steps > 1:
        if n_steps >= MIN_STEPS and there.size ** (1.0 - n_steps) < LATE_RANK.limit("p") / 2:
            return False
        by_step = summed_by_block(block.reshape(-1), late_ns)[numbers >= 0]
        if others.size == 1 and len(by_rank) > 2:
            return _stands_out(*_own_by_step(by_rank, rank))
        return _stands_out(by_step, column) and (others.size > 1 or _is_large(by_step[:, column], effect))
    if late_ns.shape[0] >= LATE_RANK.limit("few") or effect < LATE_RANK.limit("gross_effect"):
        return False
    return _stands_out(late_ns.sum(axis=0, keepdims=True).astype(np.float64), column)


def _stands_out(by_step: NDArray[np.float64], column: int) -> bool:
    """Whether a rank has several times any other's lateness [S, R] in each step."""
    others = np.delete(by_step, column, axis=1)
    ratio = LATE_RANK.limit("gross_ratio") * (2 if (others.max(axis=0, initial=0) > 0).sum() < _FEW else 1)
    return bool(by_step.size and (by_step[:, column] > ratio * others.max(axis=1)).all())


def _is_large(late: NDArray[np.float64], effect: float) -> bool:
    """Whether one of two ranks alone is as late in each step as in any other, within a factor of two, and by much."""
    return effect >= LATE_RANK.limit("gross_effect") and bool(late.min() >= late.max() / 2)


def _own_by_step(by_rank: Mapping[int, RankSummary], rank: int) -> tuple[NDArray[np.float64], int]:
    """By how much each rank's own time in a step is beyond the median's, [S, R], and the rank's column."""
    ranks = sorted(by_rank)
    summaries = [by_rank[one] for one in ranks]
    common = reduce(np.intersect1d, [summary.steps.number for summary in summaries])
    own = of_steps(common, summaries, lambda summary: summary.steps.phase_ns.sum(axis=1))
    return lateness_ns(own, np.ones(own.shape, np.bool_)).astype(np.float64), ranks.index(rank)
