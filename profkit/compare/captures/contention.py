"""What overlap costs: the same rows beside communication and alone, and the same collectives on both sides.

A kernel that shares memory, cache and power with a collective takes longer. That is read from twins (`work_rows`):
the median of a kernel's durations under communication against its median alone. Where one side has no such kernel
alone, the other side's lone ones stand in, corrected by how much all lone kernels differ between the sides, so that a
slower clock is not read as contention (docs/compare.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.compare.captures.measured import Measured
from profkit.compare.captures.waterfall import Runs
from profkit.compare.captures.work_rows import Rows
from profkit.findings.comparison import BOUGHT_NOTHING
from profkit.model.arrays import I64

MIN_PER_TWIN: Final = 3
"""Rows that a median needs. Chosen: below it the median is one of the extremes."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of all traces of a side, with one numbering of twins; `weight` makes a sum of rows a mean per step."""

    twins: tuple[str, ...]
    twin: NDArray[np.int64]
    duration_ns: I64
    other_share: NDArray[np.float64]
    weight: NDArray[np.float64]

    def medians(self, chosen: NDArray[np.bool_], *, at_least: int = MIN_PER_TWIN) -> dict[str, float]:
        """The median duration of the chosen rows by twin, where there are enough, ns."""
        order = np.lexsort((self.duration_ns[chosen], self.twin[chosen]))
        twin, duration = self.twin[chosen][order], self.duration_ns[chosen][order]
        codes, first, counts = np.unique(twin, return_index=True, return_counts=True)
        low, high = first + (counts - 1) // 2, first + counts // 2
        middle = (duration[low] + duration[high]) / 2 if duration.size else np.empty(0)
        return {
            self.twins[code]: float(value)
            for code, value, count in zip(codes.tolist(), middle, counts, strict=True)
            if count >= at_least
        }

    def total_ns(self, chosen: NDArray[np.bool_]) -> dict[str, float]:
        """The time of the chosen rows per step by twin, ns."""
        return self._by_twin(self.twin[chosen], (self.duration_ns * self.weight)[chosen])

    def counts(self) -> dict[str, float]:
        """How often each twin runs per step."""
        return self._by_twin(self.twin, self.weight)

    def _by_twin(self, twin: NDArray[np.int64], weight: NDArray[np.float64]) -> dict[str, float]:
        sums = np.bincount(twin, weights=weight, minlength=len(self.twins))
        return {self.twins[code]: float(sums[code]) for code in np.flatnonzero(sums)}

    @property
    def under(self) -> NDArray[np.bool_]:
        """Rows under the other kind."""
        return self.other_share >= BOUGHT_NOTHING.limit("under")

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Rows beside nothing of the other kind."""
        return self.other_share <= BOUGHT_NOTHING.limit("alone")


def pooled(runs: Runs, rows_of: Callable[[Measured], Rows]) -> Pool:
    """The rows of a side."""
    numbers: dict[str, int] = {}
    twin, duration, share, weight = [], [], [], []
    for run in runs:
        for trace in run:
            rows = rows_of(trace)
            own = np.array([numbers.setdefault(name, len(numbers)) for name in rows.twins], np.int64)
            twin.append(own[rows.twin] if own.size else np.empty(0, np.int64))
            duration.append(rows.duration_ns)
            share.append(rows.other_share)
            weight.append(np.full(rows.twin.size, 1 / (trace.n_steps * len(run) * len(runs))))
    return Pool(
        twins=tuple(numbers),
        twin=np.concatenate(twin),
        duration_ns=np.concatenate(duration),
        other_share=np.concatenate(share),
        weight=np.concatenate(weight),
    )


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """How much longer twins took in one state than in another, over what they took; times in ns per step."""

    factor: float
    """Time spent over the time that the same rows would have taken."""
    cost_ns: float
    """Time spent beyond it; negative if they were faster."""
    covered_ns: float
    """Time of the rows that could be compared."""
    n_rows: int
    n_twins: int
    shared_direction: float
    """Share of the compared time in twins that moved the way the whole did, 0-1."""


def drift(baseline: Pool, candidate: Pool) -> Slowdown | None:
    """How the kernels that ran alone on both sides differ: clocks, devices, other load; None if too few did."""
    before, after = baseline.medians(baseline.alone), candidate.medians(candidate.alone)
    return _slowdown(candidate, candidate.alone, {name: before[name] for name in before if name in after})


def beside(pool: Pool, other: Pool, drift_factor: float | None) -> Slowdown | None:
    """How much longer kernels of `pool` took under communication than alone; None where too few can tell.

    `other` gives lone durations that `pool` lacks, times `drift_factor`; None keeps to what `pool` has.
    """
    expected = pool.medians(pool.alone)
    if drift_factor is not None:
        lent = other.medians(other.alone)
        expected = {**{name: value * drift_factor for name, value in lent.items()}, **expected}
    return _slowdown(pool, pool.under, expected)


def stretch(baseline: Pool, candidate: Pool) -> Slowdown | None:
    """How much longer the same collectives took on the candidate's side; None where too few are the same."""
    before, after = (np.ones(pool.twin.size, np.bool_) for pool in (baseline, candidate))
    return _slowdown(candidate, after, baseline.medians(before, at_least=1), at_least=1)


def _slowdown(
    pool: Pool, chosen: NDArray[np.bool_], expected: dict[str, float], *, at_least: int = MIN_PER_TWIN
) -> Slowdown | None:
    counts = np.bincount(pool.twin[chosen], minlength=len(pool.twins))
    n_rows_of = dict(zip(pool.twins, counts.tolist(), strict=True))
    seen = pool.medians(chosen, at_least=at_least)
    total = pool.total_ns(chosen)
    names = [name for name in seen if expected.get(name, 0) > 0 and seen[name] > 0]
    if sum(n_rows_of[name] for name in names) < BOUGHT_NOTHING.limit("rows"):
        return None
    spent = sum(total[name] for name in names)
    due = sum(total[name] * expected[name] / seen[name] for name in names)
    same_way = sum(total[name] for name in names if (seen[name] >= expected[name]) == (spent >= due))
    return Slowdown(
        factor=spent / due,
        cost_ns=spent - due,
        covered_ns=spent,
        n_rows=sum(n_rows_of[name] for name in names),
        n_twins=len(names),
        shared_direction=same_way / spent,
    )
