"""An analysed trace as rows, curves, proofs and work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profkit.model.documents.tracks import Tracks
from profkit.pipeline import Analysed
from profkit.tracks.curves import curves_of
from profkit.tracks.names import Names
from profkit.tracks.proofs import proofs_of
from profkit.tracks.room import ROOM, in_room
from profkit.tracks.rows import rows_of
from profkit.tracks.work import work_of

if TYPE_CHECKING:
    from profkit.analyzers.roof.distance import Distance


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
        curves=curves_of(trace),
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
