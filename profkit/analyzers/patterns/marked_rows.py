"""Rows that layers compute and no loss needs, as the capture marked them: zero gradients, and rows without a target."""

from __future__ import annotations

from re import Pattern
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.cost import rows_of
from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import Forward, Waste, each_with_backward, lead, timed_rows
from profkit.findings.wasted import NO_TARGET, ZERO_ROWS
from profkit.model.arrays import I64, distinct_codes, is_one_of, place_among
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import shares
from profkit.timeline.host import enclosing_op

_ZERO_MARK: Final = later(r"^profkit: zero rows of node ([0-9]{1,18}), ([0-9]{1,3}) %$")
"""The names of its ranges: `profkit/capture/inside/places/zero_rows.py`."""
_NO_TARGET_MARK: Final = later(r"^profkit: rows without a target of node ([0-9]{1,18}), ([0-9]{1,3}) %$")
"""The names of its ranges: `profkit/capture/inside/places/no_target.py`."""
_SELECTS: Final = later(
    r"^autograd::engine::evaluate_function: (?:Max|Amax|Min|Amin|Aminmax|Maximum|Minimum|Topk|Sort|Kthvalue|Median|Mode"
    r"|MaxPool\w+|AdaptiveMax\w+|FractionalMax\w+|ScatterReduce|SegmentReduce|IndexReduce)Backward\d*$"
)
"""What chooses rows by their values: all have to be computed, though few get a gradient."""

_TOGETHER: Final = later(
    r"^aten::(?:_?fft_|_?linalg_(?:chol|eig|inv|ldl|lstsq|lu|qr|solve|svd)|(?:log)?cum(?:sum|prod))"
)
"""What computes no row without the others: a spectrum of which few frequencies are kept is still transformed whole."""


def zero_rows(facts: Facts) -> Waste | None:
    """The marked operators with their backward nodes, less the share of their rows that is needed."""
    again = facts.trace.again
    if again is None or any(map(_SELECTS.search, again.strings)):
        return None
    marked = _marked(facts, again, _ZERO_MARK, ZERO_ROWS.limit("zero"))
    if marked is None:
        return None
    seen, timed, places, zero, there = marked
    title = f"about {100 * zero:.2g} % of the rows that layers compute{there} have no influence on the loss"
    of_gradients = timed_rows(facts, seen, _of_gradients(again, seen, places))
    also = Ranges.of(facts.trace.ops, of_gradients, facts.trace.window_ns)
    return Waste(Ranges.joined(each_with_backward(facts, timed), also), 1 - zero, title)


def no_target(facts: Facts) -> Waste | None:
    """Output layers, what lies between them and their loss, and the backward nodes, less the share with a target."""
    again = facts.trace.again
    marked = None if again is None else _marked(facts, again, _NO_TARGET_MARK, NO_TARGET.limit("rows"))
    if marked is None:
        return None
    _, timed, _, share, there = marked
    title = f"about {100 * share:.2g} % of the rows of the output layer{there} have no target: the loss ignores them"
    return Waste(each_with_backward(facts, timed), 1 - share, title)


def _marked(
    facts: Facts, again: Trace, mark: Pattern[str], least: float
) -> tuple[Forward, I64, NDArray[np.intp], float, str] | None:
    """Operators with so large a share: timed, and by their places; the mean share, and where most of their time is."""
    if not any(map(mark.search, again.strings)):
        return None
    seen = Forward(facts, again)
    share = _share_of_op(again, seen, mark)
    share[share < least] = 0
    timed = timed_rows(facts, seen, seen.rows[(share > 0) & ~seen.is_back])
    if not timed.size:
        return None
    length = (again.ops.end_ns - again.ops.start_ns)[seen.rows].astype(np.float64)
    mean = float((share * length).sum() / max(length[share > 0].sum(), 1.0))
    forward = Ranges.of(facts.trace.ops, timed, facts.trace.window_ns)
    told = shares(facts.code, rows_of(facts, facts.code, forward, spare_work=False)) if facts.code is not None else ()
    there = f" (most at {told[0].place.name})" if told else ""
    return seen, timed, np.flatnonzero(share > 0), mean, there


def _of_gradients(trace: Trace, seen: Forward, marked: NDArray[np.intp]) -> I64:
    """Operators on as many rows in backward nodes of no known operator: there gradients are made to be differentiated."""
    n_rows = {lead(dims[0]) for place in marked.tolist() if (dims := seen.dims(place))}
    ops = trace.ops
    node = seen.backward.at(ops.thread, ops.start_ns)
    mine = np.flatnonzero((node >= 0) & (seen.backward.forward[node] < 0) & (ops.signature >= 0))
    kinds = {
        code
        for code in distinct_codes(ops.signature[mine]).tolist()
        if (told := trace.signatures[code]) is not None
        and any(lead(each) in n_rows or (each and each[-1] in n_rows) for each in told.tensors)
    }
    return mine[is_one_of(ops.signature[mine], kinds)].astype(np.int64)


def _share_of_op(trace: Trace, seen: Forward, pattern: Pattern[str]) -> NDArray[np.float64]:
    """Per operator of `seen`: the share (0-1) of its rows that is marked so; 0 of others."""
    spans, ops = trace.spans, trace.ops
    marks = {code: mark for code in distinct_codes(spans.name).tolist() if (mark := pattern.search(trace.name(code)))}
    mine = np.flatnonzero(is_one_of(spans.name, marks))
    told = [marks[code] for code in spans.name[mine].tolist()]
    wanted = np.array([int(mark[1]) for mark in told], np.int64)
    made = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0))
    made = made[np.argsort(ops.sequence[made], kind="stable")]
    # operators before it that make no node have the number of the next one as well: the last one made it
    last = place_among(ops.sequence[made], wanted, after=True) - 1
    found = made[np.maximum(last, 0)] if made.size else np.zeros(wanted.size, np.int64)
    is_known = (last >= 0) & (ops.sequence[found] == wanted) & (ops.start_ns[found] < spans.start_ns[mine])
    is_known &= ~trace.named(ops.name, _TOGETHER)[found]
    share = np.array([min(int(mark[2]), 100) / 100 for mark in told])[is_known]
    around = enclosing_op(ops.take(seen.rows), ops.thread[found[is_known]], ops.start_ns[found[is_known]])
    out = np.zeros(seen.rows.size)
    out[around[around >= 0]] = share[around >= 0]
    return out
