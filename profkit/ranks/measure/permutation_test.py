"""Whether a rank is late more than chance would have it: permutation of ranks within blocks of time."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool

N_PERMUTATIONS: Final = 2_000
_MAX_BLOCKS: Final = 128
MIN_STEPS: Final = 6
"""Steps from which steps are the witnesses, and not the collectives in them."""
FEW_STEPS: Final = 0.8
"""What is left of the confidence in lateness seen in fewer steps. Chosen: high becomes medium."""
_MANY: Final = 16
_CHUNK: Final = 4_000_000  # random numbers held at once


def blocks_of(step: I64) -> NDArray[np.intp]:
    """Each instance's block: its step where there are six or more, else the instance itself, at most 128 in all.

    Instances of one step are correlated, those of different steps much less. With too few steps the instances stand for
    themselves: after each collective all ranks begin anew, so that one hiccup makes one instance late, not all.
    """
    numbers, block = np.unique(step, return_inverse=True)
    if (numbers >= 0).sum() < MIN_STEPS:
        block = np.arange(step.size)
    n_blocks = int(block.max(initial=-1)) + 1
    return block.reshape(-1) * _MAX_BLOCKS // n_blocks if n_blocks > _MAX_BLOCKS else block.reshape(-1)


def summed_by_block(block: NDArray[np.intp], values: I64) -> NDArray[np.float64]:
    """[B, R]: the values [n, R] summed over each block."""
    out = np.zeros((int(block.max(initial=-1)) + 1, values.shape[1]))
    np.add.at(out, block, values)
    return out


def p_of_largest(by_block: NDArray[np.float64]) -> float:
    """How often chance makes some rank's total as large as the largest here, if ranks are alike in every block.

    `by_block` [B, R]. Ranks are shuffled within each block and the largest total over ranks is compared, which corrects
    for their number. With B blocks the smallest possible is about R^(1-B): two ranks need eight blocks for p < 0.01.
    """
    n_blocks, n_ranks = by_block.shape
    if n_blocks == 0 or n_ranks < 2:
        return 1.0
    observed = by_block.sum(axis=0).max()
    generator = np.random.default_rng(0)
    size = max(1, min(N_PERMUTATIONS, _CHUNK // (n_blocks * n_ranks)))
    n_done = n_as_large = 0
    while n_done < N_PERMUTATIONS:
        shuffled = generator.permuted(np.broadcast_to(by_block, (size, n_blocks, n_ranks)), axis=2)
        n_as_large += int((shuffled.sum(axis=1).max(axis=1) >= observed * (1 - 1e-12)).sum())
        n_done += size
    return (1 + n_as_large) / (1 + n_done)


def lateness_ns(arrival_ns: I64, present: Bool) -> I64:
    """[n, R]: how much later than the middle of the other ranks each came, 0 for those that did not.

    Of more than 16 ranks the middle of all is taken: one more or less does not move it, and it is one median, not R.
    """
    out = np.zeros(arrival_ns.shape, np.int64)
    if arrival_ns.shape[1] > _MANY:
        rows = np.flatnonzero(present.sum(axis=1) > 1)
        middle = np.nanmedian(np.where(present[rows], arrival_ns[rows], np.nan), axis=1)
        late = np.maximum(arrival_ns[rows] - np.rint(middle).astype(np.int64)[:, None], 0)
        out[rows] = np.where(present[rows], late, 0)
        return out
    for rank in range(arrival_ns.shape[1]):
        usable = np.flatnonzero(present[:, rank] & (present.sum(axis=1) > 1))
        if usable.size:
            middle = middle_of_others(arrival_ns[usable], present[usable], rank)
            out[usable, rank] = np.maximum(arrival_ns[usable, rank] - np.rint(middle).astype(np.int64), 0)
    return out


def middle_of_others(values: I64, present: Bool, rank: int) -> NDArray[np.float64]:
    """[n]: the median of [n, R] over the ranks that are present but this one; each row must have one."""
    others = np.where(present, values, np.nan)
    middle: NDArray[np.float64] = np.nanmedian(np.delete(others, rank, axis=1), axis=1)
    return middle


def excess_ns(arrival_ns: I64, present: Bool) -> I64:
    """[n, R]: for the last rank of each instance how long after the second last it came, 0 for the others.

    It is what the instance would have begun earlier, had this rank alone come with the others.
    """
    out = np.zeros(arrival_ns.shape, np.int64)
    usable = np.flatnonzero(present.sum(axis=1) > 1)
    if usable.size == 0:
        return out
    values = np.where(present[usable], arrival_ns[usable], np.iinfo(np.int64).min)
    top = np.sort(values, axis=1)[:, -2:]
    out[usable, values.argmax(axis=1)] = top[:, 1] - top[:, 0]
    return out
