"""The clocks of the ranks against each other, from the ends of collectives all of them took part in.

All ranks leave a synchronising collective nearly together, whoever came late. So the differences of ends are clock
offset and drift, and what remains of them is the error bar (docs/sources.md, rule 16).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.ranks.align.match_types import GroupMatch, Matching
from profkit.ranks.align.sequence_alignment import Track, fitted
from profkit.ranks.reduce.collective_kinds import is_synchronising
from profkit.ranks.reduce.records import RankSummary

MIN_ENDS: Final = 20
"""Ends a clock is fitted to at least; with fewer the clock-free estimate alone is used (docs/sources.md, rule 16)."""
_ROUNDS: Final = 2


class RankClock(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's clock against the reference's: it shows `offset_ns + drift * (t - at)` more.

    `residual_p95_ns`: how far the rank's ends lie from the other ranks' after correction, 95 of 100 within.
    `is_fitted` is False where fewer than `MIN_ENDS` ends tie the rank to the reference; offset and drift are 0 then.
    """

    rank: int
    offset_ns: float
    drift: float
    n_ends: int
    residual_p95_ns: float
    is_fitted: bool


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """All clocks; times are corrected to the reference rank's, in ns since `base_unix_ns`."""

    reference: int
    base_unix_ns: int
    at_ns: int
    ranks: Mapping[int, RankClock]

    def corrected_ns(self, summary: RankSummary, time_ns: I64) -> I64:
        """Times of a rank (ns since its own origin) on the reference's clock, ns since `base_unix_ns`."""
        time = time_ns + (summary.origin_unix_ns - self.base_unix_ns)
        clock = self.ranks[summary.rank]
        ahead: I64 = np.rint(clock.offset_ns + clock.drift * (time - self.at_ns)).astype(np.int64)
        return time - ahead

    @property
    def residual_p95_ns(self) -> float:
        """The largest residual of any fitted rank."""
        return max((clock.residual_p95_ns for clock in self.ranks.values() if clock.is_fitted), default=0.0)


class _Ends(msgspec.Struct, frozen=True):
    """Ends of synchronising instances of one group, NaN where absent: ns since the common base, [n, R]."""

    ranks: tuple[int, ...]
    ends: NDArray[np.float64]


def aligned(summaries: Sequence[RankSummary], matching: Matching) -> Clocks:
    """Offset and drift of each rank; those that no chain of shared collectives ties to the first are not fitted.

    Along a tree of pairs first, then against the middle of all ranks of each instance, which no single rank pulls.
    """
    by_rank = {summary.rank: summary for summary in summaries}
    base = min((summary.origin_unix_ns for summary in summaries), default=0)
    start = min((summary.origin_unix_ns + summary.window_ns[0] for summary in summaries), default=0)
    groups = [_ends(match, by_rank, start) for match in matching.groups]
    groups = [group for group in groups if len(group.ends)]
    reference = min(by_rank, default=0)
    tracks = _along_tree(groups, reference)
    for _ in range(_ROUNDS):
        tracks = _refined(groups, tracks)
    zero = tracks.get(reference, _ZERO)
    middle = int(np.median([track.at_ns for track in tracks.values()])) if tracks else 0
    rests = _rests(groups, tracks)
    clocks = {}
    for rank, summary in by_rank.items():
        rest = rests[rank][1] if rank in rests else np.empty(0)
        residual = float(np.quantile(np.abs(rest), 0.95)) if rest.size else 0.0
        is_fitted = rank in tracks
        offset = tracks[rank].lag_ns(middle) - zero.lag_ns(middle) if is_fitted else 0.0
        drift = tracks[rank].drift - zero.drift if is_fitted else 0.0
        if summary.host and summary.host == by_rank[reference].host and abs(offset) <= residual:
            offset = drift = 0.0  # one host has one clock: what is left is how its ranks leave a collective
        clocks[rank] = RankClock(
            rank=rank,
            offset_ns=offset,
            drift=drift,
            n_ends=int(rest.size),
            residual_p95_ns=residual,
            is_fitted=is_fitted,
        )
    return Clocks(reference=reference, base_unix_ns=base, at_ns=middle + start - base, ranks=clocks)


_ZERO: Final = Track(at_ns=0, offset_ns=0.0, drift=0.0)


def _ends(match: GroupMatch, by_rank: Mapping[int, RankSummary], start: int) -> _Ends:
    columns = [by_rank[rank].collectives for rank in match.ranks]
    kind = np.max(
        [np.where(rows >= 0, table.kind[rows], 0) for table, rows in zip(columns, match.rows.T, strict=True)], axis=0
    )
    rows = match.rows[is_synchronising(kind)]
    ends = np.full(rows.shape, np.nan)
    for column, (rank, table) in enumerate(zip(match.ranks, columns, strict=True)):
        there = rows[:, column] >= 0
        shifted = table.end_ns[rows[there, column]] + (by_rank[rank].origin_unix_ns - start)
        ends[there, column] = shifted  # exact: a float64 holds 100 days of ns
    return _Ends(match.ranks, ends)


def _along_tree(groups: Sequence[_Ends], reference: int) -> dict[int, Track]:
    """Each rank's track against the reference, through ranks that share at least `MIN_ENDS` ends with it."""
    tracks: dict[int, Track] = {reference: _ZERO}
    frontier = [reference]
    all_ranks = {rank for group in groups for rank in group.ranks}
    wanted = all_ranks - {reference}
    while frontier and wanted:
        known = frontier.pop(0)
        lags = _lags(groups, known, wanted=wanted)
        for rank in sorted(lags):
            at, lag = (np.concatenate(parts) for parts in zip(*lags[rank], strict=True))
            if at.size < MIN_ENDS:
                continue
            step = fitted(at, lag)
            first = tracks[known]
            offset = step.offset_ns + first.lag_ns(step.at_ns)
            tracks[rank] = Track(at_ns=step.at_ns, offset_ns=offset, drift=step.drift + first.drift)
            frontier.append(rank)
            wanted.discard(rank)
    return tracks if len(tracks) > 1 else {}


def _lags(groups: Sequence[_Ends], known: int, *, wanted: set[int]) -> dict[int, list[tuple[I64, I64]]]:
    """Per wanted rank that shares a group with this one: this one's ends and by how much the rank's differ."""
    out: dict[int, list[tuple[I64, I64]]] = {}
    for group in groups:
        if known not in group.ranks:
            continue
        mine = group.ends[:, group.ranks.index(known)]
        for column, rank in enumerate(group.ranks):
            if rank not in wanted:
                continue
            both = ~np.isnan(mine) & ~np.isnan(group.ends[:, column])
            if both.any():
                at, theirs = mine[both].astype(np.int64), group.ends[both, column].astype(np.int64)
                out.setdefault(rank, []).append((at, theirs - at))
    return out


def _rests(groups: Sequence[_Ends], tracks: Mapping[int, Track]) -> dict[int, NDArray[np.float64]]:
    """Give, per rank, (end, how far it lies after the middle of all ranks' ends) of each instance, [2, n]."""
    out: dict[int, list[NDArray[np.float64]]] = {}
    for group in groups:
        corrected = np.full(group.ends.shape, np.nan)
        for column, rank in enumerate(group.ranks):
            if (track := tracks.get(rank)) is not None:
                ends = group.ends[:, column]
                corrected[:, column] = ends - track.offset_ns - track.drift * (ends - track.at_ns)
        usable = (~np.isnan(corrected)).sum(axis=1) > 1
        corrected = corrected[usable]
        rest = corrected - np.nanmedian(corrected, axis=1, keepdims=True) if len(corrected) else corrected
        for column, rank in enumerate(group.ranks):
            there = ~np.isnan(rest[:, column])
            if there.any():
                out.setdefault(rank, []).append(np.stack([group.ends[usable, column][there], rest[there, column]]))
    return {rank: np.concatenate(parts, axis=1) for rank, parts in out.items()}


def _refined(groups: Sequence[_Ends], tracks: Mapping[int, Track]) -> dict[int, Track]:
    out = dict(tracks)
    for rank, (end, rest) in _rests(groups, tracks).items():
        order = np.argsort(end)
        change = fitted(end[order].astype(np.int64), np.rint(rest[order]).astype(np.int64))
        track = tracks[rank]
        offset = track.lag_ns(change.at_ns) + change.offset_ns
        out[rank] = Track(at_ns=change.at_ns, offset_ns=offset, drift=track.drift + change.drift)
    return out
