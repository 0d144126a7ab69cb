"""How large the tensors are that operators work on, where shapes were recorded: what a batch is, whatever runs for it.

Kernels of another batch may be other kernels, and a CPU trace has none; the operators are those of the program.
"""

from __future__ import annotations

import math

import msgspec

from profkit.compare.captures.measured import Measured
from profkit.compare.captures.pair import Pair
from profkit.findings.comparison import WORK_CHANGED


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the elements that operators work on changed, counted by operator."""

    ratio: float
    """Elements per step, candidate over baseline: the median of the operators that changed; 1 where hardly any did."""
    middle: tuple[float, float]
    """The same of the quarter below and the quarter above that median."""
    n_changed: int
    n_operators: int
    is_alike: bool
    """Whether half of them changed by that factor, or hardly any changed."""


def changed(pair: Pair) -> Change | None:
    """How the shapes changed; None where one side has none, worlds differ in size, or the operators do not agree."""
    first, second = (side.traces[0] for side in (pair.baseline, pair.candidate))
    if first.meta.world_size != second.meta.world_size:
        return None  # each rank's part of a step changes with their number
    logs = list(_by_operator(first, second).values())
    least = math.log(WORK_CHANGED.limit("same"))
    moved = sorted(log for log in logs if abs(log) >= least)
    if len(logs) < WORK_CHANGED.limit("operators"):
        return None
    if len(moved) <= WORK_CHANGED.limit("unchanged") * len(logs):
        return Change(ratio=1.0, middle=(1.0, 1.0), n_changed=len(moved), n_operators=len(logs), is_alike=True)
    low, median, high = (moved[len(moved) * quarter // 4] for quarter in (1, 2, 3))
    one_way = sum((log > 0) == (median > 0) for log in moved)
    alike = sum(abs(log - median) < least for log in moved)
    is_alike = alike >= WORK_CHANGED.limit("alike") * len(moved)
    most = WORK_CHANGED.limit("shapes" if is_alike else "shapes_apart")
    if len(moved) < most * len(logs) or one_way < WORK_CHANGED.limit("agreeing") * len(moved):
        return None
    return Change(
        ratio=math.exp(median),
        middle=(math.exp(low), math.exp(high)),
        n_changed=len(moved),
        n_operators=len(logs),
        is_alike=is_alike,
    )


def _by_operator(first: Measured, second: Measured) -> dict[str, float]:
    """By operator, the log of its elements per step, candidate over baseline: of the input that changed least, if any.

    A weight stays as it is when the batch is another, and is read again for each part of a batch; attention's products
    grow with the square of a sequence.
    """
    each: dict[str, list[float]] = {}
    for key in sorted(first.inputs.shapes.keys() & second.inputs.shapes.keys()):
        log = math.log(second.inputs.shapes[key] / first.inputs.shapes[key])
        each.setdefault(key.partition(" ")[0], []).append(log)
    out = {}
    for name, logs in each.items():
        n_calls = [trace.op_calls.get(name, 0) / trace.n_steps for trace in (first, second)]
        if min(n_calls) > 0:
            moved = [log for log in logs if abs(log) >= math.log(WORK_CHANGED.limit("same"))]
            out[name] = min(moved or logs, key=abs) + math.log(n_calls[1] / n_calls[0])
    return out
