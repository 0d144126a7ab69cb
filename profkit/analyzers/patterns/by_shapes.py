"""The patterns that recorded shapes tell, and small layers that Python calls one by one, though none waits for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns import algebra, idle_cores, same_steps, smaller, spared, subnormal, thrown
from profkit.analyzers.patterns.cost import Pattern, stays_on_cpu
from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import Forward, Waste, with_shapes
from profkit.findings import wasted
from profkit.findings.kind import FindingKind
from profkit.findings.patterns import IDLE_CORES, LAYER_LOOP, SUBNORMAL
from profkit.model.arrays import I64
from profkit.model.trace import I32
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.steps import step_of

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

_LOOK_UP: Final = later(r"^aten::embedding(?:_bag)?$")
_LAYER: Final = later(r"^aten::(?:linear|addmm)$")
_COLUMN: Final = later(r"^aten::(?:select|slice|narrow|index)$")
"""What takes a column right before a layer: so it does not take what the layer before made."""
_NEAR: Final = 4
"""Operators from one layer to the next at most: those that take its column. Chosen."""


def layers(facts: Facts) -> Ranges | None:
    """Runs of such layers, each of another module of one list, with their backward nodes; None where none is known."""
    if facts.code is None:
        return None
    seen, ops = facts.once(Forward), facts.trace.ops
    module = facts.code.module_of_op[seen.rows]
    is_column = facts.trace.named(ops.name, _COLUMN)[seen.rows]
    is_apart = facts.trace.named(ops.name, _LOOK_UP)[seen.rows]
    is_apart |= facts.trace.named(ops.name, _LAYER)[seen.rows] & np.append(False, is_column[:-1])
    mine = np.flatnonzero(is_apart & ~seen.is_back & (module >= 0))
    lists, step = _lists(facts.code)[module[mine]], step_of(ops.start_ns[seen.rows], facts.trace.steps)
    runs = [
        run
        for number in np.unique(lists[lists >= 0]).tolist()
        for run in _runs(mine[lists == number], module, step)
        if np.median((ops.end_ns - ops.start_ns)[seen.rows[run]]) <= LAYER_LOOP.limit("each")
    ]
    return seen.with_backward([seen.rows[run[0] : run[-1] + 1] for run in runs]) if runs else None


def _lists(code: Code) -> I32:
    """Per module the number of the list that it is an element of, -1 for none: `embeds.3` is one of `embeds`."""
    numbers: dict[str, int] = {}
    parts = [one.name.rpartition(".") for one in code.modules]
    found = [numbers.setdefault(head, len(numbers)) if last.isdecimal() else -1 for head, _, last in parts]
    return np.array([*found, -1], np.int32)


def _runs(places: I64, module: I32, step: NDArray[np.integer[Any]]) -> Iterator[I64]:
    """Calls of many modules near each other in a step, each of them once."""
    for run in np.split(places, np.flatnonzero((np.diff(places) > _NEAR) | (np.diff(step[places]) != 0)) + 1):
        if run.size >= LAYER_LOOP.limit("layers") and np.unique(module[run]).size == run.size:
            yield run


def _seen(find: Callable[[Facts, Forward], Waste | None]) -> Callable[[Facts], Waste | None]:
    """A rule on the operators that have shapes: nothing where none have."""
    return lambda facts: find(facts, seen) if (seen := facts.once(with_shapes)) is not None else None


def _pattern(kind: FindingKind, find: Callable[[Facts], Waste | None], one: str, several: str) -> Pattern:

    def said(facts: Facts) -> tuple[Ranges | None, float, str, str]:
        found = facts.once(find)
        return (None, 1.0, "", "") if found is None else (found.ranges, found.kept, found.title, found.fix)

    return Pattern(
        kind,
        lambda facts: said(facts)[0],
        (one, several),
        lambda facts, _: said(facts)[3] or kind.fixes[0],
        kept=lambda facts, _: said(facts)[1],
        title=lambda facts, _: said(facts)[2],
    )


BY_SHAPES: Final = (
    _pattern(wasted.DENSE_TABLE, spared.updates, "update or zeroing of a table", "updates and zeroings of tables"),
    _pattern(wasted.REPEATED, thrown.repeated, "stretch of such work", "stretches of such work, forward and backward"),
    _pattern(
        wasted.SAME_EACH_STEP, same_steps.same_each_step, "stretch of such operators", "stretches of such operators"
    ),
    _pattern(wasted.ZERO_ROWS, thrown.zero_rows, "such operator", "such operators, forward and backward"),
    _pattern(wasted.THROWN_AWAY, _seen(thrown.products), "such product", "such products, forward and backward"),
    _pattern(wasted.DENSE_EXPERTS, spared.dense_experts, "stretch of such work", "stretches of such work"),
    _pattern(wasted.NO_CACHE, _seen(spared.regrown), "generation of a sequence", "generations of sequences"),
    _pattern(wasted.FULL_SORT, spared.full_sorts, "such sort", "such sorts"),
    _pattern(wasted.MORE_ROWS, _seen(smaller.gathered), "such layer", "such layers, forward and backward"),
    _pattern(wasted.PAIRS, _seen(smaller.pairs), "such operator", "such operators, forward and backward"),
    _pattern(wasted.REBUILT, _seen(smaller.rebuilt), "such copy", "such copies"),
    _pattern(wasted.MASKED_ROWS, _seen(thrown.masked_rows), "such operator", "such operators, forward and backward"),
    _pattern(wasted.LONG_ORDER, _seen(smaller.long_orders), "such product", "such products, forward and backward"),
    _pattern(wasted.ONE_HOT, spared.one_hots, "such product", "such products"),
    _pattern(
        wasted.AWKWARD_FFT, _seen(algebra.awkward_ffts), "such transform", "such transforms, forward and backward"
    ),
    _pattern(wasted.FFT_SHIFTS, algebra.fft_shifts, "such shift", "such shifts, forward and backward"),
    _pattern(wasted.ONE_MATRIX, algebra.one_matrix, "such operator", "such operators, forward and backward"),
    _pattern(
        wasted.SMALL_MATRICES, _seen(algebra.small_matrices), "such operator", "such operators, forward and backward"
    ),
    _pattern(wasted.BY_COLUMNS, _seen(smaller.by_columns), "such gather", "such gathers"),
    _pattern(wasted.FIGURES, algebra.figures, "such operator", "such operators"),
    Pattern(
        LAYER_LOOP,
        layers,
        ("stretch of such layers", "stretches of such layers, forward and backward"),
        kept=stays_on_cpu(LAYER_LOOP),
    ),
    Pattern(
        SUBNORMAL,
        subnormal.subnormal,
        ("such operator", "such operators"),
        subnormal.fix_of_subnormal,
        kept=subnormal.stays,
        title=subnormal.title_of_subnormal,
    ),
    Pattern(
        IDLE_CORES,
        idle_cores.idle_cores,
        ("operator that threads can share", "operators that threads can share"),
        idle_cores.fix,
        kept=idle_cores.kept,
        kept_at_least=idle_cores.kept_at_least,
        title=idle_cores.title,
        remains="with two threads in place of one such operators took 45 % less, measured on two cores",
    ),
)
