"""What can be drawn of all ranks: each one's rows, with its collectives split, all on one clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.findings import KINDS
from profkit.model.arrays import I64, Bool
from profkit.model.documents.report import Bottleneck
from profkit.model.documents.tracks import CATEGORIES, MOST_SPANS, Proof, Role, Track, Tracks
from profkit.model.finding import Finding
from profkit.model.intervals import Intervals
from profkit.model.trace import I32
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.stragglers import own_lateness_ns
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import RankSummary
from profkit.tracks.rows import lanes

_LANES: Final = 3
_HELD: Final = "later than the median rank, by its own work"
_WAITED: Final = "waiting for the last rank"
_HIDDEN: Final = ", also where compute hides it"
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
        _proof(f"finding:{finding.id}", f"{_HELD}: {finding.title}", held)
        if finding.rank == rank
        else _proof(f"finding:{finding.id}", f"{_WAITED}: {finding.title}", waits)
        for finding in sorted(late, key=lambda finding: finding.rank == rank)  # of one key, the last one stays
    ]
    proofs += _of_communication(joint, outcome.summary, findings)
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
    parts = []
    for waits in joint.waits:
        if summary.rank in waits.ranks:
            column = waits.ranks.index(summary.rank)
            rows = waits.rows[waits.present[:, column], column]
            parts.append((*_stretches(waits, summary), summary.collectives.name[rows]))
    if not parts:
        return [], (np.empty(0, np.int64), np.empty(0, np.int64))
    start, middle, end, code = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.lexsort((-end, start))
    start, middle, end, code = start[order], middle[order], end[order], code[order]
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
    """How long the others would wait less: before each collective, by how much this rank comes after the median one.

    Only as far as its own work since its collective before explains it, as `measure.stragglers` counts lateness; where
    two groups' collectives overlap, the times do, and are joined.
    """
    starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for waits in joint.waits:
        if summary.rank not in waits.ranks or len(waits.ranks) < 2:
            continue
        column = waits.ranks.index(summary.rank)
        late = own_lateness_ns(waits, _before(joint, waits, summary.rank))[:, column]
        mine = np.flatnonzero(late > 0)
        came = summary.collectives.start_ns[waits.rows[mine, column]]
        starts.append(came - late[mine])
        ends.append(came)
    times = Intervals.of(np.concatenate(starts), np.concatenate(ends))
    return times.start_ns, times.end_ns


def _before(joint: Joint, waits: GroupWaits, rank: int) -> list[int]:
    """The ranks of a group that are named as late before this one: it is late beside the rest."""
    of_group = [answer for answer in joint.stragglers if answer.group == waits.group]
    late = sorted(
        (one for answer in of_group for one in (*answer.named, *answer.hidden)), key=lambda one: -one.lateness_ns
    )
    named = [one.rank for one in late]
    return named[: named.index(rank)] if rank in named else []


def _of_communication(joint: Joint, summary: RankSummary, findings: Sequence[Finding]) -> list[Proof]:
    """What proves numbers on communication of all ranks, on the rank that they are of, whichever finding tells them."""
    known = dict(_numbered(joint, summary))
    made = [_proof(f"measure:{metric}", *proof) for metric, proof in known.items()]
    told = [finding for finding in findings if finding.measure.metric in known]
    return made + [_proof(f"finding:{finding.id}", *known[finding.measure.metric]) for finding in told]


def _numbered(joint: Joint, summary: RankSummary) -> Iterator[tuple[str, tuple[str, tuple[I64, I64]]]]:
    """By metric of `findings.communication`: what its intervals are, and they, where the number is of this rank."""
    pairs = [pair for pair in zip(joint.limits, joint.waits, strict=True) if pair[0].is_enough]
    skewed, slow = ([pair for pair in pairs if pair[0].is_skew is is_skew] for is_skew in (True, False))
    if skewed:
        waits = max(skewed, key=lambda pair: pair[0].wait_exposed_ns)[1]
        if waits.ranks[int(waits.wait_exposed_ns.sum(axis=0).argmax())] == summary.rank:
            start, middle, _ = _stretches(waits, summary)
            yield "comm.wait_exposed_ns", (f"{_WAITED}{_HIDDEN}", (start, middle))
    if slow:
        waits = max(slow, key=lambda pair: pair[0].transfer_exposed_ns)[1]
        if _median_rank(waits, np.maximum(waits.exposed_once_ns - waits.wait_exposed_ns, 0)) == summary.rank:
            _, middle, end = _stretches(waits, summary)
            yield "comm.transfer_exposed_ns", (f"transfer after the last rank has come{_HIDDEN}", (middle, end))
    suspects = [
        (row, waits) for waits, rows in zip(joint.waits, joint.traffic, strict=True) for row in rows if row.is_suspect
    ]
    if suspects:
        row, waits = max(suspects, key=lambda pair: pair[0].exposed_ns)
        lowest = next(one for one in joint.summaries if one.rank == waits.ranks[0])
        issuer = np.where(waits.rows[:, 0] >= 0, lowest.collectives.issuer[waits.rows[:, 0]], -1)
        mine = (waits.kind == row.kind) & (waits.n_bytes == row.n_bytes) & (issuer < 0)
        if _median_rank(waits, waits.exposed_once_ns[mine]) == summary.rank:
            start, _, end = _stretches(waits, summary, mine)
            yield "collective.exposed_ns", (f"collectives that the script itself issues{_HIDDEN}", (start, end))


def _median_rank(waits: GroupWaits, spent_ns: I64) -> int:
    """The rank with the median of these times, [n, R], added up; of an even number, the upper of the two."""
    order = np.argsort(spent_ns.sum(axis=0), kind="stable")
    return waits.ranks[int(order[order.size // 2])]


def _stretches(waits: GroupWaits, summary: RankSummary, only: Bool | None = None) -> tuple[I64, I64, I64]:
    """Of a rank's collectives of a group the starts, the moments where the last rank comes, and the ends."""
    column = waits.ranks.index(summary.rank)
    present = waits.present[:, column] if only is None else waits.present[:, column] & only
    mine = np.flatnonzero(present)
    rows = waits.rows[mine, column]
    start, end = summary.collectives.start_ns[rows], summary.collectives.end_ns[rows]
    return start, np.clip(start + waits.wait_ns[mine, column], start, end), end


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
    """The proof by these times, joined where they overlap: those of one rank may run beside each other."""
    times = Intervals.of(*waits)
    start, end = times.start_ns, times.end_ns
    n, total = len(times), times.total_ns
    if n > MOST_SPANS:
        longest = np.sort(np.argpartition(start - end, MOST_SPANS)[:MOST_SPANS])
        start, end = start[longest], end[longest]
    return Proof(
        key=key, label=label, tracks=("collectives:0", "budget"), start_ns=start, end_ns=end, n=n, total_ns=total
    )
