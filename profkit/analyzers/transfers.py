"""Copies: how much, how fast, from what memory, and how much of it nothing hides (docs/method.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import system_timeline
from profkit.findings.copies import FROM_DEVICE, TO_DEVICE
from profkit.findings.kind import FindingKind
from profkit.model.arrays import distinct, median, rows_by_value
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.intervals import Intervals
from profkit.model.trace import Kind
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.units import format_bytes, format_count, format_fraction, format_ns

_TO_DEVICE: Final = ("HtoD", "HostToDevice")
_FROM_DEVICE: Final = ("DtoH", "DeviceToHost")


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Copies in one direction. Bytes are 0 where the trace gives none."""

    n_copies: int
    total_ns: int
    exposed_ns: int
    """Under neither compute nor communication."""
    n_bytes: int
    median_bytes: int
    pageable_fraction: float


class Transfers(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of the main device, by direction; `exposed_ns` is of all, those inside the device too."""

    scope: Scope
    n_copies: int
    to_device: Way
    from_device: Way
    exposed_ns: int
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
    work = main.activity.compute | main.activity.comm
    return Transfers(
        scope=scope_of(facts),
        n_copies=int(rows.size),
        to_device=_way(facts, rows, work, _TO_DEVICE),
        from_device=_way(facts, rows, work, _FROM_DEVICE),
        exposed_ns=main.budget.copy_exposed,
        by_name=_by_name(facts, rows),
    )


def _rows(facts: Facts, _: Transfers) -> Mapping[str, Rows]:
    """The copies of each direction, with the time of each under neither compute nor communication."""
    main, gpu = facts.main_device, facts.trace.gpu
    if main is None:
        return {}
    copies = main.activity.rows[gpu.kind[main.activity.rows] == Kind.COPY]
    found = {}
    for kind, spellings in ((TO_DEVICE, _TO_DEVICE), (FROM_DEVICE, _FROM_DEVICE)):
        rows = copies[np.isin(gpu.name[copies], _spelled(facts, copies, spellings))]
        exposed = main.activity.copy_exposed.covered_ns(gpu.start_ns[rows], gpu.end_ns[rows])
        found[kind.id] = Rows.of_device(facts.trace, rows, exposed)
    return found


def _spelled(facts: Facts, rows: np.ndarray, spellings: tuple[str, ...]) -> list[int]:
    """The codes of names that hold one of the spellings."""
    names = {code: facts.trace.name(code) for code in map(int, distinct(facts.trace.gpu.name[rows]))}
    return [code for code, name in names.items() if any(spelling in name for spelling in spellings)]


def _way(facts: Facts, rows: np.ndarray, work: Intervals, spellings: tuple[str, ...]) -> Way:
    """The copies whose names hold one of the spellings."""
    gpu = facts.trace.gpu
    chosen = _spelled(facts, rows, spellings)
    pageable = [code for code in chosen if "Pageable" in facts.trace.name(code)]
    mine = rows[np.isin(gpu.name[rows], chosen)]
    copied = Intervals.of(gpu.start_ns[mine], gpu.end_ns[mine]).clip(*facts.trace.window_ns)
    n_bytes = np.maximum(gpu.n_bytes[mine], 0)
    return Way(
        n_copies=int(mine.size),
        total_ns=copied.total_ns,
        exposed_ns=(copied - work).total_ns,
        n_bytes=int(n_bytes.sum()),
        median_bytes=median(n_bytes) if n_bytes.size else 0,
        pageable_fraction=float(np.isin(gpu.name[mine], pageable).mean()) if mine.size else 0.0,
    )


def _by_name(facts: Facts, rows: np.ndarray) -> tuple[tuple[str, int, int, int], ...]:
    gpu = facts.trace.gpu
    out = []
    for code, places in rows_by_value(gpu.name[rows]):
        mine = rows[places]
        time = int((gpu.end_ns[mine] - gpu.start_ns[mine]).sum())
        out.append((facts.trace.name(int(code)), int(mine.size), int(np.maximum(gpu.n_bytes[mine], 0).sum()), time))
    return tuple(sorted(out, key=lambda row: -row[3]))


def judge(result: Transfers) -> tuple[Finding, ...]:
    """`h2d.exposed` and `d2h.exposed` where copies of that direction stand alone."""
    found = []
    for kind, way, direction in ((TO_DEVICE, result.to_device, "to"), (FROM_DEVICE, result.from_device, "from")):
        fraction = result.scope.fraction(way.exposed_ns)
        if fraction >= kind.limit("window"):
            found.append(
                kind.found(
                    confidence=0.8,
                    recoverable_ns=result.scope.per_step(way.exposed_ns),
                    fraction=fraction,
                    evidence=tuple(_evidence(result, way, direction, kind)),
                    fix=_fix_to(result.scope, way) if kind is TO_DEVICE else _fix_from(result.scope, way),
                    proof="" if result.scope.is_of_torch or kind is not TO_DEVICE else _KEPT,
                    next_tools=(
                        system_timeline(
                            result.scope,
                            "are the copies slow, or issued at the wrong time?",
                            f"memcpy {'HtoD' if direction == 'to' else 'DtoH'} rows and kernels: in sequence on one stream,"
                            " or copies on a stream of their own",
                        ),
                    ),
                )
            )
    return tuple(found)


def _evidence(result: Transfers, way: Way, direction: str, kind: FindingKind) -> Iterator[Evidence]:
    scope = result.scope
    fraction = scope.fraction(way.exposed_ns)
    others = scope.fraction(result.exposed_ns) - fraction
    yield Evidence(
        statement=f"copies {direction} the device take {format_ns(scope.per_step(way.exposed_ns))} {scope.each} while nothing"
        f" else runs ({scope.share(way.exposed_ns, 'copy_exposed')} of the window)"
        + (f"; other copies take a further {format_fraction(others)}" if others >= 0.02 else ""),
        metric=f"transfers.exposed_{direction}_device_ns",
        value=float(way.exposed_ns),
        unit="ns",
        expected=f"< {format_fraction(kind.limit('window'))} of the window",
    )
    yield Evidence(
        statement=f"{format_fraction(way.pageable_fraction)} of {way.n_copies:,} copies"
        f" {'come from' if direction == 'to' else 'go into'} pageable memory",
        metric="transfers.pageable_fraction",
        value=way.pageable_fraction,
        unit="fraction",
        expected="0 % with pin_memory=True",
    )
    if way.n_bytes:
        rate = way.n_bytes / way.total_ns if way.total_ns else 0.0  # bytes per ns = GB/s
        yield Evidence(
            statement=f"{format_bytes(way.n_bytes / scope.n_steps)} {scope.each} at {rate:.1f} GB/s,"
            f" median copy {format_bytes(way.median_bytes)}",
            metric="transfers.rate_bytes_per_s",
            value=rate * 1e9,
            unit="bytes/s",
        )


def _small(scope: Scope, way: Way, kind: FindingKind) -> str:
    """Say how many small copies there are, nothing where they are few or large."""
    is_small = way.median_bytes and way.median_bytes < kind.limit("small_bytes")
    if not is_small or way.n_copies <= kind.limit("small_copies") * scope.n_steps:
        return ""
    return f"{format_count(way.n_copies / scope.n_steps)} small copies {scope.each}"


_PINNED = "take pinned memory (cudaHostAlloc) and the asynchronous calls; "
_KEPT = "Leave the copies out for one run, with the data kept on the device: it becomes shorter by the exposed time."


def _fix_to(scope: Scope, way: Way) -> str:
    if small := _small(scope, way, TO_DEVICE):
        return f"{small}: collate into one {'tensor' if scope.is_of_torch else 'buffer'} and copy once"
    if not scope.is_of_torch:
        return f"{_PINNED if way.pageable_fraction > 0.5 else ''}copy ahead, on a stream of its own, while kernels run; send fewer bytes"
    if way.pageable_fraction > 0.5:
        return "use pin_memory=True and .to(device, non_blocking=True), on a side stream one batch ahead"
    return "copy one batch ahead on a side stream; send uint8 or ids and expand on the device"


def _fix_from(scope: Scope, way: Way) -> str:
    if small := _small(scope, way, FROM_DEVICE):
        return f"{small}: keep results on the device, {'stack them and ' if scope.is_of_torch else ''}copy once"
    if not scope.is_of_torch:
        pinned = _PINNED if way.pageable_fraction > 0.5 else ""
        return f"{pinned}copy on a stream of its own while the next kernels run; reduce on the device first"
    if way.pageable_fraction > 0.5:
        return "copy into pinned memory with non_blocking=True on a side stream; reduce on the device first"
    return "copy on a side stream while the next kernels run; reduce on the device first; do not copy what nobody reads"


def present(result: Transfers) -> Section:
    """Show copies by kind."""
    return Section(
        analyzer="transfers",
        title="copies",
        values={
            "n_copies": result.n_copies,
            "exposed_ns": result.exposed_ns,
            "to_device_bytes": result.to_device.n_bytes,
            "from_device_bytes": result.from_device.n_bytes,
            "pageable_fraction": result.to_device.pageable_fraction,
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


ANALYZER = Analyzer(
    name="transfers",
    question="are copies between host and device hidden?",
    needs="gpu_memcpy rows",
    measure=measure,
    judge=judge,
    rows=_rows,
    present=present,
)
