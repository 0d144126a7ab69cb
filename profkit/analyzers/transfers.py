"""Copies: how much, how fast, from what memory, and how much of it nothing hides (docs/method.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import system_timeline
from profkit.findings.copies import FROM_DEVICE, LINKS, SLOW_BYTES, TO_DEVICE, Link
from profkit.findings.kind import FindingKind
from profkit.model.arrays import median, rows_by_value
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.intervals import Intervals
from profkit.model.names import COPIES_FROM_DEVICE, COPIES_TO_DEVICE
from profkit.model.trace import Kind
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.units import format_bytes, format_count, format_fraction, format_ns

_WORTH_SAYING: Final = 0.1
"""Part of a time from which it is worth a sentence that a change leaves it. Chosen."""

_FROM_PAGEABLE: Final = later("Pageable")
_FROM_PINNED: Final = later("Pinned")


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Copies in one direction. Bytes are 0 where the trace gives none."""

    n_copies: int
    total_ns: int
    exposed_ns: int
    """Under neither compute nor communication."""
    beside_ns: int = 0
    """Of that, beside copies in the other direction."""
    n_bytes: int
    median_bytes: int
    pageable_fraction: float
    is_pinned: bool = False
    """Whether all are said to be of pinned memory."""


class Transfers(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of the main device, by direction; `exposed_ns` is of all, those inside the device too."""

    scope: Scope
    n_copies: int
    to_device: Way
    from_device: Way
    exposed_ns: int
    by_name: tuple[tuple[str, int, int, int], ...]
    link: Link | None = None
    """What joins the device to its host at best; None where that is not known."""


def measure(facts: Facts) -> Transfers | Skipped:
    """Measure the copies."""
    main = facts.main_device
    gpu = facts.trace.gpu
    rows = main.activity.rows if main is not None else np.empty(0, np.intp)
    rows = rows[gpu.kind[rows] == Kind.COPY]
    if main is None or rows.size == 0:
        return Skipped(
            reason="no copies in this trace",
            how_to_get="nothing to do: data that stays on the device needs no copies",
        )
    work = main.activity.compute | main.activity.comm
    to, back = (_rows_of(facts, rows, direction) for direction in (COPIES_TO_DEVICE, COPIES_FROM_DEVICE))
    return Transfers(
        scope=scope_of(facts),
        n_copies=int(rows.size),
        to_device=_way(facts, to, back, work),
        from_device=_way(facts, back, to, work),
        exposed_ns=main.budget.copy_exposed,
        by_name=_by_name(facts, rows),
        link=_link(facts, main.device),
    )


def _link(facts: Facts, device: int) -> Link | None:
    name = facts.trace.device_name(device)
    return next((link for pattern, link in LINKS if pattern.search(name)), None)


def _rows(facts: Facts, _: Transfers) -> Mapping[str, Rows]:
    """The copies of each direction, with the time of each under neither compute nor communication."""
    main, gpu = facts.main_device, facts.trace.gpu
    if main is None:
        return {}
    copies = main.activity.rows[gpu.kind[main.activity.rows] == Kind.COPY]
    found = {}
    for kind, direction in ((TO_DEVICE, COPIES_TO_DEVICE), (FROM_DEVICE, COPIES_FROM_DEVICE)):
        rows = _rows_of(facts, copies, direction)
        exposed = main.activity.copy_exposed.covered_ns(gpu.start_ns[rows], gpu.end_ns[rows])
        found[kind.id] = Rows.of_device(facts.trace, rows, exposed)
    return found


def _rows_of(facts: Facts, rows: np.ndarray, direction: re.Pattern[str]) -> np.ndarray:
    """The copies whose names tell this direction."""
    return rows[facts.trace.named(facts.trace.gpu.name[rows], direction)]


def _way(facts: Facts, mine: np.ndarray, others: np.ndarray, work: Intervals) -> Way:
    """The copies of one direction, beside those of the other."""
    gpu = facts.trace.gpu
    copied, back = (Intervals.of_rows(gpu, rows).clip(*facts.trace.window_ns) for rows in (mine, others))
    pageable, pinned = (facts.trace.named(gpu.name[mine], memory) for memory in (_FROM_PAGEABLE, _FROM_PINNED))
    n_bytes = np.maximum(gpu.n_bytes[mine], 0)
    return Way(
        n_copies=int(mine.size),
        total_ns=copied.total_ns,
        exposed_ns=(copied - work).total_ns,
        beside_ns=((copied - work) & back).total_ns,
        n_bytes=int(n_bytes.sum()),
        median_bytes=median(n_bytes) if n_bytes.size else 0,
        pageable_fraction=float(pageable.mean()) if mine.size else 0.0,
        is_pinned=bool(mine.size and pinned.all()),
    )


def _by_name(facts: Facts, rows: np.ndarray) -> tuple[tuple[str, int, int, int], ...]:
    gpu = facts.trace.gpu
    out = []
    for code, places in rows_by_value(gpu.name[rows]):
        mine = rows[places]
        time = int((gpu.end_ns[mine] - gpu.start_ns[mine]).sum())
        out.append((facts.trace.name(int(code)), int(mine.size), int(np.maximum(gpu.n_bytes[mine], 0).sum()), time))
    return tuple(sorted(out, key=lambda row: -row[3]))


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What changes of the copies of a direction save of the window at most, ns."""

    overlap_ns: int
    """Hiding them: no more than the time that is not theirs already, and not what copies of the other direction take."""
    rate_ns: int
    """The same bytes at the rate of the link, and hidden as well; 0 where they are not slower than the link lets them."""
    most_ns: int
    """What is not bounded is all that is exposed: fewer bytes, or one copy in place of many."""

    @property
    def is_short_of_room(self) -> bool:
        """Whether hiding helps with the smaller part alone, and so does a better rate."""
        return 2 * max(self.overlap_ns, self.rate_ns) < self.most_ns


def bounds(result: Transfers, way: Way) -> Bounds:
    """The bounds of one direction."""
    window_ns = result.scope.window_ns
    overlap_ns = max(min(way.exposed_ns - way.beside_ns, window_ns - way.total_ns), 0)
    rate_ns = 0
    if way.pageable_fraction > 0.5 or is_slow(result, way):
        need_ns = 0 if result.link is None else round(way.n_bytes / result.link.bytes_per_ns)
        rate_ns = max(min(way.exposed_ns, window_ns - need_ns), 0)
    return Bounds(overlap_ns=overlap_ns, rate_ns=rate_ns, most_ns=way.exposed_ns)


def is_slow(result: Transfers, way: Way) -> bool:
    """Whether pinned memory moves far below what the link carries."""
    if result.link is None or not way.is_pinned or way.median_bytes < SLOW_BYTES:
        return False
    return way.n_bytes < TO_DEVICE.limit("slow_link") * result.link.bytes_per_ns * way.total_ns


def _saves_ns(result: Transfers, way: Way, kind: FindingKind) -> int:
    """What the fix that leads saves at most, in the window."""
    found = bounds(result, way)
    if _small(result.scope, way, kind) or found.is_short_of_room:
        return found.most_ns
    return max(found.overlap_ns, found.rate_ns)


def judge(result: Transfers) -> tuple[Finding, ...]:
    """`h2d.exposed` and `d2h.exposed` where copies of that direction stand alone."""
    found = []
    for kind, way, direction in ((TO_DEVICE, result.to_device, "to"), (FROM_DEVICE, result.from_device, "from")):
        fraction = result.scope.fraction(way.exposed_ns)
        if fraction >= kind.limit("window"):
            found.append(
                kind.found(
                    confidence=0.8,
                    recoverable_ns=result.scope.per_step(_saves_ns(result, way, kind)),
                    fraction=fraction,
                    evidence=tuple(_evidence(result, way, direction, kind)),
                    fix=_fix_to(result, way) if kind is TO_DEVICE else _fix_from(result, way),
                    proof="" if result.scope.is_of_torch or kind is not TO_DEVICE else _KEPT,
                    next_tools=(
                        system_timeline(
                            result.scope,
                            "are the copies slow, or issued at the wrong time?",
                            f"memcpy {'HtoD' if direction == 'to' else 'DtoH'} rows and kernels: in sequence on one stream,"
                            " or copies on a stream of their own",
                            is_for_any=True,
                        ),
                    ),
                )
            )
    return tuple(found)


def _evidence(result: Transfers, way: Way, direction: str, kind: FindingKind) -> Iterator[Evidence]:
    scope = result.scope
    fraction, beside = scope.fraction(way.exposed_ns), scope.fraction(way.beside_ns)
    others = scope.fraction(result.exposed_ns) - fraction
    is_beside = beside >= kind.limit("window")
    back = "from" if direction == "to" else "to"
    yield Evidence.time(
        f"transfers.exposed_{direction}_device_ns",
        way.exposed_ns,
        f"copies {direction} the device take {scope.time(way.exposed_ns)} while"
        f" {'no kernel' if is_beside else 'nothing else'} runs ({scope.share(way.exposed_ns, 'copy_exposed')} of the window)"
        + (f", {format_fraction(beside)} beside copies {back} the device" if is_beside else "")
        + (f"; other copies take a further {format_fraction(others)}" if others >= 0.02 else ""),
        expected=f"< {format_fraction(kind.limit('window'))} of the window",
    )
    yield Evidence.share(
        "transfers.pageable_fraction",
        way.pageable_fraction,
        _memory(way, "come from" if direction == "to" else "go into"),
        expected="0 % with pin_memory=True",
    )
    if way.n_bytes:
        rate = way.n_bytes / way.total_ns if way.total_ns else 0.0  # bytes per ns = GB/s
        yield Evidence(
            statement=f"{format_bytes(way.n_bytes / scope.n_steps)} {scope.each} at {rate:.1f} GB/s,"
            f" median copy {format_bytes(way.median_bytes)}{_far_below(result, way)}",
            metric="transfers.rate_bytes_per_s",
            value=rate * 1e9,
            unit="bytes/s",
        )
    yield from _bounded(result, way, kind)


def _memory(way: Way, verb: str) -> str:
    if way.n_copies == 1 and (way.is_pinned or way.pageable_fraction):
        memory = "pinned" if way.is_pinned else "pageable"
        return f"the only copy {'comes from' if verb == 'come from' else 'goes into'} {memory} memory"
    if way.is_pinned:
        return f"all {way.n_copies:,} copies {verb} pinned memory"
    return f"{format_fraction(way.pageable_fraction)} of {way.n_copies:,} copies {verb} pageable memory"


def _far_below(result: Transfers, way: Way) -> str:
    link = result.link
    if link is None or not is_slow(result, way):
        return ""
    return f": far below what pinned memory gets on this device's link ({link.name} carries {link.bytes_per_ns:g} GB/s)"


def _bounded(result: Transfers, way: Way, kind: FindingKind) -> Iterator[Evidence]:
    """What hiding the copies saves, and what their rate, where that is not all of their time."""
    scope, found = result.scope, bounds(result, way)
    if _small(scope, way, kind) or found.overlap_ns >= (1 - _WORTH_SAYING) * way.exposed_ns:
        return
    said = f"overlap alone saves at most {scope.time(found.overlap_ns)}"
    if found.rate_ns and result.link is not None:
        faster_ns = min(way.exposed_ns, max(way.total_ns - round(way.n_bytes / result.link.bytes_per_ns), 0))
        what = "pinned memory" if not way.is_pinned else "the full rate of the link"
        said += f", {what} alone at most {format_ns(scope.per_step(faster_ns))} ({result.link.name})"
    elif found.rate_ns:
        said += ", at the rate of pageable memory; pinned memory may be several times as fast"
    else:
        said += ": there is no more compute and idle time to hide copies under. More takes fewer bytes or a faster link"
    yield Evidence.time("transfers.hideable_ns", scope.per_step(found.overlap_ns), said)


def _small(scope: Scope, way: Way, kind: FindingKind) -> str:
    """Say how many small copies there are, nothing where they are few or large."""
    is_small = way.median_bytes and way.median_bytes < kind.limit("small_bytes")
    if not is_small or way.n_copies <= kind.limit("small_copies") * scope.n_steps:
        return ""
    return f"{format_count(way.n_copies / scope.n_steps)} small copies {scope.each}"


_PINNED: Final = "take pinned memory (cudaHostAlloc) and the asynchronous calls; "
_KEPT: Final = (
    "Leave the copies out for one run, with the data kept on the device: it becomes shorter by the exposed time."
)
_SLOW_FIX: Final = (
    "find out why pinned memory is slow: lanes and generation of the link (nvidia-smi -q), the way to the GPU (nvidia-smi"
    " topo -m), a CPU core and memory near it (numactl); then"
)


def _fix_to(result: Transfers, way: Way) -> str:
    is_of_torch = result.scope.is_of_torch
    if small := _small(result.scope, way, TO_DEVICE):
        return f"{small}: collate into one {'tensor' if is_of_torch else 'buffer'} and copy once"
    if not is_of_torch and not is_slow(result, way):
        pinned = _PINNED if way.pageable_fraction > 0.5 else ""
        return f"{pinned}copy ahead, on a stream of its own, while kernels run; send fewer bytes"
    if way.pageable_fraction > 0.5:
        return "use pin_memory=True and .to(device, non_blocking=True), on a side stream one batch ahead"
    if is_slow(result, way):
        return f"{_SLOW_FIX} send fewer bytes (uint8 or ids, expanded on the device)"
    if bounds(result, way).is_short_of_room:
        return "send fewer bytes: uint8 or ids, expanded on the device; nothing twice, nothing that is there already"
    return "copy one batch ahead on a side stream; send uint8 or ids and expand on the device"


def _fix_from(result: Transfers, way: Way) -> str:
    is_of_torch = result.scope.is_of_torch
    if small := _small(result.scope, way, FROM_DEVICE):
        return f"{small}: keep results on the device, {'stack them and ' if is_of_torch else ''}copy once"
    if not is_of_torch and not is_slow(result, way):
        pinned = _PINNED if way.pageable_fraction > 0.5 else ""
        return f"{pinned}copy on a stream of its own while the next kernels run; reduce on the device first"
    if way.pageable_fraction > 0.5:
        return "copy into pinned memory with non_blocking=True on a side stream; reduce on the device first"
    if is_slow(result, way):
        return f"{_SLOW_FIX} copy fewer bytes (reduce on the device first)"
    if bounds(result, way).is_short_of_room:
        return "copy fewer bytes: reduce on the device first; do not copy what nobody reads"
    return "copy on a side stream while the next kernels run; reduce on the device first; do not copy what nobody reads"


def present(result: Transfers) -> Section:
    """Show copies by kind."""
    return Section(
        title="copies",
        values={
            "n_copies": result.n_copies,
            "exposed_ns": result.exposed_ns,
            "to_device_bytes": result.to_device.n_bytes,
            "from_device_bytes": result.from_device.n_bytes,
            "pageable_fraction": result.to_device.pageable_fraction,
        },
        tables=(
            TableView.of(
                "copies by kind", {"copy": "text", "count": "count", "bytes": "bytes", "time": "ns"}, result.by_name
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
