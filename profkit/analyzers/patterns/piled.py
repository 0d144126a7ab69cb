"""Gradients that pile up: of parameters that the optimizer does not clear, so that it does not use them either.

Where a parameter has no gradient yet, autograd hands it the new one; where it has one, it adds. In the first backward
pass after an optimizer's step, whose `zero_grad` has cleared its own parameters, additions are for those of nobody: a
teacher without `no_grad`, a part that was meant to be frozen, a discriminator in the generator's step.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.patterns.ranges import Ranges, named
from profkit.findings.patterns import PILED
from profkit.model.arrays import I64, Bool, distinct, distinct_codes, is_one_of
from profkit.model.names import family_of
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import BACKWARD_NODE, enclosing_op

_ADD: Final = later(r"^aten::add_?$")
_ACCUMULATE: Final = later(rf"^{BACKWARD_NODE}: torch::autograd::AccumulateGrad")
_ZERO: Final = later(r"^aten::(?:_foreach_)?zero_$")
_MATRIX: Final = frozenset({"matmul", "convolution", "attention"})
_BOTH: Final = later(r"convolution_backward|attention.*_backward")
"""Operators that may make the gradient of the input and that of the weight in one."""


class _Passes(msgspec.Struct, frozen=True):
    """Stretches of nodes, rows of `Trace.ops` in order of time, and whether gradients flow on through each."""

    stretches: tuple[I64, ...]
    flows_on: tuple[bool, ...]


def piled(facts: Facts) -> Ranges | None:
    """The stretches of the backward pass that make such gradients; None without an optimizer and autograd's nodes."""
    found = _found(facts.trace)
    if found is None:
        return None
    ops = facts.trace.ops
    first = np.array([one[0] for one in found.stretches], np.int64)
    end = np.array([ops.end_ns[one].max() for one in found.stretches], np.int64)
    return _ranges(facts, first, end)


def flowing(facts: Facts) -> Ranges:
    """Those through which gradients flow on, to parameters in use: only those of their own weights can be spared."""
    found, ops = _found(facts.trace), facts.trace.ops
    kept = [] if found is None else [one for one, on in zip(found.stretches, found.flows_on, strict=True) if on]
    first = np.array([one[0] for one in kept], np.int64)
    return _ranges(facts, first, np.array([ops.end_ns[one].max() for one in kept], np.int64))


def _ranges(facts: Facts, first: I64, end: I64) -> Ranges:
    ops, (low, high) = facts.trace.ops, facts.trace.window_ns
    inside = (end > low) & (ops.start_ns[first] < high)
    first, end = first[inside], end[inside]
    return Ranges(start_ns=ops.start_ns[first], end_ns=end, thread=ops.thread[first], name=ops.name[first])


def _found(trace: Trace) -> _Passes | None:
    """The stretches of each first backward pass after an optimizer's step."""
    ops, spans = trace.ops, trace.spans
    nodes = np.flatnonzero(named(trace, ops, BACKWARD_NODE))
    ends = np.sort(spans.end_ns[spans.kind == SpanKind.OPTIMIZER])
    if not nodes.size or not ends.size:
        return None
    nodes = nodes[np.argsort(ops.start_ns[nodes], kind="stable")]
    is_one = named(trace, ops, _ACCUMULATE)[nodes]
    adds = np.flatnonzero(named(trace, ops, _ADD))
    around = enclosing_op(ops.take(nodes), ops.thread[adds], ops.start_ns[adds])
    adding = np.zeros(nodes.size, np.bool_)
    adding[around[around >= 0]] = True
    if (is_one & adding).sum() < PILED.limit("gradients") or not _is_cleared(trace):
        return None
    backward = backward_of(trace)
    forward = np.sort(ops.start_ns[distinct(backward.forward[backward.forward >= 0])])
    at = ops.start_ns[nodes]
    of_pass = np.searchsorted(forward, at) + np.searchsorted(ends, at)
    stretches, flows = [], []
    for mine in np.split(np.arange(nodes.size), np.flatnonzero(np.diff(of_pass)) + 1):
        before = ends[ends <= at[mine[0]]][-1:]
        earlier = at[mine[0] - 1] if mine[0] else -1
        # else another pass came between, which may have left them; a recording begins with a step
        if earlier > before[0] if before.size else earlier >= 0:
            continue
        for part, on in _foreign(trace, nodes[mine], is_one[mine], is_one[mine] & adding[mine]):
            stretches.append(part)
            flows.append(on)
    return _Passes(tuple(stretches), tuple(flows))


def _is_cleared(trace: Trace) -> bool:
    """Whether each optimizer that steps drops its gradients by torch's own `zero_grad`: what is set to zero is added to."""
    spans, ops = trace.spans, trace.ops
    found = {what: {trace.name(code) for code in _codes(trace, what)} for what in ("step", "zero_grad")}
    classes = {what: {name.split("#", 1)[1].partition(".")[0] for name in names} for what, names in found.items()}
    clearing = spans.take(np.flatnonzero(is_one_of(spans.name, _codes(trace, "zero_grad"))))
    zeroing = np.flatnonzero(named(trace, ops, _ZERO))
    is_inside = len(clearing) > 0 and (enclosing_op(clearing, ops.thread[zeroing], ops.start_ns[zeroing]) >= 0).any()
    return bool(classes["step"]) and classes["step"] <= classes["zero_grad"] and not is_inside


def _codes(trace: Trace, what: str) -> set[int]:
    """The codes of the names of an optimizer's ranges of that method."""
    return {
        code for code in distinct_codes(trace.spans.name).tolist() if trace.name(code).startswith(f"Optimizer.{what}#")
    }


def _foreign(trace: Trace, nodes: I64, is_one: Bool, adds: Bool) -> list[tuple[I64, bool]]:
    """The stretches of one pass before gradients that are added, where others of the pass are not."""
    at = np.flatnonzero(is_one)
    if adds.sum() < PILED.limit("gradients") or adds.sum() == at.size:
        return []
    following = at[np.minimum(np.searchsorted(at, np.arange(nodes.size)), at.size - 1)]
    mine = adds[following] & (np.arange(nodes.size) <= at[-1])
    out = []
    for part in np.split(np.arange(nodes.size), np.flatnonzero(np.diff(mine.astype(np.int8))) + 1):
        if mine[part[0]]:
            goes_on = bool((~adds[at[at > part[-1]]]).any()) and _makes_both(trace, nodes[part])
            out.append((nodes[part].astype(np.int64), goes_on))
    return out


def _makes_both(trace: Trace, nodes: I64) -> bool:
    """Whether the last node with a product makes the gradient of its input as well, or may."""
    ops = trace.ops
    for node in nodes[::-1].tolist():
        low, high = np.searchsorted(ops.start_ns, (ops.start_ns[node], ops.end_ns[node]))
        inner = [trace.name(int(ops.name[row])) for row in range(low, high) if ops.thread[row] == ops.thread[node]]
        products = [name for name in inner if name.startswith("aten::") and family_of(name) in _MATRIX]
        if products:
            return len(products) > 1 or _BOTH.search(products[0]) is not None
    return True
