"""Exact accounts of a change: the step by the parts of the budget, busy time by kernels, all in integer ns per step.

Parts of a window do not divide evenly by its steps. Each side is worked out in fractions (mean of runs of the mean of
their traces, each per step), its total is rounded to the nearest ns, and the parts are rounded down; the ns that are
missing go to the parts with the largest remainders. So the parts sum to the step on either side, and their changes to
its change. Compute is also told apart by what its rows are: groups, of which no two explain one ns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, TypeVar

import msgspec
import numpy as np

from profkit.compare.captures.counts import generator_of
from profkit.compare.captures.measured import Measured
from profkit.compare.captures.work_rows import OPTIMIZER, Rows, Work
from profkit.model.documents.comparison import Account, Bar, Presence, Waterfall, WorkChange
from profkit.model.grouped import grouped
from profkit.model.names import LAYOUT, bare_name, precision_of

Runs = Sequence[Sequence[Measured]]
"""The traces of each run of a side."""
MAX_ROWS: Final = 12
_SIDE_BY_SIDE: Final = "side by side"
Key = TypeVar("Key")

PREFIX: Final = "compute."
GROUPS: Final = (
    "optimizer", "generated", "layout", "attention", "products_of_attention", "softmax", "matrix", "elementwise",
    "other",
)  # fmt: skip
"""By what is asked first; `other` has norms, reductions, embeddings, what no name tells, and what ran side by side."""
_OF_ATTENTION: Final = re.compile(r"^aten::(?:bmm|baddbmm)")


def apportioned(parts: Mapping[Key, Fraction], total: int) -> dict[Key, int]:
    """Integers that sum to `total`, each within 1 of its part; `total` is the sum of the parts within 1."""
    out = {key: part.numerator // part.denominator for key, part in parts.items()}
    missing = total - sum(out.values())
    for key in sorted(parts, key=lambda key: out[key] - parts[key])[:missing]:
        out[key] += 1
    return out


def per_step(runs: Runs, value: Callable[[Measured], int]) -> Fraction:
    """The mean of a sum over the window, per step, over the traces of each run, then over the runs."""
    return _mean(_mean(Fraction(value(trace), trace.n_steps) for trace in run) for run in runs)


def _mean(values: Iterable[Fraction]) -> Fraction:
    known = list(values)
    return sum(known, Fraction(0)) / len(known)


def waterfall(baseline: Runs, candidate: Runs, *, is_steady: bool = False) -> Waterfall:
    """The step of both sides by the parts of the budget; `is_steady` without the one that is slow among many."""

    def part_of(trace: Measured, part: str) -> Fraction:
        whole, slow = trace.device.budget.parts[part], trace.slow
        if not is_steady or slow is None:
            return Fraction(whole, trace.n_steps)
        return Fraction(whole - slow.parts.get(part, 0), trace.n_steps - 1)

    sides = []
    for runs in (baseline, candidate):
        parts = {
            name: _mean(_mean(part_of(trace, name) for trace in run) for run in runs)
            for name in runs[0][0].device.budget.parts
        }
        sides.append(apportioned(parts, round(sum(parts.values()))))
    first, second = sides
    bars = (Bar(name=name, baseline_ns=first[name], candidate_ns=second[name]) for name in first)
    return Waterfall(baseline_ns=sum(first.values()), candidate_ns=sum(second.values()), bars=tuple(bars))


class Use(msgspec.Struct, frozen=True):
    """A work per step of one side; the time is whole ns, apportioned."""

    count: Fraction
    total_ns: int


def account(baseline: Runs, candidate: Runs, rows_of: Callable[[Measured], Rows], *, n_rows: int = MAX_ROWS) -> Account:
    """How busy time changed, the `n_rows` works with the largest changes one by one."""
    first, first_excess = uses(baseline, rows_of)
    second, second_excess = uses(candidate, rows_of)
    changes = sorted(_changes(first, second), key=lambda row: (-abs(row.delta_ns), row.name))
    rest = changes[n_rows:]
    return Account(
        baseline_ns=sum(use.total_ns for use in first.values()) + first_excess,
        candidate_ns=sum(use.total_ns for use in second.values()) + second_excess,
        rows=tuple(changes[:n_rows]),
        rest=_summed(rest),
        n_rest=len(rest),
        side_by_side=Bar(name=_SIDE_BY_SIDE, baseline_ns=first_excess, candidate_ns=second_excess),
    )


def uses(runs: Runs, rows_of: Callable[[Measured], Rows]) -> tuple[dict[Work, Use], int]:
    """The works of a side, and by how much they exceed busy time, negative; together they sum to busy time."""
    counts: dict[Work, Fraction] = {}
    totals: dict[Work | None, Fraction] = {}
    for run in runs:
        for trace in run:
            rows = rows_of(trace)
            weight = Fraction(1, trace.n_steps * len(run) * len(runs))
            n_works = len(rows.works)
            count = np.bincount(rows.work, minlength=n_works)
            total = np.zeros(n_works, np.int64)
            np.add.at(total, rows.work, rows.duration_ns)  # not bincount, whose weights are float64
            for work, n, ns in zip(rows.works, count.tolist(), total.tolist(), strict=True):
                counts[work] = counts.get(work, Fraction(0)) + weight * n
                totals[work] = totals.get(work, Fraction(0)) + weight * ns
    busy = per_step(runs, lambda trace: rows_of(trace).busy_ns)
    totals[None] = busy - sum(totals.values())
    whole = apportioned(totals, round(busy))
    excess = whole.pop(None)
    return {work: Use(counts[work], ns) for work, ns in whole.items() if work is not None}, excess


def group_of(work: Work | WorkChange) -> str:
    """The group of a row."""
    if work.family == OPTIMIZER:
        return "optimizer"
    if generator_of(work.name):
        return "generated"
    if work.family in {LAYOUT, "attention", "softmax"}:
        return work.family
    if precision_of(work.name) is not None or work.family == "matmul":
        return "products_of_attention" if _OF_ATTENTION.match(work.operator) else "matrix"
    return "elementwise" if work.family == "elementwise" else "other"


def group_changes(first: Mapping[Work, Use], second: Mapping[Work, Use], change_ns: int) -> dict[str, int]:
    """The change of each group, ns per step, under `PREFIX` and its name; in all `change_ns`.

    So no ns of compute explains two things.
    """
    out = dict.fromkeys((PREFIX + name for name in GROUPS), 0)
    for sign, side in ((-1, first), (1, second)):
        for work, use in side.items():
            out[PREFIX + group_of(work)] += sign * use.total_ns
    out[PREFIX + "other"] += change_ns - sum(out.values())
    return out


_NONE: Final = Use(Fraction(0), 0)
_SAME: Final[tuple[tuple[Callable[[Work], tuple[str, ...]], bool], ...]] = (
    (lambda work: (work.name,), True),  # the same kernel, launched by another operator
    (lambda work: (work.operator, work.family) if work.operator else (), False),
    (lambda work: (bare_name(work.name, 200),), True),
)
"""What works of two sides are one row by, and whether works count that the other side has, too."""


def _changes(first: dict[Work, Use], second: dict[Work, Use]) -> list[WorkChange]:
    """Every work of either side once: one row of a kernel that both sides run, whoever launches it.

    A work of one side whose kernel the other side has too stands in one row with all works of that kernel; then come
    kernels that took each other's place under one operator, then other variants of one short name.
    """
    out: list[WorkChange] = []
    left, right = dict(first), dict(second)
    for key, is_whole in _SAME:
        groups = [grouped((key(work), work) for work in side if key(work)) for side in (left, right)]
        for name in [name for name in groups[0] if name in groups[1]]:
            mine, other = (
                [work for work in group[name] if is_whole or work not in across]
                for group, across in zip(groups, (right, left), strict=True)
            )
            if mine and other and set(mine) != set(other):
                one, two = ({work: side.pop(work) for work in works} for side, works in ((left, mine), (right, other)))
                out.append(_replaced(one, two))
    out += [_change(work, use, right[work], Presence.BOTH) for work, use in left.items() if work in right]
    out += [_change(work, use, _NONE, Presence.VANISHED) for work, use in left.items() if work not in right]
    out += [_change(work, _NONE, use, Presence.APPEARED) for work, use in right.items() if work not in left]
    return out


def _replaced(left: dict[Work, Use], right: dict[Work, Use]) -> WorkChange:
    """One row for works that took each other's place, named by the longest of each side."""
    before, after = (max(uses, key=lambda work: uses[work].total_ns) for uses in (left, right))
    first, second = (
        Use(sum((use.count for use in side.values()), Fraction(0)), sum(use.total_ns for use in side.values()))
        for side in (left, right)
    )
    if before.name == after.name:
        return _change(before, first, second, Presence.BOTH)
    return _change(before, first, second, Presence.REPLACED, replaced_by=after.name)


def _change(work: Work, first: Use, second: Use, presence: Presence, *, replaced_by: str = "") -> WorkChange:
    by_count = round(_by_count(first, second))
    return WorkChange(
        name=work.name,
        operator=work.operator,
        family=work.family,
        presence=presence,
        baseline_count=float(first.count),
        candidate_count=float(second.count),
        baseline_ns=first.total_ns,
        candidate_ns=second.total_ns,
        by_count_ns=by_count,
        by_duration_ns=second.total_ns - first.total_ns - by_count,
        replaced_by=replaced_by,
    )


def _by_count(first: Use, second: Use) -> Fraction:
    """What the launches cost that one side has more of, each as long as that side's mean; the rest is by duration.

    Neither part exceeds the time of the side that has more, and swapping the sides negates both. What was not there
    before, or is not any more, is all count.
    """
    more = second if second.count > first.count else first
    return (second.count - first.count) * (more.total_ns / more.count) if more.count else Fraction(0)


_SUMS: Final = (
    *("baseline_count", "candidate_count", "baseline_ns", "candidate_ns"),
    *("by_count_ns", "by_duration_ns"),
)


def _summed(rows: Sequence[WorkChange]) -> WorkChange:
    return WorkChange(
        name="all others",
        operator="",
        family="",
        presence=Presence.BOTH,
        **{name: sum(getattr(row, name) for row in rows) for name in _SUMS},
    )
