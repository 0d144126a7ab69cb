"""Arithmetic on subnormal numbers on a CPU: the same operator at the same place of a loop takes many times as long.

That alone may be a larger tensor. So it counts where the capture has seen such numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.patterns import SUBNORMAL
from profkit.model.arrays import I64
from profkit.redact.later import later
from profkit.shell import clean
from profkit.timeline import Facts
from profkit.timeline.code.helpers import whole_ns
from profkit.timeline.cpu import training_threads
from profkit.timeline.steps import step_of, steps_in_window

_ARITHMETIC: Final = later(r"^aten::(?:add|sub|rsub|mul|div|lerp|addcmul|addcdiv|square|pow|sum|mean)_?$")
_AROUND: Final = 2
"""Operators before and behind, by whose names an operator is known to be at the same place of a loop. Chosen."""
_LEAST_PASSES: Final = 16
"""Of a loop in each step: the fastest quarter of them is then what it takes of usual numbers. Chosen."""
_LONGEST_NAME: Final = 60


def subnormal(facts: Facts) -> Ranges | None:
    """The slow operators where numbers were seen to be subnormal; None where none were."""
    found = facts.once(_slow)
    return None if found is None else Ranges.of(facts.trace.ops, found[0], facts.trace.window_ns)


def stays(facts: Facts, _: Ranges) -> float:
    """The share (0-1) of their time that they take of usual numbers."""
    found = facts.once(_slow)
    return 1.0 if found is None else found[1]


def title_of_subnormal(facts: Facts, _: Ranges) -> str:
    """Where they were seen."""
    return f"the CPU is slow where numbers are subnormal (below 1.2e-38), as {_seen(facts)} is in part"


def _seen(facts: Facts) -> str:
    """What holds such numbers; "" where the capture has seen none, or they are taken for zero."""
    told = facts.trace.meta.metadata.get("profkit_subnormals")
    kinds = told.get("kinds") if isinstance(told, Mapping) and told.get("flushes") is False else None
    for one in kinds if isinstance(kinds, list) else []:
        if isinstance(one, Mapping) and whole_ns(one.get("n_found")):
            return clean(str(one.get("of", ""))[:_LONGEST_NAME]) or "a tensor"
    return ""


def _slow(facts: Facts) -> tuple[I64, float] | None:
    """The rows of slow operators, and the share of their time that stays."""
    trace = facts.trace
    if facts.cpu is None or not _seen(facts):
        return None
    steps, ops = steps_in_window(trace), trace.ops
    threads = training_threads(trace)
    counts = np.bincount(ops.thread, minlength=1)
    main = max(threads, key=lambda thread: int(counts[thread]), default=-1)
    rows = np.flatnonzero(ops.thread == main)
    name, step = ops.name[rows], step_of(ops.start_ns[rows], steps)
    shifted = [np.roll(name, by) for by in range(-_AROUND, _AROUND + 1)]
    mine = np.flatnonzero(trace.named(ops.name, _ARITHMETIC)[rows] & (step >= 0))
    if len(steps) < SUBNORMAL.limit("steps") or not mine.size:
        return None
    group = np.unique(np.stack([one[mine] for one in shifted], axis=1), axis=0, return_inverse=True)[1].ravel()
    length = (ops.end_ns - ops.start_ns)[rows[mine]]
    slow, usual_ns = [], 0.0
    for one in np.flatnonzero(np.bincount(group) >= _LEAST_PASSES * len(steps)).tolist():
        here = np.flatnonzero(group == one)
        each = np.bincount(step[mine[here]], minlength=len(steps))
        if (each != each[0]).any():
            continue
        shape = (len(steps), int(each[0]))
        best = length[here].reshape(shape).min(axis=0)  # a thread that had no core is late in one step alone
        usual = float(np.quantile(best, SUBNORMAL.limit("quickest")))
        late = np.flatnonzero(best > SUBNORMAL.limit("longer") * usual)
        if late.size >= SUBNORMAL.limit("passes") * best.size:
            slow.append(rows[mine[here.reshape(shape)[:, late].ravel()]])
            usual_ns += usual * late.size * len(steps)
    if not slow:
        return None
    found = np.sort(np.concatenate(slow))
    return found, usual_ns / float((ops.end_ns - ops.start_ns)[found].sum())
