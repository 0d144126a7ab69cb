"""The same collective on every rank, and how it was recognised.

In order of trust: by the group's own sequence number; by order, checked by the ends (see `shift`); by order within
steps of one number; by order alone where all ranks hold the same sequence. Sizes must agree. What cannot be told apart
is refused with its reason, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool
from profkit.model.table import NO_ROW
from profkit.ranks.align.key_join import Keyed, joined, joined_in_steps, joined_in_turn
from profkit.ranks.align.match_types import GroupMatch, Matching, Method, PairMatch, Refusal
from profkit.ranks.align.p2p_match import point_to_point
from profkit.ranks.align.sequence_alignment import MIN_CHECKED, Pairing, paired
from profkit.ranks.reduce.collective_kinds import POINT_TO_POINT, CollectiveKind, is_synchronising
from profkit.ranks.reduce.records import Group, RankSummary
from profkit.units import format_fraction

_MIN_AGREEING: Final = 0.9
"""Share of instances whose sizes agree, below which the sequence numbers are not believed, and of those in which ranks
must meet for steps to be believed against their ends. Chosen."""
_MIN_TOGETHER: Final = 0.5
"""Share of instances that all ranks must be inside of at one time. Chosen: ranks of different groups share none."""
_MOST_APART: Final = 16
"""Collectives by which one rank's window may begin before another's. Chosen: a step or two of a job on CPUs."""
_LOOSE: Final = 3.0
"""Times as far apart as under the ends' own pairs that ends may lie under those of the steps: those are believed then.
Chosen: of drawn jobs whose ranks leave gloo's collectives up to 4 ms apart, the ends put 14 of 48 some steps off, and
fitted those by 0.8 to 2.4 times better; NCCL's ends fit by a hundred times."""
_SIZED: Final = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.BARRIER,
)
"""Kinds whose sizes are equal on all ranks; an all-to-all with splits, a gather or a scatter has one per rank."""


def matched(summaries: Sequence[RankSummary]) -> Matching:
    """The collectives that ranks have in common; each rank must be there once (ValueError)."""
    by_rank = {summary.rank: summary for summary in summaries}
    if len(by_rank) != len(summaries):
        raise ValueError(f"ranks {sorted(summary.rank for summary in summaries)}: each must be there once")
    groups: list[GroupMatch] = []
    pairs: list[PairMatch] = []
    refusals: list[Refusal] = []
    for group, members in _groups(by_rank):
        whole, rows = point_to_point(group, members)
        pairs += whole
        refusals += rows
        found = _collectives(group, members)
        groups += found[0]
        refusals += found[1]
    return Matching(groups=tuple(groups), pairs=tuple(pairs), refusals=tuple(refusals))


def _groups(by_rank: Mapping[int, RankSummary]) -> list[tuple[Group, dict[int, RankSummary]]]:
    """The groups with their ranks in order."""
    found: dict[Group, dict[int, RankSummary]] = {}
    for rank in sorted(by_rank):
        for group in by_rank[rank].groups:
            found.setdefault(group, {})[rank] = by_rank[rank]
    return sorted(found.items(), key=lambda item: (item[0].name, item[0].ranks, item[0].size))


class _Sequence(msgspec.Struct, frozen=True):
    """One rank's collectives of one group, in order of issue; `symbol` is equal where kind, type and sizes are."""

    row: I64
    symbol: I64
    seq: I64
    start_ns: I64
    end_ns: I64
    step_number: I64
    is_synchronising: Bool


def _collectives(group: Group, members: Mapping[int, RankSummary]) -> tuple[list[GroupMatch], list[Refusal]]:
    sequences = _sequences(group, members, sized=_SIZED)
    ranks = tuple(sequences)
    if not ranks:
        return [], []
    n_rows = sum(sequence.row.size for sequence in sequences.values())
    if len(ranks) == 1:
        return [], [Refusal(group=group, ranks=ranks, reason="only one rank of this group is here", n_rows=n_rows)]
    columns = list(sequences.values())
    by_seq = _by_seq(columns)
    if by_seq is not None and by_seq.agreeing >= _MIN_AGREEING:
        return [_match(group, sequences, Method.SEQ, by_seq.place)], []
    note = "" if group.name else "the trace names no process groups: all its collectives are treated as one group"
    if by_seq is not None:
        note = f"sequence numbers pair equal sizes in only {format_fraction(by_seq.agreeing)} of cases: not used"
    is_one_host = len({members[rank].host for rank in ranks}) == 1 and members[ranks[0]].host != ""
    if is_one_host and (apart := _shifted(columns)) is not None:
        return [_match(group, sequences, Method.ORDER, apart, note)], []
    checked = _by_ends(columns)
    good = [place for place, pairing in enumerate(checked) if pairing.is_checked]
    if len(good) > 1:
        kept = {ranks[place]: columns[place] for place in good}
        place = joined_in_turn([checked[i].row for i in good], list(kept.values()))
        uneven = list(_sequences(group, members, sized=()).values()) if group.ranks else columns
        if (better := _fuller_steps(place, good, columns, uneven)) is not None:
            return [_match(group, sequences, Method.STEPS, better, note)], []
        left = [rank for rank in ranks if rank not in kept]
        refusals = [_unplaced(group, sequences, rank, checked[ranks.index(rank)]) for rank in left]
        return [_match(group, kept, Method.ENDS, place, note)], refusals
    in_order = _unchecked(group, sequences, note)
    if in_order[0] or not group.ranks:
        return in_order
    # Some ranks' parts are larger, as of uneven shards: the order within steps of a named group's ranks must tell then.
    unsized = _unchecked(group, _sequences(group, members, sized=()), note)
    return unsized if unsized[0] and unsized[0][0].method is Method.STEPS else in_order


def _shifted(columns: Sequence[_Sequence]) -> I64 | None:
    """The match by order alone, some places apart, where by the clock of their host all ranks are inside together.

    None where the steps say as much. On rank 0 a step may begin before a collective that ends it on the others: with
    what that rank alone does after the optimizer's step.
    """
    steps = joined_in_steps([sequence.step_number for sequence in columns], [sequence.symbol for sequence in columns])
    if steps is not None and _together_fraction(steps, columns, are_aligned=True) >= _MIN_AGREEING:
        return None
    first = columns[0]
    shifts = [_shift(first, other) for other in columns]
    if None in shifts:
        return None
    apart = np.array(shifts, np.int64)
    begin = max(-int(apart.min()), 0)
    end = min(column.row.size - shift for column, shift in zip(columns, apart.tolist(), strict=True))
    return np.arange(begin, end, dtype=np.int64)[:, None] + apart


def _shift(first: _Sequence, other: _Sequence) -> int | None:
    """By how many places the other's collectives come later in its sequence; None where no shift, or several, fit."""
    found = []
    for shift in range(-_MOST_APART, _MOST_APART + 1):
        begin, end = max(-shift, 0), min(first.row.size, other.row.size - shift)
        if end - begin < MIN_CHECKED or not np.array_equal(
            first.symbol[begin:end], other.symbol[begin + shift : end + shift]
        ):
            continue
        place = np.arange(begin, end, dtype=np.int64)[:, None] + np.array([0, shift])
        if _together_fraction(place, (first, other), are_aligned=True) >= _MIN_AGREEING:
            found.append(shift)
    return found[0] if len(found) == 1 else None


def _fuller_steps(
    place: I64, placed: Sequence[int], columns: Sequence[_Sequence], uneven: Sequence[_Sequence]
) -> I64 | None:
    """The match by steps, if it joins more than the ends do and is the better told of the two; None otherwise.

    `place` [n, len(placed)] is what the ends join. On a busy CPU ranks leave gloo's collectives milliseconds apart,
    buckets that run beside each other cross, and the ends place a rank in half of its collectives, not at all, or a few
    steady steps off. Steps are believed where all ranks are inside of their collectives at one time by clocks as they
    are, or where the ends agree with them; ranks the ends do not place must have been inside together in any case.
    Of hosts with clocks of their own the first does not hold: there they are believed where the ends tell nothing.
    `uneven`: the same collectives, equal whatever their sizes.
    """
    steps = joined_in_steps([sequence.step_number for sequence in columns], [sequence.symbol for sequence in columns])
    if steps is None:
        steps = joined_in_steps([sequence.step_number for sequence in uneven], [sequence.symbol for sequence in uneven])
    if steps is None or len(steps) * len(columns) <= int((place >= 0).sum()):
        return None
    if _together_fraction(steps, columns, are_aligned=True) >= _MIN_AGREEING:
        return steps
    if _together_fraction(steps, columns) >= _MIN_AGREEING and _are_loose(place, placed, steps, columns):
        return steps
    if _agreeing_fraction(place, steps[:, list(placed)]) < _MIN_TOGETHER:
        return None
    return steps if len(placed) == len(columns) or _together_fraction(steps, columns) >= _MIN_TOGETHER else None


def _are_loose(place: I64, placed: Sequence[int], steps: I64, columns: Sequence[_Sequence]) -> bool:
    """Whether the ends fit the pairs they have found hardly better than those that the steps give, or found few.

    Where they tell the pairs, those of other steps fit many times worse: by what steps differ in length.
    """
    chosen = [columns[one] for one in placed]
    both = place[(place >= 0).all(axis=1)]
    if 2 * len(both) <= len(steps):
        return True
    return _spread_ns(steps[:, list(placed)], chosen) <= _LOOSE * _spread_ns(both, chosen)


def _spread_ns(place: I64, columns: Sequence[_Sequence]) -> float:
    """How far the ends of a pair [n, R] lie from where the others put them: 95 of 100 within, on the worst rank."""
    end = np.stack([column.end_ns[rows] for column, rows in zip(columns, place.T, strict=True)], axis=1)
    lag = end - end[:, :1]
    return float(np.quantile(np.abs(lag - np.median(lag, axis=0)), 0.95, axis=0).max())


def _agreeing_fraction(place: I64, other: I64) -> float:
    """The share of the pairs of rows joined by one match [n, R] that another one [m, R] joins too."""
    fullest = int((place >= 0).sum(axis=0).argmax())
    n_agreeing = n_pairs = 0
    for column in range(place.shape[1]):
        pair = [fullest, column]
        both = place[(place[:, pair] >= 0).all(axis=1)][:, pair] if column != fullest else place[:0, pair]
        n_agreeing += len(both) + len(other) - len(np.unique(np.concatenate((other[:, pair], both)), axis=0))
        n_pairs += len(both)
    return n_agreeing / n_pairs if n_pairs else 0.0


def _unchecked(group: Group, sequences: Mapping[int, _Sequence], note: str) -> tuple[list[GroupMatch], list[Refusal]]:
    """Match by steps or by order alone what ends too loosely to be told by its ends; refuse what cannot be one."""
    columns, ranks = list(sequences.values()), tuple(sequences)
    n_rows = sum(sequence.row.size for sequence in columns)
    method = Method.STEPS
    place = joined_in_steps([sequence.step_number for sequence in columns], [sequence.symbol for sequence in columns])
    if place is None and all(np.array_equal(sequence.symbol, columns[0].symbol) for sequence in columns):
        method, place = Method.ORDER, np.repeat(np.arange(columns[0].row.size)[:, None], len(columns), axis=1)
    if place is None:
        counts = ", ".join(f"rank {rank}: {sequence.row.size}" for rank, sequence in sequences.items())
        reason = f"no sequence numbers, different sequences ({counts}), and several shifts fit equally well"
        return [], [Refusal(group=group, ranks=ranks, reason=reason, n_rows=n_rows)]
    together = _together_fraction(place, columns)
    if together < _MIN_TOGETHER:
        share = format_fraction(together)
        reason = f"matched by {method.value}, only {share} would overlap in time: not the same collectives"
        return [], [Refusal(group=group, ranks=ranks, reason=reason, n_rows=n_rows)]
    return [_match(group, sequences, method, place, note)], []


def _together_fraction(place: I64, columns: Sequence[_Sequence], *, are_aligned: bool = False) -> float:
    """The share of instances in which no rank left before the last had come.

    By clocks as their ends tell them; by clocks as they are with `are_aligned`.
    """
    start = np.stack([column.start_ns[rows] for column, rows in zip(columns, place.T, strict=True)], axis=1)
    end = np.stack([column.end_ns[rows] for column, rows in zip(columns, place.T, strict=True)], axis=1)
    offset = np.zeros(len(columns)) if are_aligned else np.median(end - end[:, :1], axis=0)
    return float(((start - offset).max(axis=1) <= (end - offset).min(axis=1)).mean())


def _unplaced(group: Group, sequences: Mapping[int, Any], rank: int, pairing: Pairing) -> Refusal:
    reason = (
        f"the ends of rank {rank} fit the others' in {pairing.n_paired} places, and with another shift in"
        f" {pairing.n_rival}: the match is ambiguous"
    )
    return Refusal(group=group, ranks=(rank,), reason=reason, n_rows=int(sequences[rank].row.size))


def _sequences(
    group: Group, members: Mapping[int, RankSummary], *, sized: Sequence[CollectiveKind]
) -> dict[int, _Sequence]:
    """The collectives of each rank that has some; of the kinds `sized` sizes are equal on all."""
    chosen: dict[int, NDArray[Any]] = {}
    for rank, summary in members.items():
        rows = summary.collectives
        mine = rows.group == summary.groups.index(group)
        chosen[rank] = np.flatnonzero(mine & ~np.isin(rows.kind, tuple(POINT_TO_POINT)))
    symbols = _symbols(members, chosen, sized)
    origin = min((summary.origin_unix_ns for summary in members.values()), default=0)
    out = {}
    for rank, summary in members.items():
        rows, mine = summary.collectives, chosen[rank]
        number = np.append(summary.steps.number, -1)[rows.step[mine]]  # step -1 is the one appended
        out[rank] = _Sequence(
            row=mine,
            symbol=symbols[rank],
            seq=rows.seq[mine],
            start_ns=rows.start_ns[mine] + (summary.origin_unix_ns - origin),
            end_ns=rows.end_ns[mine] + (summary.origin_unix_ns - origin),
            step_number=number,
            is_synchronising=_may_check(rows.kind[mine]),
        )
    return {rank: sequence for rank, sequence in out.items() if sequence.row.size}


def _may_check(kind: NDArray[np.integer]) -> Bool:
    """An all-to-all without arguments is NCCL's send-receive kernel; as point to point its ends agree with nothing."""
    checks: Bool = is_synchronising(kind) | (kind == CollectiveKind.SEND_RECV)
    return checks


def _symbols(
    members: Mapping[int, RankSummary], chosen: Mapping[int, NDArray[Any]], sized: Sequence[CollectiveKind]
) -> dict[int, I64]:
    """A number for each row, equal across ranks exactly where kind, type and (of the kinds `sized`) sizes are."""
    words: dict[str, int] = {}
    parts = []
    for rank, summary in members.items():
        code = np.array([words.setdefault(text, len(words)) for text in summary.strings] + [-1], np.int64)
        rows, mine = summary.collectives, chosen[rank]
        kind = rows.kind[mine].astype(np.int64)
        is_sized = np.isin(kind, sized)
        parts.append(
            np.stack(
                [
                    kind,
                    code[rows.dtype[mine]],
                    np.where(is_sized, rows.in_elements[mine], -1),
                    np.where(is_sized, rows.out_elements[mine], -1),
                    np.where(kind == CollectiveKind.OTHER, code[rows.name[mine]], -1),
                ],
                axis=1,
            )
        )
    _, inverse = np.unique(np.concatenate(parts), axis=0, return_inverse=True)
    edges = np.cumsum([len(part) for part in parts])[:-1]
    return dict(zip(members, np.split(inverse.reshape(-1).astype(np.int64), edges), strict=True))


def _by_seq(columns: Sequence[_Sequence]) -> Keyed | None:
    """Match by sequence number; None where some rank has none, or repeats them (replays of a captured graph do)."""
    if any((sequence.seq < 0).any() or np.unique(sequence.seq).size != sequence.seq.size for sequence in columns):
        return None
    return joined([sequence.seq for sequence in columns], [sequence.symbol for sequence in columns])


def _by_ends(columns: Sequence[_Sequence]) -> list[Pairing]:
    """Pair each rank with the one that has most collectives; rows are positions in its synchronising ones."""
    sync = [np.flatnonzero(sequence.is_synchronising) for sequence in columns]
    most = int(np.argmax([rows.size for rows in sync]))
    reference, rows = columns[most], sync[most]
    out = []
    for place, (sequence, mine) in enumerate(zip(columns, sync, strict=True)):
        if place == most:
            everything = np.arange(rows.size, dtype=np.int64)
            out.append(Pairing(row=everything, n_paired=rows.size, n_rival=0, is_checked=True))
            continue
        out.append(paired(reference.end_ns[rows], reference.symbol[rows], sequence.end_ns[mine], sequence.symbol[mine]))
    return out


def _match(group: Group, sequences: Mapping[int, _Sequence], method: Method, place: I64, note: str = "") -> GroupMatch:
    """Turn positions within the group's sequences to rows of each rank, and count what is left over."""
    rows = np.full(place.shape, NO_ROW, np.int64)
    for column, sequence in enumerate(sequences.values()):
        there = place[:, column] >= 0
        rows[there, column] = sequence.row[place[there, column]]
    present = rows >= 0
    first = np.where(present.any(axis=0), present.argmax(axis=0), len(rows))
    last = len(rows) - np.where(present.any(axis=0), present[::-1].argmax(axis=0), len(rows))
    n_present = present.sum(axis=0)
    sizes = np.array([sequence.row.size for sequence in sequences.values()])
    return GroupMatch(
        group=group,
        ranks=tuple(sequences),
        method=method,
        rows=rows,
        n_unmatched=tuple((sizes - n_present).tolist()),
        n_late_start=tuple(first.tolist()),
        n_missed=tuple(np.maximum(last - first - n_present, 0).tolist()),
        note=note,
    )
