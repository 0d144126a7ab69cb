"""What a script asks for itself: gradients, one tensor after the other, or what it sends beside those that DDP reduces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import after_change
from profkit.findings.communication import ASKED, ASKED_FIXES, ONE_BY_ONE
from profkit.findings.parts import COMM
from profkit.model.arrays import I64, distinct, middle
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.trace import SpanKind
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.code.phases import backward_of
from profkit.timeline.collectives import is_request
from profkit.timeline.gradients import bucket_requests, ddp_passes, kernel_of_each
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, in_backward, nesting, outermost, scopes
from profkit.timeline.steps import edges, steps_in_window
from profkit.units import format_count, format_fraction, format_ns

_SURE: Final = 0.8
_KINDS: Final = later(r"^c10d::(allreduce_|broadcast_|reduce_|send|recv_)$")
_OTHER_KINDS: Final = later(r"^c10d::(all_?reduce|_?all_?gather|broadcast|gather|scatter|reduce_$)")
_GATHERS: Final = later(r"^c10d::(allgather_|gather_)$")
"""Of lists of tensors: FSDP gathers its weights by `_allgather_base_`."""
_JOINS: Final = later(r"^aten::(?:cat|concat|concatenate|stack|vstack|hstack)$")
_FLOOR: Final = 10
"""Percentile of the times that is taken for what any of them needs. Chosen: of biases, which have next to no bytes."""


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """Operators that work on what was gathered: behind it, up to what a backward pass, a step or the next request begins."""

    ns: int
    spared_ns: int
    """Of it, where each rank works on its own rows alone: what puts those of all side by side, and the others' part."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives that the script asks for: beside those of DistributedDataParallel, outside of its passes, or its gathers."""

    kind: str
    """The one with most of the time: "all-reduce", as `ASKED_FIXES` has it."""
    n: int
    cost_ns: int
    """What they take in each step without compute, by the median of each."""
    rows: NDArray[np.intp]
    taken_ns: I64
    """Of each row."""
    is_beside_ddp: bool
    behind: Behind | None = None


class OneByOne(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives that the script asks for between two backward passes, in runs of many."""

    scope: Scope
    n_runs: int = 0
    n_each: int = 0
    """Collectives of a run, the median."""
    usual_ns: int = 0
    spent_ns: int = 0
    """From the first to the last of each run, all runs."""
    cost_ns: int = 0
    """What one collective for all of a run would spare: what each needs at least, and what lies between two."""
    rows: NDArray[np.intp] = np.empty(0, np.intp)
    asked: Asked | None = None
    """In a job of DistributedDataParallel, whose runs are not looked for; in another its gathers alone."""


def measure(facts: Facts) -> OneByOne | Skipped:
    """Find the runs of collectives outside of autograd, with what each takes."""
    trace, ops = facts.trace, facts.trace.ops
    asked = np.flatnonzero(is_request(trace, ops.name))
    found = _operations(facts, asked) if asked.size else None
    if found is None:
        return Skipped(
            reason="no collectives that the script asks for itself, each with what it takes, are in this trace",
            how_to_get="profile a job whose script reduces gradients itself",
        )
    starts, stops = found
    if bucket_requests(trace).size:
        return OneByOne(scope=scope_of(facts), asked=_asked(facts, asked, starts, stops, is_beside_ddp=True))
    gathers = _asked(facts, asked, starts, stops, is_beside_ddp=False)
    nodes = np.flatnonzero(trace.named(ops.name, BACKWARD_NODE))
    low, high = trace.window_ns
    chosen = trace.named(ops.name[asked], _KINDS) & ~in_backward(trace, asked)
    chosen &= (ops.start_ns[asked] >= low) & (stops <= high)
    # Between two operators of forward or backward passes lies one run: a stage sends each micro-batch behind its own.
    forward = backward_of(trace).forward
    passes = np.sort(ops.start_ns[np.concatenate((nodes, forward[forward >= 0]))])
    run = np.searchsorted(passes, ops.start_ns[asked[chosen]], "right")
    rows, starts, stops = asked[chosen], starts[chosen], stops[chosen]
    _, place, n_of = np.unique(run, return_inverse=True, return_counts=True)
    is_long = (n_of >= ONE_BY_ONE.limit("many"))[place.reshape(-1)] & (run > 0)
    rows, starts, stops, run = rows[is_long], starts[is_long], stops[is_long], run[is_long]
    _, first, n_of = np.unique(run, return_index=True, return_counts=True)
    last = first + n_of - 1
    lasts = stops - starts
    floor = float(np.percentile(lasts, _FLOOR)) if lasts.size else 0.0
    spent = int((stops[last] - starts[first]).sum())
    between = max(spent - int(lasts.sum()), 0)
    return OneByOne(
        scope=scope_of(facts),
        n_runs=int(first.size),
        n_each=int(np.median(n_of)) if n_of.size else 0,
        usual_ns=int(middle(lasts)) if lasts.size else 0,
        spent_ns=spent,
        cost_ns=min(between + round(floor * int((n_of - 1).sum())), spent),
        rows=rows,
        asked=gathers,
    )


def _asked(facts: Facts, asked: NDArray[np.intp], starts: I64, stops: I64, *, is_beside_ddp: bool) -> Asked | None:
    """Those outside of autograd and of the passes of DDP, which sends the buffers of its model in them."""
    trace, ops = facts.trace, facts.trace.ops
    low, high = trace.window_ns
    mine = trace.named(ops.name[asked], _OTHER_KINDS if is_beside_ddp else _GATHERS) & ~in_backward(trace, asked)
    mine &= enclosing_op(ddp_passes(trace), ops.thread[asked], ops.start_ns[asked]) < 0
    mine &= (ops.start_ns[asked] >= low) & (stops <= high)
    rows, starts, stops = asked[mine], starts[mine], stops[mine]
    begins, _ = edges(steps_in_window(trace))
    if rows.size == 0 or begins.size == 0:
        return None
    if facts.main_device is not None:
        taken = (facts.parts["comm_exposed"] - facts.main_device.unasked).covered_ns(starts, stops)
    else:  # on a CPU from the call on: the script waits for what gloo's threads copy as well
        begun = ops.start_ns[rows]
        taken = stops - begun - facts.busy.compute.covered_ns(begun, stops)
    step = np.searchsorted(begins, ops.start_ns[rows], "right")
    place = np.arange(rows.size) - np.searchsorted(step, step)  # in its step
    needed = [np.median(taken[place == one]) * (place == one).sum() for one in distinct(place)]
    names, which = np.unique(ops.name[rows], return_inverse=True)
    name = trace.name(int(names[np.bincount(which.reshape(-1), weights=taken).argmax()])).replace("_", "")
    kind = next(one for one in ASKED_FIXES if one.replace("-", "") in name)
    behind = _behind(facts, rows) if "gather" in kind and facts.main_device is None else None
    return Asked(
        kind=kind,
        n=int(rows.size),
        cost_ns=round(float(sum(needed))),
        rows=rows,
        taken_ns=taken,
        is_beside_ddp=is_beside_ddp,
        behind=behind,
    )


def _behind(facts: Facts, asked: NDArray[np.intp]) -> Behind | None:
    """What works on what was gathered, where no gradient goes through it; None in a job of unknown size."""
    trace, ops, spans = facts.trace, facts.trace.ops, facts.trace.spans
    n_ranks = trace.meta.world_size or 0
    if n_ranks < 2:
        return None
    tops = np.flatnonzero(~scopes(trace, ops, nesting(ops)))
    tops = tops[outermost(ops.take(tops))]
    backward = backward_of(trace)
    read = np.sort(ops.start_ns[backward.forward[backward.forward >= 0]])
    n_read = np.searchsorted(read, ops.end_ns[tops]) - np.searchsorted(read, ops.start_ns[tops])
    is_end = (n_read > 0) | (backward.at(ops.thread[tops], ops.start_ns[tops]) >= 0)
    is_end |= is_request(trace, ops.name[tops])
    others = np.isin(spans.kind, (SpanKind.OPTIMIZER, SpanKind.LOADER))
    begins, _ = edges(steps_in_window(trace))
    found = []
    for thread in distinct(ops.thread[asked]).tolist():
        mine = tops[ops.thread[tops] == thread]
        stops = ops.start_ns[tops[is_end & (ops.thread[tops] == thread)]]
        stops = np.sort(np.concatenate((stops, spans.start_ns[others & (spans.thread == thread)], begins)))
        requests = asked[ops.thread[asked] == thread]
        first = np.searchsorted(ops.start_ns[mine], ops.end_ns[requests])
        nexts = np.searchsorted(stops, ops.end_ns[requests])
        until = np.append(stops, trace.window_ns[1])[nexts]
        last = np.searchsorted(ops.start_ns[mine], until)
        found += [mine[low:high] for low, high in zip(first, last, strict=True)]
    rows = np.concatenate(found)
    lasts = ops.end_ns[rows] - ops.start_ns[rows]
    joined = int(lasts[trace.named(ops.name[rows], _JOINS)].sum())
    whole = int(lasts.sum())
    return Behind(ns=whole, spared_ns=joined + round((whole - joined) * (1 - 1 / n_ranks)))


def _operations(facts: Facts, asked: NDArray[np.intp]) -> tuple[I64, I64] | None:
    """Start and end of what each request did; None unless each has one kernel, or one range of gloo's threads."""
    trace, ops = facts.trace, facts.trace.ops
    if facts.main_device is None:
        spans = trace.spans
        ranges = np.flatnonzero(spans.kind == SpanKind.COMM)
        is_told = ranges.size == asked.size and bool((spans.start_ns[ranges] >= ops.start_ns[asked]).all())
        return (spans.start_ns[ranges], spans.end_ns[ranges]) if is_told else None
    rows = kernel_of_each(trace, facts.communication[1], asked)
    return None if rows is None else (trace.gpu.start_ns[rows], trace.gpu.end_ns[rows])


def judge(result: OneByOne) -> tuple[Finding, ...]:
    """`comm.one_by_one` for runs of which much is latency, `comm.asked` for what comes beside DDP."""
    return (*_of_loop(result), *_of_script(result))


def _of_script(result: OneByOne) -> Iterator[Finding]:
    asked, scope = result.asked, result.scope
    if asked is None or asked.n < scope.n_steps:
        return
    fraction, behind = scope.fraction(asked.cost_ns), asked.behind
    spared_ns = asked.cost_ns + (behind.spared_ns if behind else 0)
    if scope.fraction(spared_ns) < ASKED.limit("window"):
        return
    each = format_count(round(asked.n / max(scope.n_steps, 1), 1))
    beside = ", beside DDP's" if asked.is_beside_ddp else ""
    yield ASKED.found(
        title=f"the script itself asks for {each} collective{'' if each == '1' else 's'} a step, mostly {asked.kind}{beside}",
        fraction=fraction,
        confidence=_SURE,
        recoverable_ns=scope.per_step(spared_ns),
        most_recoverable_ns=scope.per_step(asked.cost_ns + behind.ns) if behind else None,
        evidence=(
            Evidence.time(
                "asked.cost_ns",
                asked.cost_ns,
                f"they hold the step up for {scope.time(asked.cost_ns)} ({scope.share(asked.cost_ns, *COMM.budget)} of the window)",
                expected=f"< {format_fraction(ASKED.limit('window'))} of the window, with what a fix spares behind them",
            ),
            *_of_gathered(scope, behind),
        ),
        fix=ASKED_FIXES[asked.kind],
        mostly=asked.kind,
        next_tools=(after_change(scope, "fewer collectives in each step"),),
    )


def _of_gathered(scope: Scope, behind: Behind | None) -> Iterator[Evidence]:
    if behind is None or not behind.ns:
        return
    spared = format_ns(scope.per_step(behind.spared_ns))
    yield Evidence.time(
        "asked.behind_ns",
        behind.ns,
        f"operators on what was gathered take another {scope.time(behind.ns)}; where"
        f" each rank works on its own rows, {spared} of it go as well",
    )


def _of_loop(result: OneByOne) -> Iterator[Finding]:
    fraction = result.scope.fraction(result.cost_ns)
    few = result.n_runs < ONE_BY_ONE.limit("runs") or result.cost_ns < ONE_BY_ONE.limit("latency") * result.spent_ns
    if few or fraction < ONE_BY_ONE.limit("window"):
        return
    scope = result.scope
    spared = scope.time(result.cost_ns)
    yield ONE_BY_ONE.found(
        title=f"{result.n_each} collectives one after another, one for each tensor",
        fraction=fraction,
        confidence=_SURE,
        recoverable_ns=scope.per_step(result.cost_ns),
        evidence=(
            Evidence.time(
                "one_by_one.cost_ns",
                result.cost_ns,
                f"the script asks for {result.n_each} collectives in a row, {format_ns(result.usual_ns)} each"
                f" (median): one for all would spare {spared} ({scope.share(result.cost_ns, *COMM.budget)} of the window)",
                expected=f"< {format_fraction(ONE_BY_ONE.limit('window'))} of the window",
            ),
        ),
        fix=ONE_BY_ONE.fixes[0],
        next_tools=(after_change(scope, "a few large collectives in each step"),),
    )


def _rows(facts: Facts, result: OneByOne) -> Mapping[str, Rows]:
    each = np.full(result.rows.size, result.cost_ns // max(result.rows.size, 1), np.int64)
    rows = {ONE_BY_ONE.id: Rows.of_ops(facts.trace, result.rows, each)}
    if result.asked is not None:
        rows[ASKED.id] = Rows.of_ops(facts.trace, result.asked.rows, result.asked.taken_ns)
    return rows


def present(result: OneByOne) -> Section:
    """Show the runs."""
    return Section(
        title="collectives that the script asks for one after another",
        values={
            "n_runs": result.n_runs,
            "n_each": result.n_each,
            "spent_ns": result.spent_ns,
            "cost_ns": result.cost_ns,
        },
    )


ANALYZER = Analyzer(
    name="one_by_one",
    question="does the script reduce many tensors one after another?",
    needs="collectives, with the operators that ask for them",
    measure=measure,
    judge=judge,
    rows=_rows,
    present=present,
)
