"""DDP's gradient buckets as one rank sees them: many small ones, or one whose all-reduce begins when backward is over."""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import recapture
from profkit.findings.communication import BUCKETS, DEFAULT_BUCKET_BYTES, EXPOSED
from profkit.model.arrays import I64, distinct, middle
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.trace import SpanKind, Trace
from profkit.timeline import Facts
from profkit.timeline.collectives import UNKNOWN, bytes_of
from profkit.timeline.gradients import NODE, REQUEST, argument_bytes, bucket_requests, kernel_of_each, named
from profkit.timeline.steps import edges, steps_in_window
from profkit.units import format_bytes, format_fraction, format_ns

_CONFIDENCE: Final = 0.6
"""One rank alone cannot separate transfer from waiting for a peer. Chosen."""
_RANGE: Final = re.compile(r"^\w+:all_reduce$")
_PIECES: Final = 4
"""Into so many a bucket below DDP's default size can be split and each still be worth a message. Chosen."""


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """The all-reduces of DDP's buckets in the window, in their order, shape (n,) each."""

    scope: Scope
    n_steps: int
    n_bytes: I64
    length_ns: I64
    exposed_ns: I64
    n_tensors: I64
    """Gradients that became ready since the bucket before."""
    is_last: NDArray[np.bool_]
    """Of its step."""
    of_step: NDArray[np.float64]
    """Its share (0-1) of the step's bytes."""
    spare_ns: int
    """Compute without communication: no more than that could be hidden under it."""

    @property
    def full_rate(self) -> float:
        """What the large ones reach, bytes per ns: the median of those with half of the largest one's bytes or more."""
        large = self.n_bytes * 2 >= self.n_bytes.max()
        return middle(self.n_bytes[large] / self.length_ns[large])


def measure(facts: Facts) -> Buckets | Skipped:
    """Find the all-reduces that DDP's reducer asks for, and what each moves."""
    trace = facts.trace
    steps = steps_in_window(trace)
    requests = bucket_requests(trace)
    if requests.size == 0 or not steps:
        return Skipped(
            reason="no gradient buckets of DistributedDataParallel in this trace",
            how_to_get="profile a job that uses it, with marked steps",
        )
    begins, ends = edges(steps)
    place = np.searchsorted(begins, trace.ops.start_ns[requests], "right") - 1
    inside = (place >= 0) & (trace.ops.start_ns[requests] < ends[np.maximum(place, 0)])
    found = _operations(facts, requests) if inside.any() else None
    if found is None:
        return Skipped(
            reason="the trace does not say what each gradient bucket moves",
            how_to_get="record with a torch whose kernels carry their collective's arguments, on a CPU with --shapes",
        )
    starts, stops, n_bytes = (column[inside] for column in found)
    step = place[inside]
    total = np.bincount(step, weights=n_bytes)
    compute, comm = facts.busy.compute, facts.busy.comm
    return Buckets(
        scope=scope_of(facts),
        n_steps=int(distinct(step).size),
        n_bytes=n_bytes,
        length_ns=np.maximum(stops - starts, 1),
        exposed_ns=facts.parts["comm_exposed"].covered_ns(starts, stops),
        n_tensors=_tensors(trace, requests)[inside],
        is_last=np.append(step[1:] != step[:-1], True),
        of_step=n_bytes / np.maximum(total[step], 1),
        spare_ns=(compute - comm).total_ns,
    )


def _tensors(trace: Trace, requests: NDArray[np.intp]) -> I64:
    """Gradients ready before each request and after the one before it."""
    ready = np.sort(trace.ops.start_ns[named(trace, trace.ops, NODE)])
    so_far = np.searchsorted(ready, trace.ops.start_ns[requests], "right")
    return np.diff(so_far, prepend=0).astype(np.int64)


def _operations(facts: Facts, requests: NDArray[np.intp]) -> tuple[I64, I64, I64] | None:
    """Start, end and bytes of what each request did; None unless all are known."""
    found = _on_device(facts, requests) if facts.main_device is not None else _on_cpu(facts.trace, requests)
    if found is None:
        return None
    starts, ends, told = found
    n_bytes = told if bool((told > 0).all()) else argument_bytes(facts.trace, requests)
    return (starts, ends, n_bytes) if bool((n_bytes > 0).all()) else None


def _on_device(facts: Facts, requests: NDArray[np.intp]) -> tuple[I64, I64, I64] | None:
    gpu = facts.trace.gpu
    rows = kernel_of_each(facts.trace, facts.communication[1], requests)
    return None if rows is None else (gpu.start_ns[rows], gpu.end_ns[rows], bytes_of(facts.trace, rows))


def _on_cpu(trace: Trace, requests: NDArray[np.intp]) -> tuple[I64, I64, I64] | None:
    """The ranges of the background threads, told by order: as many as there were all-reduces asked for."""
    spans, ops = trace.spans, trace.ops
    ranges = np.flatnonzero((spans.kind == SpanKind.COMM) & trace.named(spans.name, _RANGE))
    asked = named(trace, ops, REQUEST)
    if ranges.size != asked.size:
        return None
    mine = ranges[np.searchsorted(asked, requests)]
    if (spans.start_ns[mine] < ops.start_ns[requests]).any():
        return None
    return spans.start_ns[mine], spans.end_ns[mine], np.full(requests.size, UNKNOWN, np.int64)


def judge(result: Buckets) -> tuple[Finding, ...]:
    """`comm.buckets` for many small buckets, else for one that comes last and holds most."""
    return _small(result) or _last(result)


def _small(result: Buckets) -> tuple[Finding, ...]:
    """Buckets that take far longer than their bytes at the rate of the large ones."""
    rate = result.full_rate
    is_small = result.n_bytes <= BUCKETS.limit("small") * result.n_bytes.max()
    is_slow = result.n_bytes / result.length_ns <= BUCKETS.limit("slow") * rate
    mine = np.flatnonzero(is_small & is_slow)
    if mine.size < BUCKETS.limit("many") * result.n_steps:
        return ()
    extra = np.minimum(result.length_ns[mine] - result.n_bytes[mine] / rate, result.exposed_ns[mine])
    cost_ns = round(middle(extra) * mine.size)  # a few that wait for a peer do not count
    typical, large = middle(result.n_bytes[mine]), float(result.n_bytes.max())
    per_step = round(mine.size / result.n_steps)
    return _found(
        result,
        cost_ns,
        title="DDP reduces gradients in many small buckets",
        statement=f"{per_step:,} buckets per step, {format_bytes(typical)} each (median), reach"
        f" {format_bytes(1e9 * middle(result.n_bytes[mine] / result.length_ns[mine]))}/s;"
        f" large ones ({format_bytes(large)}) {format_bytes(1e9 * rate)}/s",
        fix=f"{BUCKETS.fixes[0]}: {per_step:,} all-reduces a step of {format_bytes(typical)} each are limited by latency",
    )


def _last(result: Buckets) -> tuple[Finding, ...]:
    """The bucket that is ready last, where it holds most bytes and no compute is left to hide it."""
    last = np.flatnonzero(result.is_last)
    typical = middle(result.n_bytes[last])
    rate = float((result.n_bytes[last] / result.length_ns[last]).max())
    can_be_split = middle(result.n_tensors[last]) >= _PIECES
    is_most = middle(result.of_step[last]) >= BUCKETS.limit("most")
    is_transfer = rate >= EXPOSED.limit("slow_link")  # bytes per ns are GB/s: slower ones wait for a peer, perhaps
    if not (can_be_split and is_most and is_transfer):
        return ()
    exposed_ns = float(result.exposed_ns[last].min())  # waiting for a peer only adds
    stays = min(DEFAULT_BUCKET_BYTES, typical / _PIECES) / typical
    cost_ns = min(round(exposed_ns * (1 - stays)) * last.size, result.spare_ns)
    cap_mb = max(round(typical * stays / 2**20), 1)
    return _found(
        result,
        cost_ns,
        title="DDP reduces most gradients in one bucket, after the backward pass",
        statement=f"the last bucket of a step holds {format_bytes(typical)},"
        f" {format_fraction(middle(result.of_step[last]))} of its gradients; at least {format_ns(exposed_ns)}"
        " of its all-reduce runs without compute beside it",
        fix=f"bucket_cap_mb={cap_mb}: the first pieces are reduced while the backward pass goes on",
    )


def _found(result: Buckets, cost_ns: int, *, title: str, statement: str, fix: str) -> tuple[Finding, ...]:
    scope = result.scope
    fraction = scope.fraction(cost_ns)
    if fraction < BUCKETS.limit("window"):
        return ()
    return (
        BUCKETS.found(
            title=title,
            fraction=fraction,
            confidence=_CONFIDENCE,
            recoverable_ns=scope.per_step(cost_ns),
            evidence=(
                Evidence.time(
                    "buckets.cost_ns",
                    cost_ns,
                    f"{statement} ({scope.time(cost_ns)} that other buckets save at most)",
                    expected=f"< {format_fraction(BUCKETS.limit('window'))} of the window",
                ),
            ),
            fix=fix,
            next_tools=(
                recapture(
                    scope,
                    "change bucket_cap_mb, then record again: how much shorter is the step?",
                    "less communication without compute beside it; profkit compare OLD NEW says what it gave",
                ),
            ),
        ),
    )


def present(result: Buckets) -> Section:
    """Show the buckets of a step."""
    return Section(
        title="gradient buckets of DDP",
        values={
            "n": int(result.n_bytes.size),
            "n_steps": result.n_steps,
            "median_bytes": int(middle(result.n_bytes)),
            "largest_bytes": int(result.n_bytes.max()),
            "last_bytes": int(middle(result.n_bytes[result.is_last])),
            "exposed_ns": int(result.exposed_ns.sum()),
        },
    )


ANALYZER = Analyzer(
    name="buckets",
    question="do DDP's gradient buckets fit the links and the backward pass?",
    needs="all-reduces with their sizes, and the operators of the backward pass",
    measure=measure,
    judge=judge,
    present=present,
)
