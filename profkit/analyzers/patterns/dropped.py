"""Gradients of parameters that a pass computes and `zero_grad` drops before an optimizer's step: an attack that needs that of its input alone.

Between two steps of the optimizers, those before the last `zero_grad` are dropped, unless what runs behind one may read
a gradient of each parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.patterns.forward import with_frames
from profkit.analyzers.patterns.parameters import ACCUMULATE, is_cleared, makes_both, method_codes, passes_of
from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.patterns import DROPPED
from profkit.model.arrays import I64, distinct, is_one_of
from profkit.model.code import CodePlace, Phase, PlaceShare
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import BACKWARD_NODE, outermost

_OF_WEIGHT: Final = later(rf"^{BACKWARD_NODE}: (?:Addmm|Mm|\w*Linear|\w*Conv\w*)Backward\d*$")
"""Nodes that make the gradient of a weight beside that of the input; products of attention have no weight."""
AT_ONCE: Final = later(r"^aten::_(?:amp_)?foreach_")
_NEXT: Final = np.iinfo(np.int64).max


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """Passes whose gradients nobody uses: their nodes, rows of `Trace.ops` in order of time."""

    passes: tuple[I64, ...]
    weights: I64
    """The nodes that make the gradient of a weight and of the input."""
    gradients: I64
    """Those that store a gradient."""


def dropped_of(trace: Trace) -> Dropped:
    """The passes of a trace that are dropped; none where optimizers step or clear their gradients by other means."""
    passes = _passes(trace)
    found = _dropped(trace, passes) if passes and is_cleared(trace) else []
    weights, gradients = [], []
    kept = []
    for nodes in found:
        stores = trace.named(trace.ops.name, ACCUMULATE)[nodes]
        makes = trace.named(trace.ops.name, _OF_WEIGHT)[nodes]
        # the gradient of a weight is stored as soon as it is there: before the next node that makes one
        stored = np.searchsorted(np.flatnonzero(makes), np.flatnonzero(stores), side="right") - 1
        mine = nodes[makes][distinct(stored[stored >= 0])]
        both = [row for row in mine.tolist() if makes_both(trace, np.array([row]))]
        if both and stores.sum() >= DROPPED.limit("gradients"):
            kept.append(nodes)
            weights += both
            gradients += nodes[stores].tolist()
    return Dropped(passes=tuple(kept), weights=np.array(weights, np.int64), gradients=np.array(gradients, np.int64))


def _passes(trace: Trace) -> list[I64]:
    """The nodes of each backward pass that runs outside of an optimizer's step; none where each step has one at most."""
    ops, spans = trace.ops, trace.spans
    steps = spans.take(np.flatnonzero(spans.kind == SpanKind.OPTIMIZER))
    begins, ends = np.sort(steps.start_ns), np.sort(steps.end_ns)
    passes = passes_of(trace, ends)
    if len(passes) <= ends.size + 1:
        return []
    at = ops.start_ns[np.concatenate(passes)]
    if (np.searchsorted(begins, at, "right") != np.searchsorted(ends, at, "right")).any():  # a closure
        return []
    return passes


def _dropped(trace: Trace, passes: list[I64]) -> list[I64]:
    ops, spans = trace.ops, trace.spans
    steps = np.sort(spans.end_ns[spans.kind == SpanKind.OPTIMIZER])
    clears = np.sort(spans.start_ns[is_one_of(spans.name, method_codes(trace, "zero_grad"))])
    begins = np.array([int(ops.start_ns[one[0]]) for one in passes], np.int64)
    backward = backward_of(trace)
    forward = np.sort(ops.start_ns[distinct(backward.forward[backward.forward >= 0])])
    tops = np.sort(ops.start_ns[outermost(ops)])
    at_once = np.sort(ops.start_ns[trace.named(ops.name, AT_ONCE)])
    n_steps, n_clears = np.searchsorted(steps, begins), np.searchsorted(clears, begins)
    # between two passes all optimizers step, or all clear: else one may clear what is not another's
    n_each = {int(n) for counts in (np.diff(n_steps), np.diff(n_clears)) for n in counts[counts > 0].tolist()}
    found: list[I64] = []
    if len(n_each) != 1:
        return found
    used = (-1, -1)  # by steps and clears: where gradients are read, those of all passes since the last clear are
    for at in range(len(passes) - 2, -1, -1):
        nodes, group = passes[at], (int(n_steps[at]), int(n_clears[at]))
        if group == used or not ((n_steps == n_steps[at]) & (n_clears > n_clears[at])).any():
            continue
        end = int(ops.end_ns[nodes].max())
        following = int(forward[np.searchsorted(forward, end)]) if forward.size and end <= forward[-1] else _NEXT
        between = (end, min(int(clears[n_clears[at]]), following, int(begins[at + 1])))
        n_read = int(np.diff(np.searchsorted(tops, between))[0])
        n_stored = int(trace.named(ops.name, ACCUMULATE)[nodes].sum())
        if n_read >= n_stored or np.diff(np.searchsorted(at_once, between))[0]:
            used = group
        else:
            found.insert(0, nodes)
    return found


def _of_window(facts: Facts) -> Dropped:
    return dropped_of(facts.trace)


def dropped(facts: Facts) -> Ranges:
    """What makes and stores these gradients."""
    found = facts.once(_of_window)
    rows = np.sort(np.concatenate((found.weights, found.gradients)))
    return Ranges.of(facts.trace.ops, rows, facts.trace.window_ns)


def dropped_halves(facts: Facts) -> Ranges:
    """The nodes that make the gradient of the input as well."""
    return Ranges.of(facts.trace.ops, facts.once(_of_window).weights, facts.trace.window_ns)


def title_of_dropped(facts: Facts, _: Ranges) -> str:
    """How many of a step's passes that are, where each step has as many."""
    passes, n_all = len(facts.once(_of_window).passes), len(_passes(facts.trace))
    n_used = n_all - passes
    many = round(passes / n_used) if n_used else 0
    if many < 1 or abs(passes - many * n_used) > many:
        return ""
    each = f"{many} of {many + 1} backward passes compute" if many > 1 else "every second backward pass computes"
    return f"{each} gradients of weights that zero_grad drops"


def places_of_dropped(facts: Facts) -> tuple[PlaceShare, ...]:
    """The lines that call these passes."""
    return places_of_passes(facts, lambda trace: dropped_of(trace).passes)


def places_of_passes(facts: Facts, passes_in: Callable[[Trace], Sequence[I64]]) -> tuple[PlaceShare, ...]:
    """The lines that call backward passes, given the nodes of each: by the window that has frames."""
    beside = with_frames(facts)
    if beside.code is None or beside.code.joined is None:
        return ()
    from profkit.timeline.code.code import calling_backward  # loaded for traces with stacks

    ops = beside.trace.ops
    passes = passes_in(beside.trace)
    first = np.array([int(nodes[0]) for nodes in passes], np.int64)
    called = calling_backward(beside.code.joined, ops.start_ns[first])
    spent: dict[CodePlace, list[int]] = {}
    for nodes, place in zip(passes, called.tolist(), strict=True):
        if place >= 0:
            ns = int(ops.end_ns[nodes].max() - ops.start_ns[nodes[0]])
            spent.setdefault(beside.code.places[place], []).append(ns)
    total = sum(map(sum, spent.values()))
    shares = [
        PlaceShare(place=place, phase=Phase.BACKWARD, ns=sum(each), share=sum(each) / total, count=len(each))
        for place, each in spent.items()
    ]
    return tuple(sorted(shares, key=lambda one: -one.ns))
