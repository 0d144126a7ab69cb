"""Arithmetic on subnormal numbers on a CPU: the same operator at the same place of a loop takes many times as long.

That alone may be a larger tensor. So it counts where the capture has seen such numbers. Of products it has timed what
they cost: those of the same shape that are as slow count as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import timed_rows, with_shapes
from profkit.findings.patterns import SUBNORMAL
from profkit.model.arrays import I64, rows_by_value
from profkit.plain import clean
from profkit.redact.later import later
from profkit.roof.formulas import work_of
from profkit.roof.products import product_rows
from profkit.timeline import Facts
from profkit.timeline.code.helpers import whole_ns
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import outermost
from profkit.timeline.steps import step_of, steps_in_window

_ARITHMETIC: Final = later(r"^aten::(?:add|sub|rsub|mul|div|lerp|addcmul|addcdiv|square|pow|sum|mean)_?$")
_AROUND: Final = 2
"""Operators before and behind, by whose names an operator is known to be at the same place of a loop. Chosen."""
_LEAST_PASSES: Final = 16
"""Of a loop in each step: the fastest quarter of them is then what it takes of usual numbers. Chosen."""
_LONGEST_NAME: Final = 60
_MOST_AXES: Final = 16
_MOST_TOLD: Final = 16
"""Entries of one list that a file tells. Chosen: a capture writes 4."""


def subnormal(facts: Facts) -> Ranges | None:
    """The slow operators where numbers were seen to be subnormal; None where none were."""
    found = facts.once(_slow)
    return None if found is None else Ranges.of(facts.trace.ops, found[0], facts.trace.window_ns)


def stays(facts: Facts, _: Ranges) -> float:
    """The share (0-1) of their time that they take of usual numbers."""
    found = facts.once(_slow)
    return 1.0 if found is None else found[1]


def title_of_subnormal(facts: Facts, _: Ranges) -> str:
    """Where they were seen, and what products with them cost."""
    products = facts.once(_slow_products)
    if products is not None:
        of, times = products[2:]
        return f"products with {of} take {times:.1f} times as long: some of it is subnormal (below 1.2e-38)"
    return f"the CPU is slow where numbers are subnormal (below 1.2e-38), as {_seen(facts)} is in part"


def fix_of_subnormal(facts: Facts, _: Ranges) -> str:
    """How they become zero: a factor of products is made at one place."""
    return SUBNORMAL.fixes[0 if facts.once(_slow_products) is None else 1]


def _told(facts: Facts, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the capture has seen, with the names; nothing where such numbers are taken for zero."""
    told = facts.trace.meta.metadata.get("profkit_subnormals")
    every = told.get(key) if isinstance(told, Mapping) and told.get("flushes") is False else None
    for one in every[:_MOST_TOLD] if isinstance(every, list) else []:
        if isinstance(one, Mapping):
            of = one.get("of")
            yield (clean(of[:_LONGEST_NAME]) if isinstance(of, str) else "") or "a tensor", one


def _seen(facts: Facts) -> str:
    """What holds such numbers; "" where the capture has seen none, or they are taken for zero."""
    return next((of for of, one in _told(facts, "kinds") if whole_ns(one.get("n_found"))), "")


def _slow(facts: Facts) -> tuple[I64, float] | None:
    """The rows of slow operators, each without what it calls, and the share of their time that stays."""
    if facts.cpu is None:
        return None
    passes, products = facts.once(_slow_passes), facts.once(_slow_products)
    found = [one[:2] for one in (passes, products) if one is not None]
    if not found:
        return None
    ops = facts.trace.ops
    rows, usual_ns = (np.concatenate(each) for each in zip(*found, strict=True))
    rows, first = np.unique(rows, return_index=True)
    tops = outermost(ops.take(rows))
    spent_ns = (ops.end_ns - ops.start_ns)[rows[tops]]
    return rows[tops], float(usual_ns[first[tops]].sum() / spent_ns.sum())


def _slow_products(facts: Facts) -> tuple[I64, NDArray[np.float64], str, float] | None:
    """Products with a tensor of a shape that was seen to be slow, what each would take, its name, how many times as long.

    At the rate that the capture has timed, or little more. None becomes faster than zeros were.
    """
    known = [(of, *one) for of, told in _told(facts, "products") if (one := _rates(told))]
    seen = facts.once(with_shapes) if known else None
    if seen is None:
        return None
    trace, ops = seen.trace, facts.trace.ops
    rows = product_rows(trace)
    rows = rows[trace.ops.signature[rows] >= 0].astype(np.int64)
    n = max(len(trace.signatures), 1)
    pair = trace.ops.name[rows].astype(np.int64) * n + trace.ops.signature[rows]
    slow: list[tuple[I64, NDArray[np.float64], str, float]] = []
    for one, here in rows_by_value(pair):
        signature = trace.signatures[one % n]
        work = work_of(trace.name(one // n), signature) if signature is not None else None
        shapes = [_flat(shape) for shape in signature.tensors] if signature is not None else []
        mine = next((each for each in known if shapes and _flat(each[1]) & set().union(*shapes)), None)
        if work is None or not work.flops or mine is None:
            continue
        of, _, rate, of_zeros = mine
        timed = timed_rows(facts, seen, rows[here])
        spent_ns = (ops.end_ns - ops.start_ns)[timed]
        if timed.size and 1e9 * work.flops * timed.size <= SUBNORMAL.limit("times") * rate * float(spent_ns.sum()):
            usual_ns = np.maximum(spent_ns * (rate / of_zeros), 1e9 * work.flops / of_zeros)
            slow.append((timed, np.minimum(usual_ns, spent_ns), of, of_zeros / rate))
    if not slow:
        return None
    _, _, of, times = max(slow, key=lambda one: float(one[1].sum()) * one[3])
    return np.concatenate([one[0] for one in slow]), np.concatenate([one[1] for one in slow]), of, times


def _flat(shape: tuple[int, ...]) -> set[tuple[int, ...]]:
    """A shape as it is, and as the matrix that a layer makes of it, either way round."""
    rows = (prod(shape[:-1]), shape[-1]) if len(shape) > 1 else shape
    return {shape, rows, rows[::-1]}


def _rates(told: Mapping[str, Any]) -> tuple[tuple[int, ...], int, int] | None:
    """The shape of a tensor and both rates of products with it, in FLOP/s; None of what is no such.

    Nor of a vector: a bias, which is added, may be as long.
    """
    shape = told.get("shape")
    sizes = tuple(map(whole_ns, shape[:_MOST_AXES])) if isinstance(shape, list) else ()
    rate, of_zeros = whole_ns(told.get("flop_per_s")), whole_ns(told.get("flop_per_s_of_zeros"))
    is_slow = 0 < SUBNORMAL.limit("times") * rate <= of_zeros
    return (sizes, rate, of_zeros) if len(sizes) > 1 and all(sizes) and is_slow else None


def _slow_passes(facts: Facts) -> tuple[I64, NDArray[np.float64]] | None:
    """The rows of slow operators, and the time that each would take, ns."""
    trace = facts.trace
    if not _seen(facts):
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
    slow, usual_ns = [], []
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
            usual_ns.append(np.full(slow[-1].size, usual))
    return (np.concatenate(slow), np.concatenate(usual_ns)) if slow else None
