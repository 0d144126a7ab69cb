"""Whether a rank is late more than chance would have it: permutation of ranks within blocks of time, or by its size.

A capture too short for the test still shows lateness that stands far above the others' (`is_gross`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.arrays import I64, Bool
from profkit.ranks.measure.windows import common_steps, of_steps
from profkit.ranks.reduce.records import RankSummary

N_PERMUTATIONS: Final = 2_000
_MAX_BLOCKS: Final = 128
MIN_STEPS: Final = 6
"""Steps from which steps are the witnesses, and not the collectives in them."""
FEW_STEPS: Final = 0.8
"""What is left of the confidence in lateness seen in fewer steps. Chosen: high becomes medium."""
_MANY: Final = 16
_CHUNK: Final = 500_000
"""Random numbers held at once, 4 MB: of thousands of ranks few permutations at a time. The result is the same."""


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
    least = float(by_block.sum(axis=0).max()) * (1 - 1e-12)
    generator = np.random.default_rng(0)
    size = max(1, min(N_PERMUTATIONS, _CHUNK // (n_blocks * n_ranks)))
    shuffle = _largest_of_many if _is_told_by_heaviest(by_block, least) else _largest_sums
    n_done = n_as_large = 0
    while n_done < N_PERMUTATIONS:
        n = min(size, N_PERMUTATIONS - n_done)
        n_as_large += int((shuffle(generator, by_block, n, least) >= least).sum())
        n_done += n
    return (1 + n_as_large) / (1 + n_done)


_MANY_RANKS: Final = 256
_HEAVY: Final = 16
"""Values of a block that are drawn first. Chosen: more late ranks than that are shuffled in full."""


def _is_told_by_heaviest(by_block: NDArray[np.float64], least: float) -> bool:
    """Whether `_largest_of_many` pays: of many ranks, where one of the heaviest values alone is not enough."""
    if by_block.shape[1] <= _MANY_RANKS:
        return False
    ordered = np.sort(by_block, axis=1)
    light = ordered[:, -_HEAVY - 1]
    return bool(light.sum() + (ordered[:, -1] - light).max() < least)


def _largest_sums(
    generator: np.random.Generator, by_block: NDArray[np.float64], n: int, least: float
) -> NDArray[np.float64]:
    """[n]: the largest total over ranks, of so many shuffles."""
    shuffled = generator.permuted(np.broadcast_to(by_block, (n, *by_block.shape)), axis=2)
    largest: NDArray[np.float64] = shuffled.sum(axis=1).max(axis=1)
    return largest


def _largest_of_many(
    generator: np.random.Generator, by_block: NDArray[np.float64], n: int, least: float
) -> NDArray[np.float64]:
    """The same where it is `least` or more, else something below: of thousands of ranks, in a hundredth of the time.

    First only the heaviest values of each block find their ranks. No rank's total can be more than with the heaviest
    of the others in each block that gave it none, and where no rank can reach `least` so, the rest is not drawn.
    """
    n_blocks, n_ranks = by_block.shape
    ordered = np.sort(by_block, axis=1)[:, ::-1]
    heavy, light = ordered[:, :_HEAVY], ordered[:, _HEAVY:]
    more = heavy - light[:, :1]
    column = _distinct(generator, (n, n_blocks, _HEAVY), n_ranks)
    flat = (column + n_ranks * np.arange(n)[:, None, None]).reshape(-1)
    sums = np.bincount(flat, np.broadcast_to(more, column.shape).reshape(-1), n * n_ranks).reshape(n, n_ranks)
    most: NDArray[np.float64] = sums.max(axis=1) + light[:, 0].sum()
    open_ones = np.flatnonzero(most >= least)
    if open_ones.size:
        shape = (open_ones.size, n_blocks)
        whole = np.empty((*shape, n_ranks))
        is_free = np.ones(whole.shape, np.bool_)
        np.put_along_axis(is_free, column[open_ones], values=False, axis=2)
        np.put_along_axis(whole, column[open_ones], np.broadcast_to(heavy, (*shape, _HEAVY)), axis=2)
        rest = np.broadcast_to(light, (*shape, n_ranks - _HEAVY))
        whole[is_free] = generator.permuted(rest, axis=2).reshape(-1)
        most[open_ones] = whole.sum(axis=1).max(axis=1)
    return most


def _distinct(generator: np.random.Generator, shape: tuple[int, ...], below: int) -> I64:
    """Numbers below a bound, drawn alike, and again where two along the last axis are equal."""
    drawn = generator.integers(0, below, shape)
    again = np.ones(shape[:-1], np.bool_)
    while True:
        ordered = np.sort(drawn[again], axis=1)
        again[again] = (np.diff(ordered, axis=1) == 0).any(axis=1)
        if not again.any():
            return drawn
        drawn[again] = generator.integers(0, below, (int(again.sum()), shape[-1]))


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


def is_of_one_step(step: I64, late_ns: I64, present: Bool, column: int, *, least_ns: float) -> bool:
    """Whether a rank is late in one of two to five steps alone: without that one, by less than `least_ns` a step.

    Its collectives are late together there (a checkpoint, a first pass): as witnesses they count once.
    """
    numbers, block = np.unique(step, return_inverse=True)
    n_steps = int((numbers >= 0).sum())
    if not 1 < n_steps < MIN_STEPS:
        return False
    by_step = summed_by_block(block.reshape(-1), late_ns)[numbers >= 0]
    rest = np.delete(by_step, int(by_step[:, column].argmax()), axis=0).sum(axis=0)
    others = np.setdiff1d(np.flatnonzero(present.any(axis=0)), column)
    return float(rest[column] - np.median(rest[others])) < least_ns * (n_steps - 1)


def p_of_few_steps(step: I64, late_ns: I64, present: Bool) -> float:
    """How often chance makes some rank as late as the latest in two to five steps, whose collectives are late together.

    0 where the steps are so few, for so many ranks, that it would be large however late a rank is.
    """
    numbers, block = np.unique(step, return_inverse=True)
    there = np.flatnonzero(present.any(axis=0))
    n_steps = int((numbers >= 0).sum())
    if not 1 < n_steps < MIN_STEPS or there.size ** (1.0 - n_steps) >= LATE_RANK.limit("p"):
        return 0.0
    return p_of_largest(summed_by_block(block.reshape(-1), late_ns[:, there])[numbers >= 0])


_AS_LATE: Final = 0.5
"""Of a late rank's lateness, from which another is late together with it. Chosen, as for naming it (`stragglers`)."""
_FEW: Final = 3
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

    In two steps or more: in each of them several times that of any other rank, in the group or by the ranks' own time
    (a group that waits for another group's late rank is late where its own is not), where the steps are too few for any
    order of the ranks to be unlikely. In one step, or without steps, and with less than 20 collectives: a fifth of the
    time, and as far above the others in all; without steps, no collective has more than half of it. Else the test
    decides. Of a pair one is always the later: there the job's other ranks are the comparison, and without any it takes
    a fifth of the time.
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
        is_alone = len(by_rank) > 2 and _stands_out(*own_by_step(by_rank, rank))
        if is_alone or (others.size == 1 and len(by_rank) > 2):
            return is_alone
        by_step = summed_by_block(block.reshape(-1), late_ns)[numbers >= 0]
        return _stands_out(by_step, column) and (others.size > 1 or _is_large(by_step[:, column], effect))
    if late_ns.shape[0] >= LATE_RANK.limit("few") or effect < LATE_RANK.limit("gross_effect"):
        return False
    if n_steps == 0 and 2 * int(late_ns[:, column].max()) > int(late_ns[:, column].sum()):
        return False  # without steps, one late collective of several looks like one hiccup
    return _stands_out(late_ns.sum(axis=0, keepdims=True).astype(np.float64), column)


def _stands_out(by_step: NDArray[np.float64], column: int) -> bool:
    """Whether a rank has several times any other's lateness [S, R] in each step.

    Less than half of the ranks may be late together: those at least half as late in all stand out with it, or none.
    """
    total = by_step.sum(axis=0)
    together = np.flatnonzero(total >= _AS_LATE * total[column])
    if 2 * together.size >= total.size:
        together = np.array([column])
    others = np.delete(by_step, together, axis=1)
    ratio = LATE_RANK.limit("gross_ratio") * (2 if (others.max(axis=0, initial=0) > 0).sum() < _FEW else 1)
    least = ratio * others.max(axis=1, initial=0)
    return bool(by_step.size and (by_step[:, together] > least[:, None]).all())


def _is_large(late: NDArray[np.float64], effect: float) -> bool:
    """Whether one of two ranks alone is as late in each step as in any other, within a factor of two, and by much."""
    return effect >= LATE_RANK.limit("gross_effect") and bool(late.min() >= late.max() / 2)


def own_by_step(by_rank: Mapping[int, RankSummary], rank: int) -> tuple[NDArray[np.float64], int]:
    """By how much each rank's own time in a step is beyond the median's, [S, R], and the rank's column."""
    ranks = sorted(by_rank)
    summaries = [by_rank[one] for one in ranks]
    common = common_steps([summary.steps.number for summary in summaries])
    own = of_steps(common, summaries, lambda summary: summary.steps.phase_ns.sum(axis=1))
    return lateness_ns(own, np.ones(own.shape, np.bool_)).astype(np.float64), ranks.index(rank)
