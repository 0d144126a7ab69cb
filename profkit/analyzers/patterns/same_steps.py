"""Work that is the same in each step: what the capture marked in steps that it recorded later, in the timed ones."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.analyzers.patterns.ranges import Ranges, step_threads
from profkit.analyzers.patterns.shaped import Waste, function_of
from profkit.model.arrays import I64, Bool, is_member, is_one_of
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.match import match_ops
from profkit.timeline.host import enclosing_op, outermost
from profkit.timeline.steps import step_of

SAME_STEP: Final = "profkit: the same as in the step before"
OTHER_STEP: Final = "profkit: another than in the step before"
"""The names of its ranges: `profkit/capture/inside/places/same_steps.py`."""
_SAME: Final = later(rf"^{SAME_STEP}$")
_OTHER: Final = later(rf"^{OTHER_STEP}$")
_MOST: Final = 0.5
_BETWEEN: Final = later(
    r"^aten::(?:_?(?:un)?safe_view|_?reshape\w*|t|T|numpy_T|m[TH]|view\w*|transpose|permute|expand\w*|as_strided|select|slice|narrow"
    r"|(?:un)?squeeze|unflatten|flatten|split\w*|chunk|unbind|detach_?|alias|diagonal|movedim|lift_fresh|resolve_\w+|is_\w+|item"
    r"|(?:new_)?(?:zeros|ones|full|empty)(?:_like|_strided)?|arange|scalar_tensor|fill_|zero_|copy_|clone|contiguous|to|_to_copy"
    r"|repeat|tile|indices|values|(?:crow|col)_indices)$"
)
"""What may stand between two operators of one piece of work: views, copies, new tensors, a number that is read."""
_LONGEST_GAP_NS: Final = 50_000
"""Chosen: as of work without a gradient, for dispatching an operator takes up to 50 us."""


class Marked(msgspec.Struct, frozen=True):
    """Per operator of a trace: whether it lies in a mark of what is the same, and of what is another."""

    same: Bool
    other: Bool


def marked(trace: Trace) -> Marked | None:
    """None of a trace without marks: of one step, or of a capture that did not look."""
    spans, ops = trace.spans, trace.ops
    is_other = trace.named(spans.name, _OTHER)
    is_same = trace.named(spans.name, _SAME)
    if not (is_other | is_same).any():
        return None
    others, same = spans.take(np.flatnonzero(is_other)), spans.take(np.flatnonzero(is_same))
    belied = enclosing_op(same, others.thread, others.start_ns)
    holds = ~is_member(np.arange(len(same)), np.sort(belied[belied >= 0]))
    inside = enclosing_op(same, ops.thread, ops.start_ns)
    at = np.maximum(inside, 0)
    in_same = (inside >= 0) & holds[at] if len(same) else np.zeros(len(ops), np.bool_)
    in_belied = (inside >= 0) & ~in_same
    return Marked(same=in_same, other=in_belied | (enclosing_op(others, ops.thread, ops.start_ns) >= 0))


def changes(trace: Trace, marks: Marked, run: I64) -> bool:
    """Whether most of what is known of a run is another in each step."""
    lasts = (trace.ops.end_ns - trace.ops.start_ns)[run]
    other, same = (int(lasts[each[run]].sum()) for each in (marks.other, marks.same))
    return other > _MOST * (other + same) > 0


def same_each_step(facts: Facts) -> Waste | None:
    """The operators of the timed steps that are the same in each, with what lies between."""
    again = facts.trace.again
    marks = marked(again) if again is not None else None
    if again is None or marks is None or len(again.steps) < 2 or not marks.same.any():  # noqa: PLR2004
        return None
    match = match_ops(facts.trace, replace(again, steps=again.steps[1:]))  # the first one has no marks
    row = match.rows
    is_same, is_other = (each[np.maximum(row, 0)] & (row >= 0) for each in (marks.same, marks.other))
    runs = _runs(facts, is_same, is_other)
    if not runs:
        return None
    ops = facts.trace.ops
    first, last = (np.array([run[at] for run in runs], np.int64) for at in (0, -1))
    rows = np.concatenate(runs)
    title = _title(facts, rows[is_same[rows]], len(again.steps))
    return Waste(Ranges.of(ops, first, facts.trace.window_ns, end_ns=ops.end_ns[last]), 0.0, title)


def _runs(facts: Facts, is_same: Bool, is_other: Bool) -> list[I64]:
    """From one such operator to the last with nothing else between: rows of outermost operators, cut where nothing runs."""
    trace, ops = facts.trace, facts.trace.ops
    tops = outermost(ops).astype(np.int64)
    tops = tops[is_one_of(ops.thread[tops], step_threads(facts))]
    tops = tops[np.lexsort((ops.start_ns[tops], ops.thread[tops]))]
    optimizers = trace.spans.take(np.flatnonzero(trace.spans.kind == SpanKind.OPTIMIZER))
    mine = is_same[tops] & (enclosing_op(optimizers, ops.thread[tops], ops.start_ns[tops]) < 0)
    between = ~mine & ~is_other[tops] & trace.named(ops.name, _BETWEEN)[tops]
    begins = np.diff(ops.thread[tops], prepend=-1) != 0
    begins |= np.diff(step_of(ops.start_ns[tops], trace.steps), prepend=-2) != 0
    begins |= ops.start_ns[tops] - np.append(0, ops.end_ns[tops][:-1]) > _LONGEST_GAP_NS
    group = np.cumsum(begins | ~(mine | between))
    runs = []
    for part in np.split(np.arange(tops.size), np.flatnonzero(np.diff(group)) + 1):
        inside = part[mine[part]]
        if inside.size:
            runs.append(tops[inside[0] : inside[-1] + 1])
    return runs


def _title(facts: Facts, rows: I64, n_steps: int) -> str:
    """Whose work that is, which operator has most of it, and how many steps have been compared."""
    trace, ops = facts.trace, facts.trace.ops
    spent = np.bincount(ops.name[rows], weights=(ops.end_ns - ops.start_ns)[rows])
    who, most = function_of(facts, rows), trace.name(int(spent.argmax()))
    return f"{f'{who} makes' if who else 'work makes'} the same in each step, most of it by {most} ({n_steps} steps were compared)"
