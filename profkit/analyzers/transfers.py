"""Copies: how much, how fast, from what memory, and how much of it nothing hides (docs/method.md)."""

from __future__ import annotations

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import system_timeline
from profkit.model.arrays import distinct, median
from profkit.model.finding import Evidence, Explanation, Finding, Skipped, severity_of
from profkit.model.intervals import Intervals
from profkit.model.report import Section, TableView
from profkit.model.trace import Kind
from profkit.timeline import Facts
from profkit.units import format_bytes, format_count, format_fraction, format_ns

MIN_FRACTION = 0.03
SMALL_COPY_BYTES = 64 * 1024
MANY_SMALL_COPIES = 20


class Transfers(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of the main device; "to device" is host to device. Bytes are 0 where the trace gives none."""

    scope: Scope
    n_copies: int
    to_device_ns: int
    exposed_to_device_ns: int
    exposed_ns: int
    to_device_bytes: int
    median_bytes: int
    n_to_device: int
    pageable_fraction: float
    by_name: tuple[tuple[str, int, int, int], ...]


def measure(facts: Facts) -> Transfers | Skipped:
    """Measure the copies."""
    main = facts.main_device
    gpu = facts.trace.gpu
    rows = main.activity.rows if main is not None else np.empty(0, np.intp)
    rows = rows[gpu.kind[rows] == Kind.COPY]
    if main is None or rows.size == 0:
        return Skipped(
            analyzer="transfers",
            reason="no copies in this trace",
            how_to_get="nothing to do: data that stays on the device needs no copies",
        )
    names = [facts.trace.name(int(code)) for code in gpu.name[rows]]
    to_device = np.array([("HtoD" in name or "HostToDevice" in name) for name in names], np.bool_)
    pageable = np.array(["Pageable" in name for name in names], np.bool_) & to_device
    low, high = facts.trace.window_ns
    wanted = rows[to_device]
    copied = Intervals.of(gpu.start_ns[wanted], gpu.end_ns[wanted]).clip(low, high)
    n_bytes = np.maximum(gpu.n_bytes[wanted], 0)
    return Transfers(
        scope=scope_of(facts),
        n_copies=int(rows.size),
        to_device_ns=copied.total_ns,
        exposed_to_device_ns=(copied - (main.activity.compute | main.activity.comm)).total_ns,
        exposed_ns=main.budget.copy_exposed,
        to_device_bytes=int(n_bytes.sum()),
        median_bytes=median(n_bytes) if n_bytes.size else 0,
        n_to_device=int(wanted.size),
        pageable_fraction=float(pageable.sum() / max(to_device.sum(), 1)),
        by_name=_by_name(facts, rows),
    )


def _by_name(facts: Facts, rows: np.ndarray) -> tuple[tuple[str, int, int, int], ...]:
    gpu = facts.trace.gpu
    out = []
    for code in distinct(gpu.name[rows]):
        mine = rows[gpu.name[rows] == code]
        time = int((gpu.end_ns[mine] - gpu.start_ns[mine]).sum())
        out.append((facts.trace.name(int(code)), int(mine.size), int(np.maximum(gpu.n_bytes[mine], 0).sum()), time))
    return tuple(sorted(out, key=lambda row: -row[3]))


def judge(result: Transfers, *, min_fraction: float = MIN_FRACTION) -> tuple[Finding, ...]:
    """Give `h2d.exposed` when copies to the device stand alone at least `min_fraction` of the window."""
    scope = result.scope
    fraction = scope.fraction(result.exposed_to_device_ns)
    if fraction < min_fraction:
        return ()
    rate = result.to_device_bytes / result.to_device_ns if result.to_device_ns else 0.0  # bytes per ns = GB/s
    others = scope.fraction(result.exposed_ns) - fraction
    evidence = [
        Evidence(
            statement=f"copies to the device take {format_ns(scope.per_step(result.exposed_to_device_ns))} {scope.each} with nothing under"
            f" them: {format_fraction(fraction)} of the window"
            + (f"; other copies a further {format_fraction(others)}" if others >= 0.02 else ""),
            metric="transfers.exposed_to_device_ns",
            value=float(result.exposed_to_device_ns),
            unit="ns",
            expected=f"< {format_fraction(min_fraction)} of the window",
        ),
        Evidence(
            statement=f"{format_fraction(result.pageable_fraction)} of {result.n_to_device:,} copies come from pageable memory",
            metric="transfers.pageable_fraction",
            value=result.pageable_fraction,
            unit="fraction",
            expected="0 % with pin_memory=True",
        ),
    ]
    if result.to_device_bytes:
        evidence.append(
            Evidence(
                statement=f"{format_bytes(result.to_device_bytes / scope.n_steps)} {scope.each} at {rate:.1f} GB/s,"
                f" median copy {format_bytes(result.median_bytes)}",
                metric="transfers.rate_bytes_per_s",
                value=rate * 1e9,
                unit="bytes/s",
            )
        )
    return (
        Finding(
            id="h2d.exposed",
            title="copies to the device are not hidden",
            severity=severity_of(fraction),
            confidence=0.8,
            recoverable_ns=scope.per_step(result.exposed_to_device_ns),
            fraction=fraction,
            evidence=tuple(evidence),
            fix=_fix(result),
            next_tools=(
                system_timeline(
                    scope,
                    "are the copies slow, or issued at the wrong time?",
                    "memcpy HtoD rows against the kernels: same stream in sequence, or a stream of their own",
                ),
            ),
        ),
    )


def _fix(result: Transfers) -> str:
    if (
        result.median_bytes
        and result.median_bytes < SMALL_COPY_BYTES
        and result.n_to_device > MANY_SMALL_COPIES * result.scope.n_steps
    ):
        return f"{format_count(result.n_to_device / result.scope.n_steps)} small copies {result.scope.each}: collate into one tensor and copy once"
    if result.pageable_fraction > 0.5:
        return "pin_memory=True and .to(device, non_blocking=True), on a side stream one batch ahead"
    return "copy one batch ahead on a side stream; send uint8 or ids and expand on the device"


def present(result: Transfers) -> Section:
    """Show copies by kind."""
    return Section(
        analyzer="transfers",
        title="copies",
        values={
            "n_copies": result.n_copies,
            "exposed_ns": result.exposed_ns,
            "to_device_bytes": result.to_device_bytes,
            "pageable_fraction": result.pageable_fraction,
        },
        tables=(
            TableView(
                title="copies by kind",
                headers=("copy", "count", "bytes", "time"),
                units=("text", "count", "bytes", "ns"),
                rows=result.by_name,
            ),
        ),
    )


EXPLANATIONS = (
    Explanation(
        id="h2d.exposed",
        title="copies to the device are not hidden",
        meaning="Batches travel to the device while it has nothing else to do. Copies under kernels are free.",
        measured="The union of host-to-device copies without compute or communication.",
        thresholds=(
            "fires at 3 % of the window: chosen; TraceLens flags 5 % of time, or ten copies of any size",
            "small copies: median below 64 KiB and more than 20 per step (docs/method.md)",
        ),
        lookalikes=(
            "a copy that waits for its batch is loader time: see input.starved",
            "default-stream copies serialise by order, not by bandwidth",
        ),
        proof="Keep one batch resident on the device and skip .to(): the step falls by the exposed time.",
        fixes=(
            "pin_memory=True, non_blocking=True",
            "prefetch one batch ahead on a side stream",
            "send fewer bytes",
        ),
    ),
)

ANALYZER = Analyzer(
    name="transfers",
    question="are copies to the device hidden?",
    needs="gpu_memcpy rows",
    measure=measure,
    judge=judge,
    present=present,
    explanations=EXPLANATIONS,
)
