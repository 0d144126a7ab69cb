"""Gradients that are reduced after each micro-batch, although the optimizer steps once for several."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import after_change
from profkit.findings.communication import MICRO_REDUCED
from profkit.findings.parts import COMM
from profkit.model.arrays import I64
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.intervals import Intervals
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.gradients import DDP_PASS, NODE, bucket_requests
from profkit.timeline.host import enclosing_op
from profkit.units import format_fraction

_SURE: Final = 0.9
_STEP: Final = later(r"^Optimizer\.step#")
_ADDS: Final = later(r"^aten::add_$")
_REDUCES: Final = later(r"^\w+:(?:all_?reduce|_?reduce_?scatter)")
_SCATTER: Final = later(r"^c10d::_?reduce_scatter")


class _Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a library reduces gradients: what begins a pass, inside what gradients are added up, and its own work."""

    begins: re.Pattern[str]
    adds_in: re.Pattern[str]
    spares: re.Pattern[str]
    """Operators that a pass has for the sake of its collectives alone."""
    fix: str


_DDP: Final = _Way(
    begins=DDP_PASS,
    adds_in=later(rf"^{NODE}$"),
    spares=later(r"reducer::copy_bucket_to_grad$"),
    fix="use `with model.no_sync():` around the forward and the backward pass of all but the last micro-batch",
)
_FSDP: Final = _Way(
    begins=later(r"^FSDP::root_pre_forward$"),
    adds_in=later(r"^FSDP::post_backward_reduce"),
    spares=later(r"^FSDP::post_backward_reduce"),
    fix="call model.set_requires_gradient_sync(i == n - 1) before each micro-batch: gradients stay unsharded until the"
    " last one, which takes memory for all of them",
)


class Accumulation(msgspec.Struct, frozen=True, kw_only=True):
    """The backward passes of updates that reduce the same gradients several times."""

    scope: Scope
    n_passes: int
    """Backward passes of each update, all of which reduce; 0 where that is not so of all updates."""
    n_updates: int
    cost_ns: int
    """What all but the last pass of each update spend on it: exposed, and on a CPU at all."""
    fix: str
    rows: NDArray[np.intp]
    """The requests of all but the last passes."""


def measure(facts: Facts) -> Accumulation | Skipped:
    """Find the updates (from one step of the optimizer to the next), their passes, and what these reduce."""
    trace = facts.trace
    scatters = np.flatnonzero(trace.named(trace.ops.name, _SCATTER))
    for way, requests in ((_DDP, bucket_requests(trace)), (_FSDP, scatters)):
        found = _found(facts, way, requests) if requests.size else None
        if found is not None:
            return found
    return Skipped(
        reason="no update that reduces gradients, between two marked steps of an optimizer, is in this trace",
        how_to_get="profile several steps of a job that trains with DistributedDataParallel or FSDP2",
    )


def _starts(trace: Trace, pattern: re.Pattern[str]) -> I64:
    """When the operators and ranges of a name begin, in order."""
    tables = (trace.ops, trace.spans)
    found: I64 = np.sort(np.concatenate([table.start_ns[trace.named(table.name, pattern)] for table in tables]))
    return found


def _found(facts: Facts, way: _Way, requests: NDArray[np.intp]) -> Accumulation | None:
    trace, ops = facts.trace, facts.trace.ops
    low, high = trace.window_ns
    steps = _starts(trace, _STEP)
    begins = _starts(trace, way.begins)
    asked = ops.start_ns[requests]
    update = np.searchsorted(steps, asked, "right")
    # The first may have begun before the recording, and the last goes on after it.
    whole = (update > 0) & (update < steps.size) & (asked >= low) & (asked < high)
    requests, asked, update = requests[whole], asked[whole], update[whole]
    if requests.size == 0 or begins.size == 0:
        return None
    passes = np.searchsorted(begins, asked, "right")
    keys, n_requests = np.unique(np.stack((update, passes)), axis=1, return_counts=True)
    of_update, n_of = np.unique(keys[0], return_counts=True)
    is_last = np.append(keys[0][1:] != keys[0][:-1], True)
    is_first = np.append(True, keys[0][1:] != keys[0][:-1])
    adds = _adds(trace, way, begins)[np.minimum(keys[1], begins.size)]
    is_alike = bool((n_of == n_of[0]).all() and (n_requests == n_requests[0]).all())
    is_added = bool((adds[~is_first] > 0).all() and 2 * adds[is_first].max() <= adds[~is_first].min(initial=0))
    n_passes = int(n_of[0]) if is_alike and n_of[0] > 1 and is_added else 0
    extra = ~is_last[np.searchsorted(keys[1], passes)] if n_passes else np.zeros(requests.size, np.bool_)
    return Accumulation(
        scope=scope_of(facts),
        n_passes=n_passes,
        n_updates=int(of_update.size),
        cost_ns=_cost_ns(facts, way, requests[extra], begins),
        fix=way.fix,
        rows=requests[extra],
    )


def _adds(trace: Trace, way: _Way, begins: I64) -> I64:
    """By pass (0: before the first), how many gradients are added to what an earlier pass has left."""
    ops = trace.ops
    adds = np.flatnonzero(trace.named(ops.name, _ADDS))
    inside = np.zeros(adds.size, np.bool_)
    for table in (ops, trace.spans):
        around = table.take(np.flatnonzero(trace.named(table.name, way.adds_in)))
        during = Intervals.of(around.start_ns, around.end_ns)
        inside |= during.contains(ops.start_ns[adds])
    place = np.searchsorted(begins, ops.start_ns[adds[inside]], "right")
    return np.bincount(place, minlength=begins.size + 1).astype(np.int64)


def _cost_ns(facts: Facts, way: _Way, extra: NDArray[np.intp], begins: I64) -> int:
    """What the passes of these requests spend on their collectives, in the window.

    On a GPU what no compute hides and the host had asked for; on a CPU all of it, as gloo's threads copy and add on the
    cores that compute, with what asks for it and copies gradients back.
    """
    trace = facts.trace
    ops, edges = trace.ops, np.append(_starts(trace, _STEP), trace.window_ns[1])
    if extra.size == 0:
        return 0
    if facts.main_device is not None:
        device, rows = facts.communication
        rows = rows[trace.gpu.launch_row[rows] >= 0]
        launch = trace.gpu.launch_row[rows]
        is_of = enclosing_op(ops.take(np.sort(extra)), trace.calls.thread[launch], trace.calls.start_ns[launch]) >= 0
        theirs = Intervals.of(device.start_ns[rows[is_of]], device.end_ns[rows[is_of]])
        spent = theirs & (facts.parts["comm_exposed"] - facts.main_device.unasked)
    else:
        begin = np.unique(begins[np.searchsorted(begins, ops.start_ns[extra], "right") - 1])
        following = np.append(begins, trace.window_ns[1])[np.searchsorted(begins, begin, "right")]
        passes = Intervals.of(begin, np.minimum(following, edges[np.searchsorted(edges[:-1], begin, "right")]))
        spent = Intervals.of_rows(ops, extra)
        for table, pattern in ((trace.spans, _REDUCES), (trace.spans, way.spares), (ops, way.spares)):
            own = np.flatnonzero(trace.named(table.name, pattern))
            spent = spent | Intervals.of_rows(table, own)
        spent = spent & passes
    low, high = trace.window_ns
    whole = max(int(edges[-2] - edges[0]), 1)  # these updates, of all that the window holds
    return round(spent.total_ns * max((high - low) / whole, 1.0))


def judge(result: Accumulation) -> tuple[Finding, ...]:
    """`comm.accumulation`, where every update reduces the same gradients several times."""
    fraction = result.scope.fraction(result.cost_ns)
    if (
        result.n_passes < 2
        or result.n_updates < MICRO_REDUCED.limit("updates")
        or fraction < MICRO_REDUCED.limit("window")
    ):
        return ()
    scope, n = result.scope, result.n_passes
    return (
        MICRO_REDUCED.found(
            title=f"gradients are reduced {n} times for each update: after each of {n} micro-batches",
            fraction=fraction,
            confidence=_SURE,
            recoverable_ns=scope.per_step(result.cost_ns),
            evidence=(
                Evidence.time(
                    "accumulation.cost_ns",
                    result.cost_ns,
                    f"the collectives of all but the last of {n} backward passes hold the step up for"
                    f" {scope.time(result.cost_ns)} ({scope.share(result.cost_ns, *COMM.budget)} of the window)",
                    expected=f"< {format_fraction(MICRO_REDUCED.limit('window'))} of the window",
                ),
                Evidence.count(
                    "accumulation.n_passes",
                    n,
                    f"in each of {result.n_updates} updates the passes after the first add to the gradients"
                    " of the pass before and reduce them again",
                ),
            ),
            fix=result.fix,
            next_tools=(after_change(scope, "one pass with collectives in each step"),),
        ),
    )


def _rows(facts: Facts, result: Accumulation) -> Mapping[str, Rows]:
    """The requests of all but the last passes."""
    rows = result.rows
    share = np.full(rows.size, result.cost_ns // max(rows.size, 1), np.int64)
    return {MICRO_REDUCED.id: Rows.of_ops(facts.trace, rows, share)}


def present(result: Accumulation) -> Section:
    """Show the passes of an update."""
    return Section(
        title="backward passes that reduce gradients, in each update",
        values={"n_passes": result.n_passes, "n_updates": result.n_updates, "cost_ns": result.cost_ns},
    )


ANALYZER = Analyzer(
    name="accumulation",
    question="are gradients reduced more than once for each update?",
    needs="collectives, marked steps of the optimizer, and the operators of the backward pass",
    measure=measure,
    judge=judge,
    rows=_rows,
    present=present,
)
