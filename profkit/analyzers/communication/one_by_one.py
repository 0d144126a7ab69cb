"""Gradients that a script reduces itself, one tensor after the other, each with the latency of a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import recapture
from profkit.findings.communication import ONE_BY_ONE
from profkit.model.arrays import I64, Bool, is_one_of, middle
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.collectives import is_request
from profkit.timeline.gradients import bucket_requests
from profkit.timeline.host import enclosing_op
from profkit.units import format_fraction, format_ns

_SURE: Final = 0.8
_NODE: Final = later(r"^autograd::engine::evaluate_function")
_KINDS: Final = later(r"^c10d::(allreduce_|broadcast_|reduce_|send|recv_)$")
_FLOOR: Final = 10
"""Percentile of the times that is taken for what any of them needs. Chosen: of biases, which have next to no bytes."""


class OneByOne(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives that the script asks for between two backward passes, in runs of many."""

    scope: Scope
    n_runs: int
    n_each: int
    """Collectives of a run, the median."""
    usual_ns: int
    spent_ns: int
    """From the first to the last of each run, all runs."""
    cost_ns: int
    """What one collective for all of a run would spare: what each needs at least, and what lies between two."""
    rows: NDArray[np.intp]


def measure(facts: Facts) -> OneByOne | Skipped:
    """Find the runs of collectives outside of autograd, with what each takes."""
    trace, ops = facts.trace, facts.trace.ops
    asked = np.flatnonzero(is_request(trace, ops.name))
    asked = asked[np.argsort(ops.start_ns[asked], kind="stable")]
    found = None if asked.size == 0 or bucket_requests(trace).size else _operations(facts, asked)
    if found is None:
        return Skipped(
            analyzer="one_by_one",
            reason="no collectives that the script asks for itself, each with what it takes, are in this trace",
            how_to_get="profile a job whose script reduces gradients itself",
        )
    starts, stops = found
    nodes = np.flatnonzero(_named(trace, _NODE.pattern))
    low, high = trace.window_ns
    outside = enclosing_op(ops.take(nodes), ops.thread[asked], ops.start_ns[asked]) < 0
    chosen = outside & _named(trace, _KINDS.pattern)[asked] & (ops.start_ns[asked] >= low) & (stops <= high)
    # Between two operators of backward passes lies one run.
    run = np.searchsorted(np.sort(ops.start_ns[nodes]), ops.start_ns[asked[chosen]], "right")
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
        cost_ns=between + round(floor * int((n_of - 1).sum())),
        rows=rows,
    )


def _named(trace: Trace, pattern: str) -> Bool:
    told = later(pattern)
    return is_one_of(trace.ops.name, [code for code, text in enumerate(trace.strings) if told.search(text)])


def _operations(facts: Facts, asked: NDArray[np.intp]) -> tuple[I64, I64] | None:
    """Start and end of what each request did; None unless each has one kernel, or one range of gloo's threads."""
    trace, ops = facts.trace, facts.trace.ops
    if facts.main_device is None:
        spans = trace.spans
        ranges = np.flatnonzero(spans.kind == SpanKind.COMM)
        ranges = ranges[np.argsort(spans.start_ns[ranges], kind="stable")]
        is_told = ranges.size == asked.size and bool((spans.start_ns[ranges] >= ops.start_ns[asked]).all())
        return (spans.start_ns[ranges], spans.end_ns[ranges]) if is_told else None
    gpu, calls = trace.gpu, trace.calls
    _, rows = facts.communication
    rows = rows[gpu.launch_row[rows] >= 0]
    launch = gpu.launch_row[rows]
    of = enclosing_op(ops.take(np.sort(asked)), calls.thread[launch], calls.start_ns[launch])
    rows, of = rows[of >= 0], of[of >= 0]
    order = np.argsort(of, kind="stable")
    if not np.array_equal(of[order], np.arange(asked.size)):
        return None
    return gpu.start_ns[rows[order]], gpu.end_ns[rows[order]]


def judge(result: OneByOne) -> tuple[Finding, ...]:
    """`comm.one_by_one`, where runs come again and again and much of them is latency and the way between."""
    fraction = result.scope.fraction(result.cost_ns)
    few = result.n_runs < ONE_BY_ONE.limit("runs") or result.cost_ns < ONE_BY_ONE.limit("latency") * result.spent_ns
    if few or fraction < ONE_BY_ONE.limit("window"):
        return ()
    scope = result.scope
    spared = f"{format_ns(scope.per_step(result.cost_ns))} {scope.each}"
    return (
        ONE_BY_ONE.found(
            title=f"{result.n_each} collectives one after another, one for each tensor",
            fraction=fraction,
            confidence=_SURE,
            recoverable_ns=scope.per_step(result.cost_ns),
            evidence=(
                Evidence(
                    statement=f"the script asks for {result.n_each} collectives in a row, {format_ns(result.usual_ns)} each"
                    f" (median): one for all would spare {spared} ({format_fraction(fraction)} of the window)",
                    metric="one_by_one.cost_ns",
                    value=float(result.cost_ns),
                    unit="ns",
                    expected=f"< {format_fraction(ONE_BY_ONE.limit('window'))} of the window",
                ),
            ),
            fix=ONE_BY_ONE.fixes[0],
            next_tools=(
                recapture(
                    scope,
                    "change that, then record again: how much shorter is the step?",
                    "a few large collectives in each step; profkit compare OLD NEW says what it gave",
                ),
            ),
        ),
    )


def _rows(facts: Facts, result: OneByOne) -> Mapping[str, Rows]:
    rows = result.rows
    share = np.full(rows.size, result.cost_ns // max(rows.size, 1), np.int64)
    return {ONE_BY_ONE.id: Rows.of_ops(facts.trace, rows, share)}


def present(result: OneByOne) -> Section:
    """Show the runs."""
    return Section(
        analyzer="one_by_one",
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
