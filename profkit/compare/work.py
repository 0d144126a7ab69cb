"""Does a step do the same amount of work on both sides? If not, its time says nothing; only time per unit of work does.

Told by two witnesses that must agree: the bytes copied to the device per step, and the grids of the kernels that both
sides launch equally often. One alone may mean something else: half as many bytes are also inputs of half the width.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from profkit.compare.pair import Pair, moved, reading
from profkit.compare.waterfall import Runs
from profkit.model.finding import Evidence, Finding
from profkit.units import format_bytes, format_ns

_SAME: Final = math.log(1.05)  # chosen: padding varies a batch by less over several steps
_ANY_GRID: Final = math.log(1.03)
_CLEAR_GRID: Final = math.log(1.25)  # chosen, for grids as the only witness
_SPREAD: Final = math.log(1.1)
_MIN_AGREEING: Final = 0.5  # of the compared kernel time


def work_changed(pair: Pair) -> Finding | None:
    """Give the reading that a step's work differs, or None: it is the same, or nothing tells."""
    before, after = pair.rates(lambda trace: trace.counts.copied_bytes)
    grids = _grid_ratio(pair)
    if grids is None:
        return None
    ratio, agreeing = grids
    if before and after:
        copied = math.log(after / before)
        is_changed = abs(copied) > _SAME and abs(math.log(ratio)) > _ANY_GRID and (copied > 0) == (ratio > 1)
        ratio_of_work = after / before
    else:
        is_changed = abs(math.log(ratio)) > _CLEAR_GRID and agreeing >= _MIN_AGREEING
        ratio_of_work = ratio
    if not is_changed:
        return None
    evidence = [
        Evidence(
            statement=f"kernels launched equally often on both sides have grids {ratio:.2f}x the size (median by time)",
            metric="compare.grid_ratio",
            value=ratio,
            unit="ratio",
            expected="1.00",
        )
    ]
    if before and after:
        evidence.insert(
            0,
            Evidence(
                statement=f"copied to the device: {moved(format_bytes(before), format_bytes(after))} per step"
                f" ({ratio_of_work:.2f}x)",
                metric="compare.copied_bytes_ratio",
                value=ratio_of_work,
                unit="ratio",
                expected="1.00",
            ),
        )
    steps = pair.waterfall.baseline_ns, pair.waterfall.candidate_ns
    per_work = steps[1] / steps[0] / ratio_of_work if steps[0] else 0.0
    evidence.append(
        Evidence(
            statement=f"{format_ns(steps[0])} -> {format_ns(steps[1])}, but per unit of work {per_work:.2f}x the time",
            metric="compare.time_per_work_ratio",
            value=per_work,
            unit="ratio",
        )
    )
    return reading(
        "work_changed",
        f"a step does {ratio_of_work:.2f}x the work: step times must not be compared, only time per sample",
        fraction=1.0,
        evidence=tuple(evidence),
        fix="compare samples or tokens per second: record them with profkit.capture.step(samples=...), or give a table",
        confidence=0.8 if before and after else 0.6,
    )


def _grid_ratio(pair: Pair) -> tuple[float, float] | None:
    """Give (median of candidate's over baseline's mean grid, by time; share of that time near it); None if unknown."""
    first, second = (_grids(runs) for runs in pair.runs)
    ratios, weights = [], []
    for name, (count, blocks, total_ns) in first.items():
        other_count, other_blocks, other_ns = second.get(name, (0.0, 0.0, 0.0))
        if blocks and other_blocks and abs(math.log(other_count / count)) <= _SPREAD:
            ratios.append(other_blocks / other_count / (blocks / count))
            weights.append(total_ns + other_ns)
    if not ratios:
        return None
    logs, weight = np.log(ratios), np.array(weights)
    order = np.argsort(logs)
    middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    median = float(logs[order][middle])
    return math.exp(median), float(weight[np.abs(logs - median) <= _SPREAD].sum() / weight.sum())


def _grids(runs: Runs) -> dict[str, tuple[float, float, float]]:
    """Give (launches, blocks, ns) by kernel name, as sums over a side weighted to a mean per step."""
    out: dict[str, tuple[float, float, float]] = {}
    for run in runs:
        for trace in run:
            rows, weight = trace.compute, 1 / (trace.n_steps * len(run) * len(runs))
            size = len(rows.works)
            sums = (
                np.bincount(rows.work, minlength=size),
                *(np.bincount(rows.work, weights=column, minlength=size) for column in (rows.blocks, rows.duration_ns)),
            )
            for work, count, blocks, total_ns in zip(rows.works, *sums, strict=True):
                old = out.get(work.name, (0.0, 0.0, 0.0))
                new = (count * weight, blocks * weight, total_ns * weight)
                out[work.name] = (old[0] + new[0], old[1] + new[1], old[2] + new[2])
    return out
