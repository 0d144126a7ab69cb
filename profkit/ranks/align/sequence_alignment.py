"""Two ranks' sequences of collectives laid over each other: which of one is which of the other.

Not by position: a window may begin one collective later, or miss one in the middle. What tells is time. All ranks leave
a synchronising collective nearly together, so that under the right pairing the differences of ends are a constant
offset of the clocks with a slow drift; under a wrong one they vary as the work between collectives does.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool
from profkit.model.table import NO_ROW
from profkit.ranks.align.key_join import joined_by_ordinal

MAX_SHIFT: Final = 64
"""Collectives by which one window may begin before the other. Chosen: some steps of a job with buckets."""
MIN_CHECKED: Final = 6
"""Pairs whose ends must agree before a pairing counts as checked; half of them where both ranks hold the same short
sequence. Chosen: five differences that agree by chance to a tenth of the spread have a probability of 1e-5."""
_LEAST: Final = 4
_LOOSE: Final = 0.25  # of the time between ends: once the clocks are known, only this collective can be meant
_MAX_TRIED: Final = 8
_SLACK_NS: Final = 2_000  # traces of whole microseconds: two ends are each off by up to one
_WIDE: Final = 8
_RIVAL: Final = 0.8
_VOTE_NS: Final = 50_000
"""Chosen: drift of 100 ppm over half a second; what ends more loosely is not told by votes."""
_MOST_VOTING: Final = 4096
_CARRIED: Final = 20
"""Ends that carry a drift; with fewer, noise makes one."""
_MAX_DRIFT: Final = 2e-4  # 200 ppm: crystals are within 100 of each other; steeper lines fit noise


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's clock against another's at ends of collectives: `offset_ns + drift * (end - at_ns)`."""

    at_ns: int
    offset_ns: float
    drift: float

    def lag_ns(self, time_ns: int) -> float:
        """By how much the other rank's clock is ahead at a time."""
        return self.offset_ns + self.drift * (time_ns - self.at_ns)

    def expected_ns(self, end_ns: I64) -> NDArray[np.float64]:
        """When the other rank's clock should show these ends (of the reference's)."""
        return end_ns + self.offset_ns + self.drift * (end_ns - self.at_ns)


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """Per collective of the reference its row on the other rank, or `NO_ROW`; how sure that is.

    `is_checked`: the ends of at least `MIN_CHECKED` pairs agree within its tolerance, and no other pairing has nearly
    as many. `n_rival` is the number of agreeing ends of the best other pairing.
    """

    row: I64
    n_paired: int
    n_rival: int
    is_checked: bool


def paired(end_ns: I64, symbol: I64, other_end_ns: I64, other_symbol: I64) -> Pairing:
    """The pairing of two sequences of synchronising collectives, each in order of issue.

    Ends in ns on each rank's own clock; only equal symbols (kind, type and sizes) pair. Ends need not be sorted. Clocks
    of few ends are taken to keep pace; where that fits less than lines do, they may drift.
    """
    steady = _paired(end_ns, symbol, other_end_ns, other_symbol, may_drift=False)
    if min(end_ns.size, other_end_ns.size) >= _CARRIED:
        return steady
    drifting = _paired(end_ns, symbol, other_end_ns, other_symbol, may_drift=True)
    if not steady.is_checked:
        return drifting if drifting.is_checked else steady
    return drifting if drifting.n_paired > steady.n_paired else steady


def _paired(end_ns: I64, symbol: I64, other_end_ns: I64, other_symbol: I64, *, may_drift: bool) -> Pairing:
    tracks, spread = _candidates(end_ns, symbol, other_end_ns, other_symbol, may_drift=may_drift)
    tolerance = _WIDE * spread + _SLACK_NS
    tried = [
        _nearest(track, end_ns, symbol, other_end_ns, other_symbol, (4 * tolerance, tolerance)) for track in tracks
    ]
    found = [row for row, _ in tried]
    if not found:
        return Pairing(row=np.full(end_ns.size, NO_ROW, np.int64), n_paired=0, n_rival=0, is_checked=False)
    counts = [int((row >= 0).sum()) for row in found]
    best = int(np.argmax(counts))
    row = found[best]
    # a pairing shifted only in part is the same answer: what counts as a rival shares few pairs with the best
    rivals = [
        n for n, row in zip(counts, found, strict=True) if ((row == found[best]) & (row >= 0)).sum() < counts[best] // 2
    ]
    rival = max(rivals, default=0)
    needed = min(MIN_CHECKED, end_ns.size // 2) if np.array_equal(symbol, other_symbol) else MIN_CHECKED
    loose = _LOOSE * float(np.median(np.diff(np.sort(end_ns)))) if end_ns.size > 1 else tolerance
    row, _ = _nearest(tried[best][1], end_ns, symbol, other_end_ns, other_symbol, (max(tolerance, loose),))
    return Pairing(
        row=_filled(row, symbol, other_symbol),
        n_paired=counts[best],
        n_rival=rival,
        is_checked=counts[best] >= max(needed, _LEAST) and rival < _RIVAL * counts[best],
    )


def _filled(row: I64, symbol: I64, other_symbol: I64) -> I64:
    """Pair what lies between two pairs by order, where both ranks have equally many of a symbol there.

    Those are the same collectives, whose ends lie too far apart to say so themselves.
    """
    pairs = np.flatnonzero(row >= 0)
    left, right = np.flatnonzero(row < 0), np.setdiff1d(np.arange(other_symbol.size), row)
    mine = np.stack([np.searchsorted(pairs, left), symbol[left]], axis=1)
    theirs = np.stack([np.searchsorted(np.sort(row[pairs]), right), other_symbol[right]], axis=1)
    place = joined_by_ordinal([mine, theirs], needs_all=True)
    out = row.copy()
    out[left[place[:, 0]]] = right[place[:, 1]]
    return out


def _candidates(
    end: I64, symbol: I64, other_end: I64, other_symbol: I64, *, may_drift: bool
) -> tuple[list[Track], float]:
    """The clock offsets worth trying, one per shift whose ends agree best, and how well the best agree (ns).

    `may_drift`: for each also the line through its ends, however few they are.
    """
    shorter = min(end.size, other_end.size)
    least = max(3, shorter // 2) if shorter < 16 else max(8, shorter // 4)  # fewer agree by chance
    spreads, wide, shifts = [], [], []
    for shift in _shifts(end, other_end):
        at, lag = _lags(end, symbol, other_end, other_symbol, shift)
        if at.size >= least:
            steps = np.abs(np.diff(lag))
            spreads.append(_part(steps, 1 / 4))
            wide.append(_part(steps, 9 / 10))
            shifts.append(shift)
    if not shifts:
        return [], 0.0
    best = min(spreads)
    good = {place for place, spread in enumerate(spreads) if spread <= 3 * best + _SLACK_NS}
    # buckets of one step end alike under any shift by whole steps: what lies between steps tells, unless a window has
    # gaps, where each part has a shift of its own
    orders = [[int(place) for place in np.argsort(by, kind="stable") if place in good] for by in (spreads, wide)]
    tracks = []
    for place in dict.fromkeys(orders[1][: _MAX_TRIED // 2] + orders[0][: _MAX_TRIED // 2]):
        at, lag = _lags(end, symbol, other_end, other_symbol, shifts[place])
        if may_drift and at.size >= MIN_CHECKED:
            tracks.append(fitted(at, lag, drift=_slope(at, lag)))
        calm = np.flatnonzero(np.abs(np.diff(lag)) <= 3 * spreads[place] + _SLACK_NS)
        calm = np.union1d(calm, calm + 1)
        tracks.append(fitted(at[calm], lag[calm]))
    return [*tracks, *_voted(end, symbol, other_end, other_symbol)], best


def _shifts(end: I64, other_end: I64) -> range:
    return range(-min(MAX_SHIFT, end.size - 2), min(MAX_SHIFT, other_end.size - 2) + 1)


def _voted(end: I64, symbol: I64, other_end: I64, other_symbol: I64) -> list[Track]:
    """The clock offset on which at least half of the collectives agree closely, whatever the shift of each.

    With several gaps no one shift holds for a quarter of the window. Long windows are left to shifts: a quarter of them
    is plenty, and all their lags together would take 1 KB for each collective.
    """
    if max(end.size, other_end.size) > _MOST_VOTING:
        return []
    lags = [_lags(end, symbol, other_end, other_symbol, shift) for shift in _shifts(end, other_end)]
    at, lag = (np.concatenate(parts) for parts in zip(*lags, strict=True)) if lags else (end[:0], end[:0])
    if at.size == 0:
        return []
    order = np.argsort(lag, kind="stable")
    last = np.searchsorted(lag[order], lag[order] + _VOTE_NS, "right")
    votes = last - np.arange(at.size)
    first = int(np.argmax(votes))
    elsewhere = np.abs(lag[order] - lag[order[first]]) > 2 * _VOTE_NS
    chosen = np.sort(order[first : last[first]])
    is_enough = np.unique(at[chosen]).size >= max(MIN_CHECKED, min(end.size, other_end.size) // 2)
    if not is_enough or int(votes[elsewhere].max(initial=0)) >= _RIVAL * int(votes[first]):
        return []  # too few, or as many elsewhere: collectives like clockwork
    return [fitted(at[chosen], lag[chosen])]


def _lags(end: I64, symbol: I64, other_end: I64, other_symbol: I64, shift: int) -> tuple[I64, I64]:
    """The ends whose symbols agree under a shift, and by how much the other rank's lie behind."""
    first = max(0, -shift)
    n = min(end.size - first, other_end.size - first - shift)
    mine, theirs = slice(first, first + n), slice(first + shift, first + shift + n)
    same = symbol[mine] == other_symbol[theirs]
    return end[mine][same], (other_end[theirs] - end[mine])[same]


def _part(values: I64, part: float) -> float:
    """The value below which this part lies: a quarter, for a window with gaps has several right shifts."""
    place = min(int(values.size * part), values.size - 1)
    return float(np.partition(values, place)[place])


def fitted(at_ns: I64, lag_ns: I64, *, drift: float = 0.0) -> Track:
    """The line through clock differences: slope by Theil-Sen, offset by median (docs/sources.md, rule 16).

    Slope from at most 60 points in pairs more than a fifth of the span apart; zero where it is beyond 200 ppm. Of fewer
    than 20 points it is `drift`.
    """
    middle = int(np.median(at_ns))
    drift = _slope(at_ns, lag_ns) if at_ns.size >= _CARRIED else drift
    rest = lag_ns - drift * (at_ns - middle)
    return Track(at_ns=middle, offset_ns=float(np.median(rest)), drift=drift)


def _slope(at: I64, lag: I64) -> float:
    chosen = np.unique(np.linspace(0, at.size - 1, 60).astype(np.int64))
    at, lag = at[chosen], lag[chosen]
    run = at[:, None] - at[None, :]
    far = run > 0.2 * (at.max() - at.min())
    if not far.any():
        return 0.0
    slope = float(np.median((lag[:, None] - lag[None, :])[far] / run[far]))
    return slope if abs(slope) <= _MAX_DRIFT else 0.0


def _nearest(
    track: Track, end: I64, symbol: I64, other_end: I64, other_symbol: I64, slacks: tuple[float, ...]
) -> tuple[I64, Track]:
    """Per collective: the row whose end is where the track expects it, if each is the other's nearest.

    Once per slack (ns), each time along the line through the pairs of the time before, whose drift is better known.
    """
    row = np.full(end.size, NO_ROW, np.int64)
    order = np.argsort(other_end, kind="stable")
    for slack in slacks:
        expected = track.expected_ns(end)
        row = np.full(end.size, NO_ROW, np.int64)
        near = order[_closest(other_end[order], expected)]
        back = np.argsort(expected, kind="stable")
        mutual = back[_closest(expected[back], other_end[near])] == np.arange(end.size)
        good: Bool = mutual & (symbol == other_symbol[near]) & (np.abs(other_end[near] - expected) <= slack)
        row[good] = near[good]
        if good.sum() >= 2:
            track = fitted(end[good], other_end[near[good]] - end[good], drift=track.drift)
    return row, track


def _closest(ordered: NDArray[np.int64] | NDArray[np.float64], at: NDArray[np.int64] | NDArray[np.float64]) -> I64:
    """The position in `ordered` (rising, not empty) nearest to each time."""
    right = np.clip(np.searchsorted(ordered, at), 1, max(ordered.size - 1, 1))
    right = np.minimum(right, ordered.size - 1)
    left = np.maximum(right - 1, 0)
    return np.where(np.abs(ordered[left] - at) <= np.abs(ordered[right] - at), left, right).astype(np.int64)
