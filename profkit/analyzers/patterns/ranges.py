"""Where each pattern stands in a trace: ranges of the host, found by names, numbers and types of operators."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct, distinct_codes, is_one_of
from profkit.model.names import Precision
from profkit.model.trace import CpuOps, SpanKind, Spans, Trace
from profkit.timeline import Facts
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, in_backward

_MATH: Final = re.compile(r"^aten::_scaled_dot_product_attention_math")
_SEARCH: Final = re.compile(r"search_unused_parameters$")
_CAST: Final = re.compile(r"^aten::_to_copy$")
_AT_ONCE: Final = re.compile(r"^aten::_(?:foreach|fused)_")
"""In a step of an optimizer: an operator for all parameters at once..."""
_CLOSURE: Final = re.compile(r"^autograd::engine::")
"""...and the backward pass of a closure: then the range is no loop over parameters."""
_FLOATING: Final = (Precision.FP64, Precision.FP32, Precision.FP16, Precision.BF16)
_DTYPE_ARGUMENT: Final = 1


class Ranges(msgspec.Struct, frozen=True, kw_only=True):
    """Host ranges of one pattern inside the window, shape (n,) each; some may lie inside others."""

    start_ns: I64
    end_ns: I64
    thread: NDArray[np.int32]

    @classmethod
    def of(cls, table: CpuOps | Spans, rows: NDArray[Any], window_ns: tuple[int, int]) -> Ranges:
        """These rows of a table, as far as they touch the window."""
        low, high = window_ns
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        chosen = chosen[(table.end_ns[chosen] > low) & (table.start_ns[chosen] < high)]
        return cls(start_ns=table.start_ns[chosen], end_ns=table.end_ns[chosen], thread=table.thread[chosen])


def step_threads(facts: Facts) -> tuple[int, ...]:
    """The threads of the step: others may pause as they like."""
    return facts.host.threads if facts.main_device is not None else training_threads(facts.trace)


def named(trace: Trace, table: CpuOps | Spans, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Per row: whether its name has the pattern."""
    codes = [code for code in distinct_codes(table.name).tolist() if pattern.search(trace.name(code))]
    return is_one_of(table.name, codes)


def _of_kind(facts: Facts, kind: SpanKind) -> Ranges:
    spans = facts.trace.spans
    mine = (spans.kind == kind) & is_one_of(spans.thread, step_threads(facts))
    return Ranges.of(spans, mine, facts.trace.window_ns)


def collections(facts: Facts) -> Ranges:
    """Pauses of Python's garbage collector on the threads of the step."""
    return _of_kind(facts, SpanKind.GC)


def compilations(facts: Facts) -> Ranges:
    """Compilations by torch.compile on the threads of the step."""
    return _of_kind(facts, SpanKind.COMPILING)


def searches(facts: Facts) -> Ranges:
    """DDP's searches for parameters that a step does not use."""
    trace = facts.trace
    return Ranges.of(trace.ops, named(trace, trace.ops, _SEARCH), trace.window_ns)


def math_attention(facts: Facts) -> Ranges:
    """Attention in separate operators."""
    trace = facts.trace
    return Ranges.of(trace.ops, named(trace, trace.ops, _MATH), trace.window_ns)


def casts(facts: Facts) -> Ranges | None:
    """Conversions between floating-point formats; None where no types were recorded."""
    trace = facts.trace
    ops = trace.ops
    rows = np.flatnonzero(named(trace, ops, _CAST))
    if not trace.signatures:
        return None
    codes = ops.signature[rows]
    is_cast = np.zeros(len(trace.signatures), np.bool_)
    is_cast[[code for code in distinct_codes(codes).tolist() if _is_cast(trace, code)]] = True
    return Ranges.of(ops, rows[(codes >= 0) & is_cast[np.maximum(codes, 0)]], trace.window_ns)


def _is_cast(trace: Trace, code: int) -> bool:
    from profkit.roof.formulas.work import precision, type_said  # loaded for traces with shapes

    signature = trace.signatures[code]
    if signature is None or not signature.types:
        return False
    before, after = signature.types[0], type_said(signature, _DTYPE_ARGUMENT)
    return after is not None and after != before and {precision(before), precision(after)} <= set(_FLOATING)


def recomputed(facts: Facts) -> Ranges | None:
    """Forward operators inside backward nodes, each from where what ran before it had ended: the hooks that run it again.

    None where the trace has no autograd numbers.
    """
    trace = facts.trace
    ops = trace.ops
    nodes = np.flatnonzero(named(trace, ops, re.compile(f"^{BACKWARD_NODE}")))
    if nodes.size == 0 or not bool((ops.sequence[nodes] >= 0).any()):
        return None
    forward = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0))
    names = [code for code in distinct_codes(ops.name[forward]).tolist() if trace.name(code).startswith("aten::")]
    forward = forward[is_one_of(ops.name[forward], names)]
    forward = forward[in_backward(trace, forward)]
    around = enclosing_op(ops.take(nodes), ops.thread[forward], ops.start_ns[forward])
    found = Ranges.of(ops, forward, trace.window_ns)
    if found.start_ns.size == 0:
        return found
    begins = np.maximum(ops.start_ns[nodes[around]], _last_end(ops, forward))
    return Ranges.of(replace(ops.take(forward), start_ns=begins), np.ones(forward.size, np.bool_), trace.window_ns)


def _last_end(ops: CpuOps, rows: I64) -> I64:
    """Per row: the last end of an operator of its thread before it begins, int64 ns; 0 for none."""
    out = np.zeros(rows.size, np.int64)
    for thread in distinct_codes(ops.thread[rows]).tolist():
        mine = np.flatnonzero(ops.thread[rows] == thread)
        ends = np.sort(ops.end_ns[ops.thread == thread], kind="stable")
        place = np.searchsorted(ends, ops.start_ns[rows[mine]], "right") - 1
        out[mine] = np.where(place >= 0, ends[np.maximum(place, 0)], 0)
    return out


def optimizer_loops(facts: Facts, *, least_operators: float, longest_ns: float) -> Ranges:
    """Steps of an optimizer with at least so many operators, each that short, that are no part of a foreach or fused one.

    An optimizer may work through some of its parameters one by one: what it does for all the others at once is left out.
    """
    trace = facts.trace
    spans, ops = trace.spans, trace.ops
    steps = spans.take(np.flatnonzero(spans.kind == SpanKind.OPTIMIZER))
    if len(steps) == 0 or len(ops) == 0:
        return Ranges.of(steps, np.zeros(len(steps), np.bool_), trace.window_ns)
    around = enclosing_op(steps, ops.thread, ops.start_ns)
    whole = ops.take(np.flatnonzero((around >= 0) & named(trace, ops, _AT_ONCE)))
    loose = (around >= 0) & (enclosing_op(whole, ops.thread, ops.start_ns) < 0)
    counts = np.bincount(around[loose], minlength=len(steps))
    many = counts >= least_operators
    many[distinct(around[loose & named(trace, ops, _CLOSURE)])] = False
    low, high = trace.window_ns
    kept: list[tuple[int, int, int]] = []
    for row in np.flatnonzero(many).tolist():
        parts = _without(steps, row, whole)
        if sum(end - start for start, end in parts) <= longest_ns * counts[row]:
            kept += [(start, end, int(steps.thread[row])) for start, end in parts if end > low and start < high]
    columns = np.array(kept, np.int64).reshape(-1, 3)
    return Ranges(start_ns=columns[:, 0], end_ns=columns[:, 1], thread=columns[:, 2].astype(np.int32))


def _without(steps: Spans, row: int, whole: CpuOps) -> list[tuple[int, int]]:
    """The parts of a step, ns, outside the operators for all parameters at once."""
    at, end = int(steps.start_ns[row]), int(steps.end_ns[row])
    mine = (whole.thread == steps.thread[row]) & (whole.start_ns >= at) & (whole.start_ns < end)
    order = np.flatnonzero(mine)[np.argsort(whole.start_ns[mine], kind="stable")]
    parts = []
    for first, last in zip(whole.start_ns[order].tolist(), whole.end_ns[order].tolist(), strict=True):
        if first > at:
            parts.append((at, min(first, end)))
        at = max(at, last)
    return [*parts, (at, end)] if at < end else parts
