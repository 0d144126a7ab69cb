"""An analysed trace as rows, curves, proofs and work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.documents.tracks import Curve, Tracks
from profkit.model.trace import Trace
from profkit.pipeline import Analysed
from profkit.timeline.allocations import pools
from profkit.tracks.proofs import proofs_of
from profkit.tracks.rows import ROOM, Names, in_room, rows_of
from profkit.tracks.work import work_of

if TYPE_CHECKING:
    from profkit.analyzers.roof.distance import Distance


_BUCKETS: Final = 2000
"""Chosen: about a screen's width in pixels; each bucket keeps its first, least, greatest and last point."""


def tracks_of(analysed: Analysed, *, room: int = ROOM) -> Tracks:
    """What can be drawn of one rank, with about `room` intervals at most."""
    facts, trace = analysed.facts, analysed.facts.trace
    names = Names(trace)
    rows = in_room(rows_of(facts, names), room)
    distance: Distance | None = analysed.results.get("roof")
    work, n_work = work_of(facts, names, None if distance is None else distance.operators)
    peak_flops, peak_bytes = _peaks(distance)
    return Tracks(
        source=trace.meta.source,
        rank=analysed.rank.rank,
        origin_unix_ns=trace.origin_unix_ns,
        window_ns=trace.window_ns,
        tracks=rows,
        curves=tuple(_curves(trace)),
        proofs=proofs_of(facts, analysed.results, analysed.rank.findings, rows),
        work=work,
        n_work=n_work,
        peak_flops=peak_flops,
        peak_bytes=peak_bytes,
        names=names.texts,
    )


def _peaks(distance: Distance | None) -> tuple[float | None, float | None]:
    """The device's peak for the number format of most of the model's products, and that of its memory."""
    if distance is None or distance.peak is None or distance.above:
        return None, None
    precision = distance.precision
    rate = distance.peak.flop_per_s.get(precision) if precision is not None else None
    return rate, distance.peak.bytes_per_s


def _curves(trace: Trace) -> Iterator[Curve]:
    """Allocated and reserved bytes inside the window; none where allocations were not recorded."""
    low, high = trace.window_ns
    for pool in pools(trace):
        where = "host" if pool.is_host else f"GPU {pool.device}"
        inside = np.flatnonzero((pool.start_ns >= low) & (pool.start_ns < high))
        for word, values in (("allocated", pool.allocated_bytes), ("reserved", pool.reserved_bytes)):
            if values is not None and inside.size:
                shown = inside[_outline(pool.start_ns[inside], values[inside])]
                yield Curve(
                    key=f"memory:{where}:{word}",
                    label=f"{where}: {word} memory",
                    unit="bytes",
                    at_ns=pool.start_ns[shown],
                    value=values[shown],
                )


def _outline(at_ns: I64, values: I64) -> NDArray[np.intp]:
    """The points that a line of `_BUCKETS` pixels can show: the greatest and the least are among them."""
    if at_ns.size <= 4 * _BUCKETS:
        return np.arange(at_ns.size)
    width = max(int(at_ns[-1] - at_ns[0]), 1)
    bucket = (at_ns - at_ns[0]) * _BUCKETS // (width + 1)
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    last = np.append(first[1:], at_ns.size) - 1
    order = np.lexsort((values, bucket))
    return np.unique(np.concatenate((first, last, order[first], order[last])))
