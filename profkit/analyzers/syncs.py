"""Which calls make the host wait for the device, and what that costs (docs/method.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import RECORD_A_DEVICE, Analyzer, Scope, idle_before, sampled_evidence, scope_of
from profkit.analyzers.tools import system_timeline
from profkit.findings.host import SYNC, SYNC_AT_ONCE
from profkit.model.arrays import coded, looked_up
from profkit.model.budget import HOST_PARTS
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import UNSURE, Evidence, Finding, Skipped
from profkit.model.trace import CallKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts, IdlePlaces
from profkit.timeline.code import Rows
from profkit.timeline.host import blocking_calls
from profkit.timeline.totals import Sampled, waiting_samples
from profkit.units import format_count, format_fraction, format_ns

_MAX_SHOWN = 8
_WORTH_ADVICE = 0.1  # chosen: of the blocked time, as for a finding worth a look
_READ = "keep metrics on the GPU and read them every N steps"
_COPY = "copy from pinned memory with non_blocking=True"
_INDEX = "use torch.where instead of boolean indexing"
_ADVICE = (
    (
        later(r"DeviceSynchronize outside operators"),
        "take torch.cuda.synchronize() out of the loop (CUDA events time it)",
    ),
    (later(r"aten::(?:item|_local_scalar_dense|is_nonzero|equal)$"), _READ),
    (later(r"aten::(?:nonzero|masked_select|unique\w*|index)$"), _INDEX),
    (later(r"aten::(?:copy_|_to_copy|to)$"), _COPY),
)
"""What to do about a call, by its name and the operator around it."""
_WAIT_ONCE = "wait once for several launches, by an event or at the end, not after each"
_COPY_ASYNC = "copy from and into pinned memory with the asynchronous calls, on a stream of its own"
_ADVICE_OF_OTHERS = ((later(r"Synchronize"), _WAIT_ONCE), (later(r"Mem(?:cpy|set)"), _COPY_ASYNC))
"""The same for programs without PyTorch."""
_LEFT_OUT = "Leave the call out for one run: the run becomes shorter by about the cost shown."


class Syncs(msgspec.Struct, frozen=True, kw_only=True):
    """Blocking calls in the window. `cost_ns` is the idle time right behind them, not the time they lasted."""

    scope: Scope
    n_calls: int
    blocked_ns: int
    cost_ns: int
    gain_ns: int
    """Idle time that the window would not have without them, debts that later gaps pay off included."""
    held_ns: int
    """Host time inside them, on the threads that launch."""
    is_replayed: bool
    """Whether `gain_ns` is from a replay: else it is `cost_ns`."""
    callers: tuple[tuple[str, str, int, int], ...]
    """(call, innermost operator or Python frame, count, blocked ns), the longest first."""
    longest_span_ns: tuple[int, int]
    places: IdlePlaces
    """Where the device is idle."""
    samples: tuple[Sampled, ...]
    """CPU samples of the launching threads while the device waits for a launch."""
    worst_share: float
    """Share of `gain_ns` that the longest call alone has: near 1 for a single event."""


def measure(facts: Facts) -> Syncs | Skipped:
    """Find the blocking calls and who makes them."""
    main = facts.main_device
    if main is None:
        return Skipped(reason="no device to wait for in this trace", how_to_get=RECORD_A_DEVICE)
    trace, calls, rows = facts.trace, facts.trace.calls, _waiting(facts)
    duration = calls.end_ns[rows] - calls.start_ns[rows]
    worst = int(rows[duration.argmax()]) if rows.size else -1
    return Syncs(
        scope=scope_of(facts),
        n_calls=int(rows.size),
        blocked_ns=int(duration.sum()),
        cost_ns=main.budget.idle_sync,
        gain_ns=main.gains.sync_ns,
        held_ns=main.gains.held_ns,
        is_replayed=main.gains.is_replayed,
        callers=_callers(trace, rows, facts.op_of_call[rows], duration),
        longest_span_ns=(int(calls.start_ns[worst]), int(calls.end_ns[worst])) if worst >= 0 else (0, 0),
        places=main.places,
        samples=waiting_samples(facts),
        worst_share=main.gains.longest_sync_ns / main.gains.sync_ns if main.gains.sync_ns else 0.0,
    )


def _waiting(facts: Facts) -> NDArray[np.intp]:
    """The rows of blocking calls that touch the window, those of the allocator apart."""
    calls, (low, high) = facts.trace.calls, facts.trace.window_ns
    is_waiting = blocking_calls(facts.trace) & (calls.kind != CallKind.ALLOC)
    return np.flatnonzero(is_waiting & (calls.end_ns > low) & (calls.start_ns < high))


def _rows(facts: Facts, result: Syncs) -> Mapping[str, Rows]:
    """The blocking calls: with the idle time behind each, or with its own where most idle time comes later."""
    calls, rows, main = facts.trace.calls, _waiting(facts), facts.main_device
    duration = calls.end_ns[rows] - calls.start_ns[rows]
    if main is None or result.cost_ns < SYNC.limit("at_once") * result.gain_ns:
        return {SYNC.id: Rows.of_calls(facts.trace, rows, duration)}
    idle = main.idle.sync
    last = np.searchsorted(calls.start_ns[rows], idle.start_ns, "right") - 1
    spent = np.bincount(last[last >= 0], weights=idle.lengths_ns[last >= 0], minlength=rows.size).astype(np.int64)
    return {SYNC.id: Rows.of_calls(facts.trace, rows, spent)}


def _callers(
    trace: Trace, rows: NDArray[np.intp], op: NDArray[np.int32], duration: NDArray[np.int64]
) -> tuple[tuple[str, str, int, int], ...]:
    op_name = looked_up(trace.ops.name, op)
    n_names = int(op_name.max(initial=-1)) + 2
    pairs, place = coded(trace.calls.name[rows].astype(np.int64) * n_names + op_name + 1)
    counts = np.bincount(place, minlength=pairs.size)
    total = np.bincount(place, weights=duration, minlength=pairs.size)
    order = np.argsort(-total, kind="stable")[:_MAX_SHOWN]
    return tuple(
        (
            trace.name(int(pairs[index]) // n_names),
            trace.name(int(pairs[index]) % n_names - 1) or "outside operators",
            int(counts[index]),
            int(total[index]),
        )
        for index in order
    )


def judge(result: Syncs) -> tuple[Finding, ...]:
    """`host.sync` where waiting calls leave the device idle, at once or later."""
    scope = result.scope
    fraction = scope.fraction(result.gain_ns)
    if fraction < SYNC.limit("window") or result.n_calls < SYNC.limit("calls") * scope.n_steps:
        return ()
    if result.worst_share >= SYNC.limit("one_off"):
        return ()  # one call of all steps: a start-up or a checkpoint, reported as host.stall
    return (
        SYNC.found(
            confidence=_confidence(result),
            recoverable_ns=scope.per_step(result.gain_ns),
            fraction=fraction,
            evidence=tuple(_evidence(result, fraction)),
            fix=_fix(result),
            proof="" if scope.is_of_torch else _LEFT_OUT,
            next_tools=(
                system_timeline(
                    scope,
                    "which call waits for which work, and how long is the GPU idle after it?",
                    "cudaStreamSynchronize and cudaMemcpyAsync in the CUDA API row, and the gaps after each",
                ),
            ),
        ),
    )


def _confidence(result: Syncs) -> float:
    """None too sure where nearly all comes later: a host that is late by itself would be so without the calls."""
    if result.cost_ns < SYNC.limit("later") * result.gain_ns:
        return UNSURE
    return 0.8 if result.scope.has_steps else 0.6


def _fix(result: Syncs) -> str:
    """What to do about the calls that take most of the blocked time; where none is known, about the usual ones."""
    worst = (
        f"{call} {op}" for call, op, _, blocked_ns in result.callers if blocked_ns >= _WORTH_ADVICE * result.blocked_ns
    )
    is_of_torch = result.scope.is_of_torch
    advice = _ADVICE if is_of_torch else _ADVICE_OF_OTHERS
    known = (said for name in worst for pattern, said in advice if pattern.search(name))
    usual = (_READ, _COPY, _INDEX) if is_of_torch else (_WAIT_ONCE, _COPY_ASYNC)
    return "; ".join(dict.fromkeys(known)) or "; ".join(usual)


def _evidence(result: Syncs, fraction: float) -> Iterator[Evidence]:
    """Say what the calls cost, how much of that comes later, and who makes them."""
    scope = result.scope
    worst = ", ".join(f"{op} ({call}, {count:,}x)" for call, op, count, _ in result.callers[:2])
    calls = f"blocking call{'' if result.n_calls == scope.n_steps else 's'}"
    replayed = ", by a replay of the launches without these waits" if result.is_replayed else ""
    yield Evidence.time(
        "syncs.gain_ns",
        result.gain_ns,
        f"the GPU is idle {scope.time(result.gain_ns)} because the host waited for it"
        f"{', right after a wait or in later gaps' if result.is_replayed else ''}"
        f" ({format_fraction(fraction)} of the window{replayed})",
        expected=f"< {format_fraction(SYNC.limit('window'))} of the window",
        span_ns=result.longest_span_ns,
    )
    yield Evidence.count(
        "syncs.n_calls",
        result.n_calls,
        f"{format_count(result.n_calls / scope.n_steps)} {calls} {scope.each}; most time: {worst}",
    )
    if result.cost_ns < SYNC.limit("at_once") * result.gain_ns:
        yield Evidence.time(
            SYNC_AT_ONCE,
            result.cost_ns,
            f"only {format_ns(scope.per_step(result.cost_ns))} of it comes right after a wait: in the"
            f" {scope.time(result.held_ns)} that the host waits it launches nothing, so later launches are late",
        )
    parts = ("idle_sync",) if result.cost_ns >= SYNC.limit("at_once") * result.gain_ns else ("idle_sync", *HOST_PARTS)
    yield from idle_before(result.places, scope, *parts)
    yield from sampled_evidence(result.samples, is_cpu=scope.is_cpu)


def present(result: Syncs) -> Section:
    """Show who waits."""
    return Section(
        title="synchronising calls",
        values={
            "n_calls": result.n_calls,
            "blocked_ns": result.blocked_ns,
            "cost_ns": result.cost_ns,
            "gain_ns": result.gain_ns,
            "held_ns": result.held_ns,
        },
        tables=(
            TableView.of(
                "blocking calls",
                {"call": "text", "from operator": "text", "count": "count", "blocked": "ns"},
                result.callers,
                note="A long wait costs nothing while the GPU has work. Afterwards it does: the host is late for the next"
                " launches until it has caught up.",
            ),
        )
        if result.callers
        else (),
    )


ANALYZER = Analyzer(
    name="syncs",
    question="which calls make the host wait, and what does it cost?",
    needs="runtime calls and device rows",
    measure=measure,
    judge=judge,
    rows=_rows,
    present=present,
)
