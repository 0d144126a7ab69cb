"""What runs for each parameter: loops of the optimizer and beside it, and gradients that pile up.

Gradients pile up of parameters that the optimizer does not clear, so that it does not use them either. Where a
parameter has no gradient yet, autograd hands it the new one; where it has one, it adds. In the first backward pass
after an optimizer's step, whose `zero_grad` has cleared its own parameters, additions are for those of nobody: a
teacher without `no_grad`, a part that was meant to be frozen, a discriminator in the generator's step.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.analyzers.patterns.cost import rows_of
from profkit.analyzers.patterns.forward import MODEL, multiplies, spanning, unread_of_step
from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.patterns import OPTIMIZER_LOOP, PARAMETER_LOOP, PILED
from profkit.model.arrays import I64, Bool, distinct, distinct_codes, is_member, is_one_of
from profkit.model.intervals import Intervals
from profkit.model.names import family_of
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import shares
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, outermost

_AT_ONCE: Final = later(r"^aten::_(?:foreach|fused)_")
"""In a step of an optimizer: an operator for all parameters at once..."""
_CLOSURE: Final = later(r"^autograd::engine::")
"""...and the backward pass of a closure: then the range is no loop over parameters."""
_CLASS: Final = later(r"^Optimizer\.step#(\w+)\.step")
_FUSED: Final = {"Adam": 0.25, "AdamW": 0.25, "SGD": 0.5, "Adagrad": 0.4}
"""Classes of torch.optim that take fused=True, on GPUs and, from torch 2.4 on, on CPUs: the share of the loop's time that
it then takes on a CPU (`host.optimizer_loop` has the measurements)."""
_FOREACH_KEEPS: Final = 0.6
_FOREACH: Final = frozenset({"ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"})
"""Those that take foreach=True alone; LBFGS, Muon and SparseAdam take neither (torch 2.13)."""
_OWN_LOOP: Final = (
    "group parameters of one shape, write the update with torch._foreach functions, or torch.compile the step"
)
_WITHOUT_FORM: Final = {
    "SparseAdam": "put tables of one width into one (with offsets), or use dense gradients (sparse=False) and Adam(fused=True) where tables are small",
    "Muon": "its products are the work: use it for the large matrices only, fewer ns_steps, or torch.compile the step",
}
"""What there is against the loops of torch's own."""
_LEAST_OF: Final = 1 / 3
"""Share of a loop's operators that take a tensor of a parameter's shape: beside each are views and reads. Chosen."""
_IN_BUCKETS: Final = later(r"\bddp\.reducer::|distributed::reducer::")
_ADD: Final = later(r"^aten::add_?$")
ACCUMULATE: Final = later(rf"^{BACKWARD_NODE}: torch::autograd::AccumulateGrad")
STORES: Final = later(r"^torch::autograd::AccumulateGrad$")
"""What stores a gradient; torch.autograd.grad shows the node of a leaf as well, without this in it."""
_ZERO: Final = later(r"^aten::(?:_foreach_)?zero_$")
_BOTH: Final = later(r"convolution_backward|attention.*_backward")
"""Operators that may make the gradient of the input and that of the weight in one."""


def piled(facts: Facts) -> Ranges | None:
    """The stretches of the backward pass that make such gradients; None without an optimizer and autograd's nodes."""
    found = _found(facts.trace)
    return None if found is None else spanning(facts, [one for one, _ in found])


def flowing(facts: Facts) -> Ranges:
    """Those through which gradients flow on, to parameters in use: only those of their own weights can be spared."""
    return spanning(facts, [one for one, goes_on in _found(facts.trace) or () if goes_on])


def _found(trace: Trace) -> list[tuple[I64, bool]] | None:
    """The stretches of each first backward pass after an optimizer's step: nodes, and whether gradients flow on."""
    ops, spans = trace.ops, trace.spans
    ends = np.sort(spans.end_ns[spans.kind == SpanKind.OPTIMIZER])
    passes = passes_of(trace, ends)
    if not passes or not ends.size:
        return None
    nodes = np.concatenate(passes)
    is_one = trace.named(ops.name, ACCUMULATE)[nodes]
    adds = np.flatnonzero(trace.named(ops.name, _ADD))
    around = enclosing_op(ops.take(nodes), ops.thread[adds], ops.start_ns[adds])
    adding = np.zeros(nodes.size, np.bool_)
    adding[around[around >= 0]] = True
    if (is_one & adding).sum() < PILED.limit("gradients") or not is_cleared(trace):
        return None
    inner = np.flatnonzero(trace.named(ops.name, STORES))
    around = enclosing_op(ops.take(nodes), ops.thread[inner], ops.start_ns[inner])
    stores = is_member(np.arange(nodes.size), distinct(around[around >= 0])) if inner.size else is_one
    at = ops.start_ns[nodes]
    found = []
    earlier = -1  # the last node of a pass that leaves gradients: torch.autograd.grad leaves none
    for mine in np.split(np.arange(nodes.size), np.cumsum([one.size for one in passes])[:-1]):
        if not stores[mine].any():
            continue
        before, last = ends[ends <= at[mine[0]]][-1:], earlier
        earlier = int(at[mine[-1]])
        # else another pass came between, which may have left them; a recording begins with a step
        if last > before[0] if before.size else last >= 0:
            continue
        found += _foreign(trace, nodes[mine], is_one[mine], is_one[mine] & adding[mine])
    return found


def passes_of(trace: Trace, ends: I64) -> list[I64]:
    """The nodes of each backward pass in order of time, rows of `Trace.ops`; `ends`: of the optimizers' steps, sorted.

    Between two passes a forward operator begins or an optimizer's step ends. Where neither does, as in a pipeline that
    runs all micro-batches forward first, autograd tells: a thread of it takes the largest sequence number that is ready,
    so that the forward operators of a pass only go back in time.
    """
    ops, backward = trace.ops, backward_of(trace)
    nodes, forward = backward.rows.astype(np.int64), backward.forward
    if not nodes.size or not trace.named(ops.name, BACKWARD_NODE)[nodes].all():
        return []
    order = np.argsort(ops.start_ns[nodes], kind="stable")
    nodes, forward = nodes[order], forward[order]
    at = ops.start_ns[nodes]
    known = np.flatnonzero(forward >= 0)
    known = known[np.argsort(ops.thread[nodes[known]], kind="stable")]
    of_thread, of_forward = ops.thread[nodes[known]], ops.start_ns[forward[known]]
    is_later = (np.diff(of_forward) > 0) & (np.diff(of_thread) == 0)
    begins = np.sort(at[known[1:][is_later]])
    starts = np.sort(ops.start_ns[distinct(forward[known])])
    of_pass = sum(np.searchsorted(*one) for one in ((starts, at), (ends, at), (begins, at, "right")))
    return np.split(nodes, np.flatnonzero(np.diff(of_pass)) + 1)


def is_cleared(trace: Trace) -> bool:
    """Whether each optimizer that steps drops its gradients by torch's own `zero_grad`: what is set to zero is added to."""
    spans, ops = trace.spans, trace.ops
    found = {what: {trace.name(code) for code in method_codes(trace, what)} for what in ("step", "zero_grad")}
    classes = {what: {name.split("#", 1)[1].partition(".")[0] for name in names} for what, names in found.items()}
    clearing = spans.take(np.flatnonzero(is_one_of(spans.name, method_codes(trace, "zero_grad"))))
    zeroing = np.flatnonzero(trace.named(ops.name, _ZERO))
    is_inside = len(clearing) > 0 and (enclosing_op(clearing, ops.thread[zeroing], ops.start_ns[zeroing]) >= 0).any()
    return bool(classes["step"]) and classes["step"] <= classes["zero_grad"] and not is_inside


def method_codes(trace: Trace, what: str) -> set[int]:
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
            goes_on = bool((~adds[at[at > part[-1]]]).any()) and makes_both(trace, nodes[part])
            out.append((nodes[part].astype(np.int64), goes_on))
    return out


def makes_both(trace: Trace, nodes: I64) -> bool:
    """Whether the last node with a product makes the gradient of its input as well, or may."""
    ops = trace.ops
    for node in nodes[::-1].tolist():
        low, high = np.searchsorted(ops.start_ns, (ops.start_ns[node], ops.end_ns[node]))
        inner = [trace.name(int(ops.name[row])) for row in range(low, high) if ops.thread[row] == ops.thread[node]]
        products = [name for name in inner if name.startswith("aten::") and family_of(name) in MODEL]
        if products:
            return len(products) > 1 or _BOTH.search(products[0]) is not None
    return True


def optimizer_loops(facts: Facts) -> Ranges:
    """Steps of an optimizer with many short operators that are no part of a foreach or fused one.

    An optimizer may work through some of its parameters one by one: what it does for all the others at once is left out.
    """
    trace, spans, ops = facts.trace, facts.trace.spans, facts.trace.ops
    steps = spans.take(np.flatnonzero(spans.kind == SpanKind.OPTIMIZER))
    found = [Ranges.of(steps, np.empty(0, np.int64), trace.window_ns)]
    around = enclosing_op(steps, ops.thread, ops.start_ns)
    whole = ops.take(np.flatnonzero((around >= 0) & trace.named(ops.name, _AT_ONCE)))
    loose = (around >= 0) & (enclosing_op(whole, ops.thread, ops.start_ns) < 0)
    tops = outermost(ops)  # an operator of a sparse tensor calls twenty
    counts = np.bincount(around[tops[loose[tops]]], minlength=len(steps))
    many = counts >= OPTIMIZER_LOOP.limit("operators")
    many[distinct(around[loose & trace.named(ops.name, _CLOSURE)])] = False
    for row in np.flatnonzero(many).tolist():
        at, end = int(steps.start_ns[row]), int(steps.end_ns[row])
        mine = (whole.thread == steps.thread[row]) & (whole.start_ns >= at) & (whole.start_ns < end)
        parts = Intervals.of(whole.start_ns[mine], whole.end_ns[mine]).gaps(at, end)
        if (parts - facts.host.blocked).total_ns <= OPTIMIZER_LOOP.limit("each") * counts[row]:
            rows = np.full(len(parts), row)
            found.append(Ranges.of(steps, rows, trace.window_ns, start_ns=parts.start_ns, end_ns=parts.end_ns))
    return Ranges.joined(*found)


def _classes(facts: Facts, loops: Ranges) -> set[str]:
    names = {facts.trace.name(code) for code in distinct_codes(loops.name).tolist()}
    return {match[1] for name in names if (match := _CLASS.match(name))}


def fix_of_loops(facts: Facts, loops: Ranges) -> str:
    """What there is against these loops: not every optimizer has a fused or a foreach form."""
    classes = _classes(facts, loops)
    others = sorted(classes - _FUSED.keys() - _FOREACH)
    if not others:
        return OPTIMIZER_LOOP.fixes[0] if classes <= _FUSED.keys() else "foreach=True"
    own = "; ".join(f"{name}: fused=True" for name in sorted(classes & _FUSED.keys()))
    return (
        f"{' and '.join(others)} {'has' if len(others) == 1 else 'have'} no fused or foreach form in torch: "
        + next((fix for name, fix in _WITHOUT_FORM.items() if name in others), _OWN_LOOP)
        + (f"; {own}" if own else "")
    )


def proof_of_loops(facts: Facts, loops: Ranges) -> str:
    """How to prove it where neither form is there; "" as the kind says."""
    instead = "Call optimizer.step() in every second step only, for some steps: these become shorter by the time shown."
    return "" if _classes(facts, loops) <= _FUSED.keys() | _FOREACH else instead


def kept_of_loops(facts: Facts, loops: Ranges) -> float:
    """The share of these loops' time (0-1) that fused=True, or foreach=True, leaves on a CPU; on a GPU nothing."""
    if facts.cpu is None:
        return 0.0
    classes = _classes(facts, loops)
    known = [_FUSED.get(one, _FOREACH_KEEPS if one in _FOREACH else 0.0) for one in classes]
    return min(known, default=0.0)


def parameter_loops(facts: Facts) -> Ranges | None:
    """Loops of Python over the parameters outside of the optimizer: many short operators, each on one of their shapes.

    None where shapes are not known.
    """
    trace, found = facts.trace, facts.once(unread_of_step)
    if found is None or not trace.signatures:
        return None
    shapes = _gradient_shapes(trace)
    if not shapes:
        return None
    told = enumerate(trace.signatures)
    codes = [code for code, one in told if one is not None and one.dims[:1] and one.dims[0] in shapes]
    on_one = is_one_of(trace.ops.signature, codes) & ~_calls_backward(facts)
    is_short = trace.ops.end_ns - trace.ops.start_ns <= PARAMETER_LOOP.limit("each")
    is_model = multiplies(trace)
    kept = []
    # a batch may have the shape of a weight: what multiplies matrices is a model that runs
    for run in (part for whole in found.to_the_end for part in np.split(whole, np.flatnonzero(is_model[whole]))):
        mine = np.flatnonzero(on_one[run])
        if mine.size < PARAMETER_LOOP.limit("operators"):
            continue
        loop = run[mine[0] : mine[-1] + 1]
        used = distinct_codes(trace.ops.signature[run[mine]]).tolist()
        n_shapes = len({trace.signatures[code].dims[0] for code in used})
        if _LEAST_OF * loop.size <= mine.size and 2 * is_short[loop].sum() > loop.size and n_shapes > 1:
            kept.append(loop)
    return spanning(facts, kept)


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
    ops = trace.ops
    mine = trace.named(ops.name, "torch::autograd::AccumulateGrad")
    told = (trace.signatures[code] for code in distinct_codes(ops.signature[mine]).tolist())
    return {one.dims[0] for one in told if one is not None and one.dims and one.dims[0]}
