"""Work of the host's that no backward pass reads: forward passes for nothing or for something else, loops over parameters.

An operator that autograd comes back to has the sequence number of a backward node (`phases.backward_of`). What stands
beside those, beside the backward pass and the optimizer, is read by no gradient: evaluation, a teacher, a metric, an
update of averages, clipping by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import PLACED
from profkit.analyzers.patterns.cost import rows_of
from profkit.analyzers.patterns.ranges import Ranges, named, step_threads
from profkit.findings.patterns import PARAMETER_LOOP, UNREAD
from profkit.model.arrays import I64, Bool, distinct, distinct_codes, is_one_of
from profkit.model.code import CodePlace, Phase, PlaceShare
from profkit.model.intervals import Intervals
from profkit.model.names import family_of
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import shares
from profkit.timeline.code.phases import backward_of
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import enclosing_op, launching_threads, outermost

_MODEL: Final = frozenset({"matmul", "convolution", "attention"})
"""Families of what a model computes with, not a metric, an average or a batch."""
_FRESH: Final = later(r"^aten::(?:rand\w*|normal\w*|empty|zeros|ones|arange|full|tensor|from_file|_pin_memory)$")
"""What makes a tensor: the batch of the next step, noise. Forward work before it is another's."""
_LEAST_OF: Final = 1 / 3
"""Share of a loop's operators that take a tensor of a parameter's shape: beside each are views and reads. Chosen."""
_MOST_KNOWN: Final = 0.9
"""Share of the backward nodes with a number whose forward operator must be known. Chosen: of others it may be any."""
_MOST_LINES: Final = 2
"""Lines that call it, before the lines inside. Chosen."""
_IN_BUCKETS: Final = later(r"\bddp\.reducer::|distributed::reducer::")
_ASKED: Final = later(r"^autograd::|Backward\d*$|^c10d::|^gloo:|^Optimizer\.")


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """Outermost operators of the step's threads that no backward node comes back to: runs with nothing else between."""

    runs: tuple[I64, ...]
    """Rows of `Trace.ops`, each run in order of time on one thread."""
    used: I64
    """The outermost operators that a backward node comes back to."""
    trained: I64
    """These, and those of the backward pass and of the optimizer."""


def unread(trace: Trace, threads: tuple[int, ...], *, to_the_end: bool = False) -> Unread | None:
    """The runs of these threads; None where the trace has no backward pass with autograd's numbers, or they lead nowhere.

    At the end of the recording a backward pass may still come to what ran with gradients: with `to_the_end`, such runs
    as well.
    """
    ops, backward = trace.ops, backward_of(trace)
    made = distinct(backward.forward[backward.forward >= 0])
    numbered = ops.sequence[backward.rows] >= 0
    if not made.size or (backward.forward[numbered] >= 0).mean() < _MOST_KNOWN:
        return None
    tops = outermost(ops)
    tops = tops[is_one_of(ops.thread[tops], threads)]
    is_used = np.zeros(tops.size, np.bool_)
    place = enclosing_op(ops.take(tops), ops.thread[made], ops.start_ns[made])
    is_used[place[place >= 0]] = True
    optimizer = trace.spans.take(np.flatnonzero(trace.spans.kind == SpanKind.OPTIMIZER))
    last = int(ops.start_ns[backward.rows].max())
    is_open = is_used | named(trace, ops.take(tops), _ASKED)
    if len(optimizer):
        is_open |= enclosing_op(optimizer, ops.thread[tops], ops.start_ns[tops]) >= 0
    runs = [run for run in _runs(trace, tops, is_open) if run.size]
    if not to_the_end:  # but for what ran before as well, to which none came
        before = {ops.name[run].tobytes() for run in runs if ops.start_ns[run[-1]] < last}
        runs = [run for run in runs if ops.name[run].tobytes() in before or _is_closed(trace, run, last)]
    return Unread(runs=tuple(runs), used=tops[is_used].astype(np.int64), trained=tops[is_open].astype(np.int64))


def _is_closed(trace: Trace, run: I64, last_ns: int) -> bool:
    """Whether a run lies before the last backward pass, or all of it without gradients."""
    return bool(trace.ops.start_ns[run[-1]] < last_ns or (trace.ops.sequence[run] < 0).all())


def _runs(trace: Trace, tops: NDArray[np.intp], is_open: Bool) -> Iterator[I64]:
    """Stretches of one thread, in one step, with no operator of another kind between."""
    ops = trace.ops
    begins = np.array([step.start_ns for step in trace.steps], np.int64)
    for thread in distinct_codes(ops.thread[tops]).tolist():
        mine = np.flatnonzero(ops.thread[tops] == thread)
        mine = mine[np.argsort(ops.start_ns[tops[mine]], kind="stable")]
        group = np.cumsum(is_open[mine]) + np.searchsorted(begins, ops.start_ns[tops[mine]], "right")
        rows, group = tops[mine[~is_open[mine]]].astype(np.int64), group[~is_open[mine]]
        yield from np.split(rows, np.flatnonzero(np.diff(group)) + 1)


def forward_work(facts: Facts) -> Ranges | None:
    """Stretches of forward work that no backward pass reads, from their first product to their last operator."""
    found = unread(facts.trace, step_threads(facts))
    return None if found is None else _spanning(facts, _forward_runs(facts.trace, found))


def _forward_runs(trace: Trace, found: Unread) -> list[I64]:
    """The parts of runs that multiply matrices, from their first product on, each up to where a tensor is made anew."""
    is_model, fresh = _is_model(trace), named(trace, trace.ops, _FRESH)
    kept = []
    for run in found.runs:
        for part in np.split(run, np.flatnonzero(fresh[run])):
            at = np.flatnonzero(is_model[part])
            if at.size:
                kept.append(part[at[0] :])
    return kept


def places_of_forward(facts: Facts) -> tuple[PlaceShare, ...]:
    """The lines that call this forward work: of frames that hold nothing else the outermost, in the user's code around it.

    By the window that has frames, and its times; empty without.
    """
    code, trace = facts.code, facts.trace
    joined = code.joined if code is not None else None
    if joined is None and code is not None and code.beside is not None and trace.again is not None:
        joined, trace = code.beside.code.joined, trace.again
    threads = launching_threads(trace) if trace.device_indices else training_threads(trace)
    found = unread(trace, threads) if joined is not None else None
    if joined is None or found is None:
        return ()
    from profkit.timeline.code.callers import callers  # loaded for traces with stacks

    ops = trace.ops
    rows = np.concatenate([np.empty(0, np.int64), *_forward_runs(trace, found)])
    called = callers(trace, joined, (ops.thread[rows], ops.start_ns[rows]), (ops.thread, ops.start_ns, found.trained))
    spent: dict[CodePlace, list[int]] = {}
    lasts = (ops.end_ns - ops.start_ns)[rows].tolist()
    for place, ns in zip(called, lasts, strict=True):
        if place is not None:
            spent.setdefault(place, []).append(ns)
    total = sum(lasts)
    shares = [
        PlaceShare(place=place, phase=Phase.OTHER, ns=sum(each), share=min(sum(each) / total, 1.0), count=len(each))
        for place, each in spent.items()
        if total and sum(each) >= PLACED * total
    ]
    return tuple(sorted(shares, key=lambda one: -one.ns)[:_MOST_LINES])


def _is_model(trace: Trace) -> Bool:
    """Per operator: whether it multiplies matrices, or one that it calls does."""
    ops = trace.ops
    codes = [code for code in distinct_codes(ops.name).tolist() if family_of(trace.name(code)) in _MODEL]
    rows = np.flatnonzero(is_one_of(ops.name, codes))
    tops = outermost(ops)
    around = enclosing_op(ops.take(tops), ops.thread[rows], ops.start_ns[rows])
    out = np.zeros(len(ops), np.bool_)
    out[tops[around[around >= 0]]] = True
    return out


def _spanning(facts: Facts, runs: list[I64]) -> Ranges:
    """A range for each run, from the start of its first operator to the end of its last."""
    ops = facts.trace.ops
    first = np.array([run[0] for run in runs], np.int64)
    low, high = facts.trace.window_ns
    end = np.array([ops.end_ns[run].max() for run in runs], np.int64)
    inside = (end > low) & (ops.start_ns[first] < high) if first.size else np.zeros(0, np.bool_)
    first, end = first[inside], end[inside]
    return Ranges(start_ns=ops.start_ns[first], end_ns=end, thread=ops.thread[first], name=ops.name[first])


def is_again(facts: Facts, found: Ranges) -> bool | None:
    """Whether most of this forward work is in modules that train in the same steps; None where modules are not known."""
    if facts.code is None:
        return None
    ops, module, known = facts.trace.ops, facts.code.module_of_op, unread(facts.trace, step_threads(facts))
    if known is None:
        return None
    inside = Intervals.of(found.start_ns, found.end_ns)
    rows = np.concatenate([np.empty(0, np.int64), *known.runs])
    rows = rows[inside.contains(ops.start_ns[rows]) & (module[rows] >= 0)]
    lasts = ops.end_ns[rows] - ops.start_ns[rows]
    if not rows.size:
        return None
    training = is_one_of(module[rows], distinct_codes(module[known.used]).tolist())
    return bool(2 * lasts[training].sum() > lasts.sum())


def has_graph(facts: Facts, found: Ranges) -> bool:
    """Whether most of its products make a node of a graph, each a number of its own, that no backward pass runs."""
    ops, is_model = facts.trace.ops, _is_model(facts.trace)
    rows = np.flatnonzero(is_model & Intervals.of(found.start_ns, found.end_ns).contains(ops.start_ns))
    numbered = rows[ops.sequence[rows] >= 0]
    return rows.size > 1 and 2 * distinct(ops.sequence[numbered]).size > rows.size


def fix_of_forward(facts: Facts, found: Ranges) -> str:
    """What there is against this forward work, by whose it is and whether a graph is made for nothing."""
    again = is_again(facts, found)
    free = "run it under torch.no_grad(): nobody reads its graph; and " if has_graph(facts, found) else ""
    if again:
        return free + UNREAD.fixes[0]
    return free + (UNREAD.fixes[1] if again is False else f"{UNREAD.fixes[0]}; {UNREAD.fixes[1]}")


def title_of_forward(facts: Facts, found: Ranges) -> str:
    """What it is: the model that trains, run again, or another one."""
    return {
        True: "the model that trains runs again, and no backward pass reads it",
        False: "a model that does not train runs in each step: no backward pass reads it",
        None: "",
    }[is_again(facts, found)]


def parameter_loops(facts: Facts) -> Ranges | None:
    """Loops of Python over the parameters outside of the optimizer: many short operators, each on one of their shapes.

    None where shapes are not known.
    """
    trace, found = facts.trace, unread(facts.trace, step_threads(facts), to_the_end=True)
    if found is None or not trace.signatures:
        return None
    shapes = _gradient_shapes(trace)
    if not shapes:
        return None
    codes = [
        code for code, one in enumerate(trace.signatures) if one is not None and one.dims[:1] and one.dims[0] in shapes
    ]
    on_one = is_one_of(trace.ops.signature, codes)
    on_one &= ~_calls_backward(facts)
    is_short = trace.ops.end_ns - trace.ops.start_ns <= PARAMETER_LOOP.limit("each")
    kept = []
    for run in found.runs:
        mine = np.flatnonzero(on_one[run])
        if mine.size < PARAMETER_LOOP.limit("operators"):
            continue
        loop = run[mine[0] : mine[-1] + 1]
        n_shapes = len(
            {trace.signatures[code].dims[0] for code in distinct_codes(trace.ops.signature[run[mine]]).tolist()}
        )
        if _LEAST_OF * loop.size <= mine.size and 2 * is_short[loop].sum() > loop.size and n_shapes > 1:
            kept.append(loop)
    return _spanning(facts, kept)


def _calls_backward(facts: Facts) -> Bool:
    """Per operator whether the line that calls the backward pass runs it: DDP fills its buckets behind the last node."""
    code = facts.code
    if code is None:
        return np.full(len(facts.trace.ops), any(map(_IN_BUCKETS.search, facts.trace.strings)))
    from profkit.timeline.code.join import CALLS_OF_BACKWARD  # loaded for traces with stacks

    place = [number for number, one in enumerate(code.places) if one.call in CALLS_OF_BACKWARD]
    return is_one_of(code.place_of_op, place)


def title_of_loop(facts: Facts, found: Ranges) -> str:
    """The kind's title with the line, where that is known."""
    told = shares(facts.code, rows_of(facts, facts.code, found, spare_work=False)) if facts.code is not None else ()
    return f"a loop at {told[0].place.name} works through the parameters one by one" if told else ""


def _gradient_shapes(trace: Trace) -> set[tuple[object, ...]]:
    """The shapes of the gradients that the backward pass accumulates."""
    ops = trace.ops
    rows = np.flatnonzero(named(trace, ops, re.compile(r"^torch::autograd::AccumulateGrad$")) & (ops.signature >= 0))
    told = (trace.signatures[code] for code in distinct_codes(ops.signature[rows]).tolist())
    return {one.dims[0] for one in told if one is not None and one.dims and one.dims[0]}
