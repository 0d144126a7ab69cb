"""What can be drawn of all ranks: each one's rows, with its collectives split, all on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.findings import KINDS
from profkit.model.arrays import I64
from profkit.model.documents.report import Bottleneck
from profkit.model.documents.tracks import CATEGORIES, MOST_SPANS, Proof, Role, Track, Tracks
from profkit.model.finding import Finding
from profkit.model.intervals import Intervals
from profkit.model.trace import I32
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import RankSummary
from profkit.tracks.lanes import lanes

_LANES: Final = 3
_APART: Final = 10
"""Windows further apart than so many of them are on clocks that say nothing of each other. Chosen."""
_WAIT, _TRANSFER = CATEGORIES.index("wait"), CATEGORIES.index("comm_exposed")


def drawn(joint: Joint, findings: Sequence[Finding]) -> tuple[Tracks, ...]:
    """The rows of the ranks that are compared, in their order; those of which none were drawn are left out."""
    shifts = _shifts(joint)
    return tuple(
        _of_rank(joint, outcome, tracks, shift, findings)
        for outcome, shift in zip(joint.outcomes, shifts, strict=True)
        if (tracks := outcome.tracks) is not None
    )


def _shifts(joint: Joint) -> list[int]:
    """What to add to each rank's times (ns since its own origin) to have them on the reference's clock.

    0 for all where no clocks are known, or where these put the ranks' windows far from each other.
    """
    found, begins = [], []
    for outcome in joint.outcomes:
        low, high = outcome.report.window_ns
        middle = (low + high) // 2
        summary = outcome.summary
        since = summary.origin_unix_ns - joint.clocks.base_unix_ns
        corrected = int(joint.clocks.corrected_ns(summary, np.array([middle], np.int64))[0])
        found.append(corrected - since - middle)
        begins.append(low + corrected - middle)
    longest = max(high - low for low, high in (outcome.report.window_ns for outcome in joint.outcomes))
    return found if max(begins) - min(begins) <= _APART * longest else [0] * len(found)


def _of_rank(joint: Joint, outcome: Outcome, tracks: Tracks, shift: int, findings: Sequence[Finding]) -> Tracks:
    names = list(tracks.names)
    rows, waits = _collectives(joint, outcome.summary, names)
    rank = outcome.summary.rank
    late = [finding for finding in findings if KINDS[finding.id].bottleneck is Bottleneck.STRAGGLER]
    held = _held_up(joint, outcome.summary)
    proofs = [
        _proof(f"finding:{finding.id}", finding.title, held if finding.rank == outcome.summary.rank else waits)
        for finding in late
    ]
    proofs.append(_proof("wait", "waiting for the last rank", waits))
    known = {proof.key for proof in tracks.proofs}
    new = {proof.key: proof for proof in proofs if proof.n and proof.key not in known}
    place = next((at for at, row in enumerate(tracks.tracks) if row.role in (Role.HOST, Role.STREAM, Role.THREAD)), 0)
    return replace(
        tracks,
        rank=rank,
        names=tuple(names),
        tracks=(*tracks.tracks[:place], *rows, *tracks.tracks[place:]),
        proofs=(*tracks.proofs, *new.values()),
        shift_ns=shift,
    )


def _collectives(joint: Joint, summary: RankSummary, names: list[str]) -> tuple[list[Track], tuple[I64, I64]]:
    """The collectives that are matched: what a rank waits in each for the last one, then the transfer; and the waits.

    A wait ends where the transfer begins, which is the rank's own moment: its start and its wait are on its own clock.
    """
    starts, ends, middles, codes = [], [], [], []
    table = summary.collectives
    for waits in joint.waits:
        if summary.rank not in waits.ranks:
            continue
        column = waits.ranks.index(summary.rank)
        mine = np.flatnonzero(waits.present[:, column])
        rows = waits.rows[mine, column]
        starts.append(table.start_ns[rows])
        ends.append(table.end_ns[rows])
        middles.append(np.clip(table.start_ns[rows] + waits.wait_ns[mine, column], table.start_ns[rows], ends[-1]))
        codes.append(table.name[rows])
    if not starts:
        return [], (np.empty(0, np.int64), np.empty(0, np.int64))
    start, end, middle, code = (np.concatenate(each) for each in (starts, ends, middles, codes))
    order = np.lexsort((-end, start))
    start, end, middle, code = start[order], end[order], middle[order], code[order]
    number = _numbers(summary, code, names)
    found, _ = lanes(start, end, _LANES)
    tracks = []
    for depth, at in enumerate(found):
        begin = np.stack((start[at], middle[at]), axis=1).reshape(-1)
        stop = np.stack((middle[at], end[at]), axis=1).reshape(-1)
        category = np.tile(np.array([_WAIT, _TRANSFER], np.uint8), at.size)
        kept = stop > begin
        tracks.append(
            Track(
                key=f"collectives:{depth}",
                label="" if depth else "collectives: wait, transfer",
                group="",
                role=Role.COLLECTIVES,
                start_ns=begin[kept],
                end_ns=stop[kept],
                name=np.repeat(number[at], 2)[kept],
                category=category[kept],
            )
        )
    waited = middle > start
    return tracks, (start[waited], middle[waited])


def _held_up(joint: Joint, summary: RankSummary) -> tuple[I64, I64]:
    """When the others wait for this rank: before each collective that it comes to last, for as long as the median one.

    Where two groups' collectives overlap, the times do; they are joined.
    """
    starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for waits in joint.waits:
        if summary.rank not in waits.ranks or len(waits.ranks) < 2:
            continue
        column = waits.ranks.index(summary.rank)
        mine = np.flatnonzero(waits.present[:, column] & (waits.wait_ns[:, column] == 0))
        others = np.delete(waits.wait_ns[mine], column, axis=1)
        waited = np.median(others, axis=1).astype(np.int64)
        came = summary.collectives.start_ns[waits.rows[mine, column]]
        starts.append(came - waited)
        ends.append(came)
    times = Intervals.of(np.concatenate(starts), np.concatenate(ends))
    return times.start_ns, times.end_ns


def _numbers(summary: RankSummary, code: np.ndarray[tuple[int], np.dtype[np.int32]], names: list[str]) -> I32:
    """The numbers of the collectives' names, which are added to those of the rank."""
    place = {name: number for number, name in enumerate(names)}
    of_code = {}
    for one in np.unique(code).tolist():
        text = summary.strings[one] if one >= 0 else "collective"
        if text not in place:
            place[text] = len(names)
            names.append(text)
        of_code[one] = place[text]
    return np.array([of_code[one] for one in code.tolist()], np.int32)


def _proof(key: str, label: str, waits: tuple[I64, I64]) -> Proof:
    start, end = waits
    n, total = int(start.size), int((end - start).sum())
    if n > MOST_SPANS:
        longest = np.sort(np.argpartition(start - end, MOST_SPANS)[:MOST_SPANS])
        start, end = start[longest], end[longest]
    return Proof(
        key=key, label=label, tracks=("collectives:0", "budget"), start_ns=start, end_ns=end, n=n, total_ns=total
    )
