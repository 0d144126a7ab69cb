"""Work that is the same in each step: what the capture marked in steps that it recorded later, in the timed ones."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.patterns.ranges import Ranges, step_threads
from profkit.analyzers.patterns.shaped import Forward, Waste, function_of, timed_rows
from profkit.model.arrays import I64, Bool, distinct_codes, is_member, is_one_of
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.host import enclosing_op, outermost
from profkit.timeline.steps import step_of

_MARK: Final = later(
    r"^profkit: (compared with the next|the same as in the|another than in the) step(?: before)?: ([0-9]{1,9})$"
)
"""The names of its ranges: `profkit/capture/inside/places/same_steps.py`."""
_MOST: Final = 0.5
_BETWEEN: Final = later(
    r"^aten::(?:_?(?:un)?safe_view|_?reshape\w*|t|T|numpy_T|m[TH]|view\w*|transpose|permute|expand\w*|as_strided|select|slice|narrow"
    r"|(?:un)?squeeze|unflatten|flatten|split\w*|chunk|unbind|detach_?|alias|diagonal|movedim|lift_fresh|resolve_\w+|is_\w+|item"
    r"|(?:new_)?(?:zeros|ones|full|empty)(?:_like|_strided)?|arange|scalar_tensor|fill_|zero_|copy_|clone|contiguous|to|_to_copy"
    r"|repeat|tile|indices|values|(?:crow|col)_indices)$"
)
"""What may stand between two operators of one piece of work: views, copies, new tensors, a number that is read."""
_LEAST_NS: Final = 50_000
"""A stretch counts from then on. Chosen: sums of single numbers, here and there, are no work to make before the loop."""
_LONGEST_GAP_NS: Final = 50_000
"""Chosen: as of work without a gradient, for dispatching an operator takes up to 50 us."""


class Marked(msgspec.Struct, frozen=True):
    """Per operator of a trace: whether it is known to be the same in each step, and to be another."""

    same: Bool
    other: Bool


def marked(trace: Trace) -> Marked | None:
    """None of a trace without marks: of a capture that did not look."""
    spans, ops = trace.spans, trace.ops
    told = {code: mark for code in distinct_codes(spans.name).tolist() if (mark := _MARK.search(trace.name(code)))}
    if not told:
        return None
    spans = spans.take(np.flatnonzero(is_one_of(spans.name, told)))
    numbers = np.array([int(told[code][2]) for code in spans.name.tolist()], np.int64)
    kinds = np.array([told[code][1][0] for code in spans.name.tolist()])
    is_other = is_one_of(numbers, numbers[kinds == "a"].tolist())
    is_same = is_one_of(numbers, numbers[kinds == "t"].tolist()) & ~is_other
    place = enclosing_op(spans, ops.thread, ops.start_ns)
    inside = np.maximum(place, 0)
    return Marked(same=(place >= 0) & is_same[inside], other=(place >= 0) & is_other[inside])


def of_step(facts: Facts) -> Marked | None:
    """The same of the facts' own trace, where the steps that were recorded later tell it."""
    again = facts.trace.again
    if again is None:
        return marked(facts.trace)
    marks = marked(again)
    if marks is None:
        return None
    seen = Forward(facts, again)
    every = np.arange(len(facts.trace.ops))
    return Marked(
        *(is_member(every, timed_rows(facts, seen, seen.rows[each[seen.rows]])) for each in (marks.same, marks.other))
    )


def changes(facts: Facts, run: I64) -> bool:
    """Whether most of what is known of a run is another in each step."""
    marks, ops = facts.once(of_step), facts.trace.ops
    if marks is None:
        return False
    lasts = (ops.end_ns - ops.start_ns)[run]
    other, same = (int(lasts[each[run]].sum()) for each in (marks.other, marks.same))
    return other > _MOST * (other + same) > 0


def same_each_step(facts: Facts) -> Waste | None:
    """The operators of the timed steps that are the same in each, with what lies between."""
    again, marks = facts.trace.again, facts.once(of_step)
    runs = _runs(facts, marks) if again is not None and marks is not None and marks.same.any() else []
    if again is None or marks is None or not runs:
        return None
    ops = facts.trace.ops
    first, last = (np.array([run[at] for run in runs], np.int64) for at in (0, -1))
    title = _title(facts, np.flatnonzero(marks.same), len(again.steps))
    return Waste(Ranges.of(ops, first, facts.trace.window_ns, end_ns=ops.end_ns[last]), 0.0, title)


def _runs(facts: Facts, marks: Marked) -> list[I64]:
    """From one such operator to the last with nothing else between: rows of outermost operators, cut where nothing runs."""
    trace, ops = facts.trace, facts.trace.ops
    tops = outermost(ops).astype(np.int64)
    tops = tops[is_one_of(ops.thread[tops], step_threads(facts))]
    tops = tops[np.lexsort((ops.start_ns[tops], ops.thread[tops]))]
    optimizers = trace.spans.take(np.flatnonzero(trace.spans.kind == SpanKind.OPTIMIZER))
    mine = marks.same[tops] & (enclosing_op(optimizers, ops.thread[tops], ops.start_ns[tops]) < 0)
    between = ~mine & ~marks.other[tops] & trace.named(ops.name, _BETWEEN)[tops]
    begins = np.diff(ops.thread[tops], prepend=-1) != 0
    begins |= np.diff(step_of(ops.start_ns[tops], trace.steps), prepend=-2) != 0
    begins |= ops.start_ns[tops] - np.append(0, ops.end_ns[tops][:-1]) > _LONGEST_GAP_NS
    group = np.cumsum(begins | ~(mine | between))
    runs = []
    for part in np.split(np.arange(tops.size), np.flatnonzero(np.diff(group)) + 1):
        inside = part[mine[part]]
        run = tops[inside[0] : inside[-1] + 1] if inside.size else inside
        if run.size and ops.end_ns[run[-1]] - ops.start_ns[run[0]] >= _LEAST_NS:
            runs.append(run)
    return runs


def _title(facts: Facts, rows: I64, n_steps: int) -> str:
    """Whose work that is, which operator has most of it, and how many steps have been compared."""
    trace, ops = facts.trace, facts.trace.ops
    spent = np.bincount(ops.name[rows], weights=(ops.end_ns - ops.start_ns)[rows])
    who, most = function_of(facts, rows), trace.name(int(spent.argmax()))
    return f"{f'{who} makes' if who else 'work makes'} the same in each step, most of it by {most} ({n_steps} steps were compared)"
