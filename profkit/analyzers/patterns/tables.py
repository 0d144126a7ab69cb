"""Embedding tables whose gradient is dense: the optimizer works on all rows, though a step looks up few of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import Waste
from profkit.findings.wasted import DENSE_TABLE
from profkit.model.arrays import I64, distinct_codes, is_one_of
from profkit.model.trace import EMBEDDED, SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.host import enclosing_op

_FILL: Final = later(r"^aten::(?:fill_|zero_)$")
_DENSE_BACKWARD: Final = later(r"^aten::embedding_dense_backward$")
_N_WEIGHTS: Final = 2
"""The place of the table's rows among its arguments."""


class _Tables(msgspec.Struct, frozen=True, kw_only=True):
    rows: int
    """Of all such tables together."""
    looked_up: int
    """Of them in a step, at most: an index may come twice."""
    share: float
    """Of the optimizer's time (0-1) that is spent on them."""

    @property
    def spared(self) -> float:
        """The share (0-1) of the time on these tables that rows take which no step looks up."""
        return 1 - self.looked_up / self.rows


def _tables(facts: Facts) -> _Tables | None:
    """None where a step may look up many of their rows, where other parameters take half of the time, without shapes."""
    typed = facts.trace if len(facts.trace.work) else facts.trace.again
    if typed is None or not typed.steps:
        return None
    looked_up: dict[tuple[int, ...], float] = {}
    for code, value in zip(typed.work.name.tolist(), typed.work.value.tolist(), strict=True):
        name = typed.name(code)
        if name.startswith(EMBEDDED):
            dims = tuple(int(one) for one in name.removeprefix(EMBEDDED).split(",") if one.strip().isdigit())
            looked_up[dims] = looked_up.get(dims, 0.0) + value / len(typed.steps)
    dense, few = _dense_rows(typed), DENSE_TABLE.limit("rows")
    sparse = {
        dims: n for dims, n in looked_up.items() if len(dims) == 2 and 0 < n <= few * dims[0] and dims[0] in dense
    }
    share = _share_of_optimizer(typed, sparse.keys()) if sparse else 0.0
    if share < DENSE_TABLE.limit("optimizer"):
        return None
    return _Tables(rows=sum(dims[0] for dims in sparse), looked_up=round(sum(sparse.values())), share=share)


def _dense_rows(typed: Trace) -> set[int]:
    """The rows of tables that get a dense gradient: of a sparse one the optimizer takes the rows that were looked up."""
    rows = np.flatnonzero(typed.named(typed.ops.name, _DENSE_BACKWARD))
    told = (typed.signatures[code] for code in distinct_codes(typed.ops.signature[rows]).tolist())
    texts = (one.text(_N_WEIGHTS) for one in told if one is not None)
    return {int(text) for text in texts if text.isdigit()}


def _share_of_optimizer(typed: Trace, shapes: Collection[tuple[int, ...]]) -> float:
    spans, ops = typed.spans, typed.ops
    steps = spans.take(np.flatnonzero(spans.kind == SpanKind.OPTIMIZER))
    of_table = [code for code, one in enumerate(typed.signatures) if one is not None and one.shape(0) in shapes]
    is_outer = enclosing_op(ops, ops.thread, ops.start_ns - 1) < 0
    inside = (enclosing_op(steps, ops.thread, ops.start_ns) >= 0) & is_outer
    lasts = ops.end_ns - ops.start_ns
    return int(lasts[inside & is_one_of(ops.signature, of_table)].sum()) / max(int(lasts[inside].sum()), 1)


def updates(facts: Facts) -> Waste | None:
    """The optimizer's steps, and where a dense gradient is set to zero before rows are added to it.

    What goes into other parameters stays, and into rows that a step looks up.
    """
    found = _tables(facts) if facts.cpu is not None else None
    if found is None:
        return None
    trace = facts.trace
    of_steps = Ranges.of(trace.spans, trace.spans.kind == SpanKind.OPTIMIZER, trace.window_ns)
    ranges = Ranges.joined(of_steps, Ranges.of(trace.ops, _fills(trace), trace.window_ns))
    title = f"the optimizer updates all {found.rows:,} rows of embedding tables, of which a step looks up {found.looked_up:,} at most"
    return Waste(ranges, 1 - found.share * found.spared, title)


def _fills(trace: Trace) -> I64:
    ops = trace.ops
    rows = np.flatnonzero(trace.named(ops.name, _FILL))
    dense = ops.take(np.flatnonzero(trace.named(ops.name, _DENSE_BACKWARD)))
    return rows[enclosing_op(dense, ops.thread[rows], ops.start_ns[rows]) >= 0]
