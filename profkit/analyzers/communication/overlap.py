"""How much communication is hidden under compute, and how much is exposed (docs/method.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Analyzer, Scope, Vendor, by_name, scope_of
from profkit.analyzers.tools import after_change, recapture, system_timeline
from profkit.findings.communication import EXPOSED, MODULE_BUFFERS, SENDS_FIX, SENDS_METRIC
from profkit.model.arrays import I64, distinct, median
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, NextTool, Skipped
from profkit.model.intervals import Intervals
from profkit.model.names import short_name
from profkit.model.trace import GpuWork, Spans, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.collectives import UNKNOWN, bytes_of
from profkit.timeline.gradients import ddp_passes
from profkit.timeline.host import enclosing_op, outermost
from profkit.timeline.steps import edges, steps_in_window
from profkit.units import format_bytes, format_count, format_fraction, format_ns

WORTH_SAYING = 0.01
_MAX_SHOWN = 5
_LIBRARIES: Final = {Vendor.NVIDIA: "NCCL", Vendor.AMD: "RCCL", Vendor.INTEL: "oneCCL"}
_BROADCAST: Final = later(r"broadcast(?!_to)", re.IGNORECASE)
_ALL_REDUCE: Final = later(r"all_?reduce", re.IGNORECASE)
_SENDS: Final = later(r"^c10d::_?broadcast_")
_BETWEEN_TWO: Final = later(r"^(?:gloo|mpi|ucc):(?:send|recv)")
_COPIES_BACK: Final = later(r"^aten::(?:unflatten_dense_tensors|copy_)$")
_FIX: Final = (
    "first triage all ranks together to find a late rank; then tune bucket sizes, prefetch, gradient accumulation,"
    " and communication precision"
)
_TITLE_OF_DDP: Final = "DDP sends the model's buffers to all ranks before each forward pass"
_SENDS_TITLE: Final = "no compute runs while ranks send to and receive from each other"
_SENDS_PROOF: Final = (
    "Double the micro-batches of a step: where stages wait for each other, the share without compute falls."
)
_OF_DDP: Final = 0.8
"""Chosen: that it is DDP's is known; waiting for a late peer may be in it."""
_WAITS_FIX: Final = (
    "triage all ranks together to find the late rank: fewer bytes or a faster network change little; issue fewer of these"
    " collectives (combine metrics and flags into one, reduce them every N steps)"
)


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives that take far longer than their bytes need on any link: they wait, for a peer or for each other's start."""

    n: int
    total_ns: int
    """What they take together, inside the window."""
    unneeded_ns: int
    """What of it their bytes do not need."""
    median_bytes: int
    median_ns: int


class Buffers(msgspec.Struct, frozen=True, kw_only=True):
    """Small broadcasts beside all-reduces: DDP sends its buffers to all ranks before each forward pass."""

    n: int = 0
    total_ns: int = 0
    blocking_ns: int = 0
    """What of them no compute hides, while it holds something up; on a CPU, what joins and copies them as well."""
    is_ddp: bool = False
    """Whether DistributedDataParallel's forward pass sends them."""


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Communication on the main device (or, on a CPU, in background threads)."""

    scope: Scope
    world_size: int | None
    n_operations: int
    comm_ns: int
    hidden_ns: int
    exposed_ns: int
    unasked_ns: int
    """The part of `exposed_ns` that holds nothing up: the host had not launched the next compute."""
    hideable_ns: int
    """The most of the rest that overlap could hide: in each step no more than the compute without communication."""
    compute_ns: int
    top: tuple[tuple[str, int, int], ...]
    longest_ns: int
    """The longest single operation, and the median of the others of its name (0 where fewer than three are there)."""
    usual_ns: int
    idle_wires: Idle
    buffers: Buffers = Buffers()
    sends_ns: int = 0
    """On a CPU: the part of `exposed_ns` in which a send or receive runs."""

    @property
    def is_sent(self) -> bool:
        """Whether most of what is exposed is of sends and receives."""
        return self.sends_ns > 0 and self.sends_ns >= EXPOSED.limit("mostly") * self.exposed_ns

    @property
    def sends_each_step(self) -> bool:
        """Whether buffers are sent in each step, not once."""
        return self.scope.has_steps and self.buffers.n >= self.scope.n_steps

    @property
    def blocking_ns(self) -> int:
        """What is exposed and holds something up: without any communication, the window is so much shorter at most."""
        return self.exposed_ns - self.unasked_ns


def measure(facts: Facts) -> Overlap | Skipped:
    """Measure communication against compute."""
    table, rows = facts.communication
    if rows.size == 0:
        return Skipped(
            reason="no communication in this trace",
            how_to_get="profile a distributed job; on a single process there is nothing to overlap",
        )
    names, start, end = table.name[rows], table.start_ns[rows], table.end_ns[rows]
    low, high = facts.trace.window_ns
    inside = np.minimum(end, high) - np.maximum(start, low)  # what lies outside is no part of `comm_ns` either
    longest_ns, usual_ns = _longest(names, end - start)
    busy, main = facts.busy, facts.main_device
    is_sent = facts.trace.named(names, _BETWEEN_TWO)
    sent = Intervals.of(start[is_sent], end[is_sent])
    return Overlap(
        scope=scope_of(facts),
        world_size=facts.trace.meta.world_size,
        n_operations=rows.size,
        comm_ns=busy.comm.total_ns,
        hidden_ns=(busy.comm & busy.compute).total_ns,
        exposed_ns=facts.budget.comm_exposed,
        unasked_ns=main.unasked.total_ns if main is not None else 0,
        hideable_ns=_hideable_ns(facts),
        compute_ns=facts.budget.compute,
        top=by_name(facts.trace, names, inside)[:_MAX_SHOWN],
        longest_ns=longest_ns,
        usual_ns=usual_ns,
        idle_wires=_idle_wires(facts, rows, inside),
        buffers=_buffers(facts, rows),
        sends_ns=(facts.parts["comm_exposed"] & sent).total_ns,
    )


def _rows(facts: Facts, _: Overlap) -> Mapping[str, Rows]:
    """The operations, with the time of each under no compute; they belong to where they were asked for."""
    table, rows = facts.communication
    exposed = facts.parts["comm_exposed"].covered_ns(table.start_ns[rows], table.end_ns[rows])
    if isinstance(table, GpuWork):
        return {EXPOSED.id: Rows.of_device(facts.trace, rows, exposed)}
    return {EXPOSED.id: Rows(thread=table.thread[rows], at_ns=table.start_ns[rows], ns=exposed)}


def _blocking(facts: Facts) -> Intervals:
    """Exposed communication that delays something."""
    blocking, main = facts.parts["comm_exposed"], facts.main_device
    return blocking - main.unasked if main is not None else blocking


def _buffers(facts: Facts, rows: NDArray[np.intp]) -> Buffers:
    """DDP's; else the broadcasts, where all-reduces run beside them and move ten times the bytes, or nothing says how many."""
    table, trace = facts.communication[0], facts.trace
    is_sent, is_reduced = (trace.named(table.name[rows], one) for one in (_BROADCAST, _ALL_REDUCE))
    if not is_sent.any():
        return Buffers()
    passes = ddp_passes(trace)
    if facts.cpu is not None and len(passes):  # DDP sends in its passes alone
        spent_ns = _of_passes(trace, passes).total_ns
        return Buffers(n=int(is_sent.sum()), total_ns=spent_ns, blocking_ns=spent_ns, is_ddp=True)
    if not is_reduced.any():
        return Buffers()
    n_bytes = bytes_of(trace, rows) if facts.main_device is not None else np.full(rows.size, UNKNOWN, np.int64)
    is_told = n_bytes.min() > UNKNOWN
    if is_told and n_bytes[is_sent].sum() > MODULE_BUFFERS.limit("bytes") * n_bytes[is_reduced].sum():
        return Buffers()
    start, end = table.start_ns[rows[is_sent]], table.end_ns[rows[is_sent]]
    return Buffers(
        n=int(is_sent.sum()),
        total_ns=int((end - start).sum()),
        blocking_ns=int(_blocking(facts).covered_ns(start, end).sum()),
    )


def _of_passes(trace: Trace, passes: Spans) -> Intervals:
    """In each forward pass of DDP that sends buffers what comes before the model: they are joined, sent, and copied back.

    All of it is on the thread that trains, which waits for the broadcasts.
    """
    tops = trace.ops.take(outermost(trace.ops))
    sent = np.flatnonzero(trace.named(tops.name, _SENDS))
    around = enclosing_op(passes, tops.thread[sent], tops.start_ns[sent])
    begins, ends = [], []
    for row in distinct(around[around >= 0]).tolist():
        mine = np.flatnonzero((tops.thread == passes.thread[row]) & (tops.start_ns >= passes.start_ns[row]))
        mine = mine[tops.start_ns[mine] < passes.end_ns[row]]
        at = int(np.searchsorted(mine, sent[around == row].max())) + 1
        is_back = trace.named(tops.name[mine[at:]], _COPIES_BACK)
        until = at + (int(np.argmin(is_back)) if not is_back.all() else is_back.size)
        begins.append(int(passes.start_ns[row]))
        ends.append(int(tops.start_ns[mine[until]] if until < mine.size else passes.end_ns[row]))
    return Intervals.of(np.array(begins, np.int64), np.array(ends, np.int64)).clip(*trace.window_ns)


def _hideable_ns(facts: Facts) -> int:
    """Exposed communication that delays something, in each step no more of it than compute that hides none yet."""
    busy, blocking = facts.busy, _blocking(facts)
    low, high = facts.trace.window_ns
    begin, _ = edges(steps_in_window(facts.trace))
    cuts = np.concatenate(([low], begin[(begin > low) & (begin < high)], [high]))
    each = (taken.covered_ns(cuts[:-1], cuts[1:]) for taken in (blocking, busy.compute - busy.comm))
    return int(np.minimum(*each).sum())


def _idle_wires(facts: Facts, rows: NDArray[np.intp], inside: I64) -> Idle:
    """The collectives of known size of which most is not transfer, even on a slow link; inside the window."""
    none = np.full(rows.size, UNKNOWN, np.int64)
    n_bytes = bytes_of(facts.trace, rows) if facts.main_device is not None else none
    needed = EXPOSED.limit("latency") + n_bytes / EXPOSED.limit("slow_link")
    waits = (n_bytes != UNKNOWN) & (inside - needed >= EXPOSED.limit("mostly") * inside)
    if not waits.any():
        return Idle(n=0, total_ns=0, unneeded_ns=0, median_bytes=0, median_ns=0)
    return Idle(
        n=int(waits.sum()),
        total_ns=int(inside[waits].sum()),
        unneeded_ns=int((inside - needed)[waits].sum()),
        median_bytes=median(n_bytes[waits]),
        median_ns=median(inside[waits]),
    )


def _longest(codes: np.ndarray, durations: np.ndarray) -> tuple[int, int]:
    worst = int(np.argmax(durations))
    others = np.delete(durations, worst)[np.delete(codes, worst) == codes[worst]]
    return int(durations[worst]), median(others) if others.size >= 3 else 0


def judge(result: Overlap) -> tuple[Finding, ...]:
    """`comm.exposed` where communication stands alone; `comm.buffers` where buffers are most of a step's calls."""
    return (*_exposed(result), *_of_buffers(result))


def _of_buffers(result: Overlap) -> Iterator[Finding]:
    scope, sent = result.scope, result.buffers
    fraction = scope.fraction(sent.blocking_ns)
    if fraction < MODULE_BUFFERS.limit("window") or not result.sends_each_step:
        return
    saved, times = format_ns(scope.per_step(sent.blocking_ns)), format_ns(scope.per_step(sent.total_ns))
    count = format_count(round(sent.n / scope.n_steps, 1))
    statement = f"{count} broadcasts {scope.each} beside all-reduces take {times}; without them at most {saved} less"
    if sent.is_ddp:
        statement = f"before the forward pass DDP joins the model's buffers, sends them and copies them back: {times} {scope.each}"
    yield MODULE_BUFFERS.found(
        title=_TITLE_OF_DDP if sent.is_ddp else "",
        confidence=_OF_DDP if sent.is_ddp else 0.5,  # one rank cannot split waiting for peers from transfer
        recoverable_ns=scope.per_step(sent.blocking_ns),
        fraction=fraction,
        evidence=(
            Evidence.time(
                "comm.broadcasts_blocking_ns",
                scope.per_step(sent.blocking_ns),
                statement,
                expected=f"< {format_fraction(MODULE_BUFFERS.limit('window'))} of the window",
            ),
        ),
        fix=MODULE_BUFFERS.fixes[0],
        next_tools=(after_change(scope, "no broadcast before the forward pass"),),
    )


def _exposed(result: Overlap) -> Iterator[Finding]:
    scope = result.scope
    fraction = scope.fraction(result.exposed_ns)
    if fraction < EXPOSED.limit("window"):
        return
    fix = SENDS_FIX if result.is_sent else _WAITS_FIX if _is_waiting(result) else _FIX
    if result.sends_each_step and result.buffers.blocking_ns >= EXPOSED.limit("mostly") * result.exposed_ns:
        fix = f"{MODULE_BUFFERS.fixes[0]}; {fix}"
    hidden = result.hidden_ns / result.comm_ns if result.comm_ns else 0.0
    biggest = short_name(result.top[0][0]) if result.top else ""
    is_lone = _is_lone(result)
    yield EXPOSED.found(
        title=_SENDS_TITLE if result.is_sent else "",
        confidence=0.35 if is_lone else 0.6,  # one rank cannot split waiting for peers from transfer
        recoverable_ns=scope.per_step(result.blocking_ns),
        fraction=fraction,
        evidence=(
            Evidence.time(
                "budget_ns.comm_exposed",
                result.exposed_ns,
                f"communication runs {scope.time(result.exposed_ns)} while no compute runs"
                f" ({scope.share(result.exposed_ns, 'comm_exposed')} of the window)" + _unasked_part(result),
                expected=f"< {format_fraction(EXPOSED.limit('window'))} of the window",
            ),
            Evidence.share(
                "comm_hidden_fraction",
                hidden,
                f"compute hides {format_fraction(hidden)} of the {format_ns(scope.per_step(result.comm_ns))} of communication {scope.each};"
                f" most time is in {biggest}" + (_lone_part(result) if is_lone else ""),
            ),
            *_waits(result),
            *_sends(result),
            Evidence.time(
                "comm.recoverable_interval_ns",
                scope.per_step(result.blocking_ns),
                "one rank's trace cannot separate transfer from waiting for a slower rank: fixing this rank alone saves"
                f" between 0 and {scope.time(result.blocking_ns)}",
            ),
            *_hideable(result),
        ),
        fix=fix,
        proof=_SENDS_PROOF if result.is_sent else _WAITS_PROOF if _is_waiting(result) else "",
        next_tools=(_all_ranks(scope),),
    )


def _sends(result: Overlap) -> Iterator[Evidence]:
    """That a rank waits in them for what another one computes."""
    if result.is_sent:
        share = result.sends_ns / result.exposed_ns
        said = f"{format_fraction(share)} of it is in sends and receives: a stage of a pipeline waits there for the work of the others"
        yield Evidence.share(SENDS_METRIC, share, said)


def _hideable(result: Overlap) -> Iterator[Evidence]:
    """What overlap alone can save, where the compute is too short to hide all of it."""
    scope = result.scope
    if result.hideable_ns >= result.blocking_ns * (1 - WORTH_SAYING):
        return
    yield Evidence.time(
        "comm.hideable_ns",
        scope.per_step(result.hideable_ns),
        f"overlap alone saves at most {scope.time(result.hideable_ns)}: there is no"
        " more compute to hide communication under. More takes fewer bytes, or less waiting for other ranks",
    )


_WAITS_PROOF = "Triage the traces of all ranks together: the collectives of a late rank are short where those of the others are long."


def _is_waiting(result: Overlap) -> bool:
    """Whether most of all communication is time that its bytes do not need."""
    return result.comm_ns > 0 and result.idle_wires.unneeded_ns >= EXPOSED.limit("mostly") * result.comm_ns


def _waits(result: Overlap) -> Iterator[Evidence]:
    idle = result.idle_wires
    if not _is_waiting(result):
        return
    size, time = format_bytes(idle.median_bytes), format_ns(idle.median_ns)
    who = (
        f"the only collective waits rather than transfers: it moves {size} in {time}"
        if result.n_operations == 1
        else f"{idle.n:,} of {result.n_operations:,} collectives wait rather than transfer: they move {size} in {time} (medians)"
    )
    more = format_fraction(idle.unneeded_ns / idle.total_ns)
    yield Evidence.time(
        "comm.waiting_ns",
        idle.unneeded_ns,
        f"{who}; {more} of the time is more than a link of {EXPOSED.limit('slow_link'):g} GB/s needs",
    )


def _is_lone(result: Overlap) -> bool:
    """Whether one operation, far longer than its like, holds most of what is exposed, in too few steps to recur."""
    is_most = result.longest_ns >= EXPOSED.limit("lone_share") * result.exposed_ns
    is_long = 0 < EXPOSED.limit("lone_ratio") * result.usual_ns <= result.longest_ns
    return result.scope.n_steps < 3 and is_most and is_long


def _lone_part(result: Overlap) -> str:
    return (
        f"; one call takes {format_ns(result.longest_ns)}, the median of similar calls is {format_ns(result.usual_ns)}:"
        " too few steps to tell whether this recurs"
    )


def _all_ranks(scope: Scope) -> NextTool:
    """What shows all ranks at once: nsys knows NCCL; of gloo and MPI it sees nothing, torch.profiler does."""
    who = "which rank arrives last at each collective?"
    if scope.is_cpu:
        return recapture(
            scope, f"record all ranks into one folder: {who}", "a late rank in `profkit triage profkit-capture/`"
        )
    return system_timeline(
        scope,
        f"record all ranks into one report: {who}",
        f"the {_LIBRARIES[scope.vendor]} rows of all ranks: a rank with short rows, where the others have long ones, is late",
        is_for_any=True,
    )


def _unasked_part(result: Overlap) -> str:
    share = result.scope.fraction(result.unasked_ns)
    if share < WORTH_SAYING:
        return ""
    return f"; for {format_fraction(share)} it delayed nothing, because the host had not launched the next compute"


def present(result: Overlap) -> Section:
    """Show overlap and the longest collectives."""
    return Section(
        title="communication",
        values={
            "n_operations": result.n_operations,
            "comm_ns": result.comm_ns,
            "hidden_ns": result.hidden_ns,
            "exposed_ns": result.exposed_ns,
            **({} if result.scope.is_cpu else {"unasked_ns": result.unasked_ns}),
        },
        tables=(
            TableView.of(
                "communication by name",
                {"operation": "text", "count": "count", "time": "ns"},
                result.top,
                note="The time of a collective includes waiting for the other ranks.",
            ),
        ),
    )


ANALYZER = Analyzer(
    name="overlap",
    question="is communication hidden under compute?",
    needs="collective kernels (NCCL, RCCL...) or gloo ranges",
    measure=measure,
    judge=judge,
    rows=_rows,
    present=present,
)
