"""The same collective on every rank, and how it was recognised; sends and receives, paired.

In order of trust: by the group's own sequence number; by order, checked by the ends (see `shift`); by order within
steps of one number; by order alone where all ranks hold the same sequence. Sizes must agree. What cannot be told apart
is refused with its reason, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, rows_by_value
from profkit.ranks.align.key_join import RankSequence, joined_by_seq, joined_in_steps, joined_in_turn, translated
from profkit.ranks.align.match_types import GroupMatch, Matching, Method, PairMatch, Refusal
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
_NAMELESS: Final = -1
_ENDS_APART_NS: Final = 100_000
"""How far the two ends of a transfer may lie apart. Chosen: NCCL's leave within some 10 us of each other."""
_NEARLY_ALL: Final = 0.95
"""Of sends and receives, what must have an end each. Chosen: a window may cut some."""
_NO_ROWS: Final = np.empty(0, np.int64)


def matched(summaries: Sequence[RankSummary]) -> Matching:
    """The collectives that ranks have in common; each rank must be there once (ValueError)."""
    by_rank = {summary.rank: summary for summary in summaries}
    if len(by_rank) != len(summaries):
        raise ValueError(f"ranks {sorted(summary.rank for summary in summaries)}: each must be there once")
    groups: list[GroupMatch] = []
    pairs: list[PairMatch] = []
    refusals: list[Refusal] = []
    for group, members in _groups(by_rank):
        whole, rows = _point_to_point(group, members)
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


def _collectives(group: Group, members: Mapping[int, RankSummary]) -> tuple[list[GroupMatch], list[Refusal]]:
    sequences = _sequences(group, members, sized=_SIZED)
    ranks = tuple(sequences)
    if not ranks:
        return [], []
    n_rows = sum(sequence.row.size for sequence in sequences.values())
    if len(ranks) == 1:
        return [], [Refusal(group=group, ranks=ranks, reason="only one rank of this group is here", n_rows=n_rows)]
    columns = list(sequences.values())
    by_seq = joined_by_seq(columns)
    if by_seq is not None and by_seq[1] >= _MIN_AGREEING:
        return [_match(group, sequences, Method.SEQ, by_seq[0])], []
    note = "" if group.name else "the trace names no process groups: all its collectives are treated as one group"
    if by_seq is not None:
        note = f"sequence numbers pair equal sizes in only {format_fraction(by_seq[1])} of cases: not used"
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


def _shifted(columns: Sequence[RankSequence]) -> I64 | None:
    """The match by order alone, some places apart, where by the clock of their host all ranks are inside together.

    None where the steps say as much. On rank 0 a step may begin before a collective that ends it on the others: with
    what that rank alone does after the optimizer's step.
    """
    steps = joined_in_steps(columns)
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


def _shift(first: RankSequence, other: RankSequence) -> int | None:
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
    place: I64, placed: Sequence[int], columns: Sequence[RankSequence], uneven: Sequence[RankSequence]
) -> I64 | None:
    """The match by steps, if it joins more than the ends do and is the better told of the two; None otherwise.

    `place` [n, len(placed)] is what the ends join. On a busy CPU ranks leave gloo's collectives milliseconds apart,
    buckets that run beside each other cross, and the ends place a rank in half of its collectives, not at all, or a few
    steady steps off. Steps are believed where all ranks are inside of their collectives at one time by clocks as they
    are, or where the ends agree with them; ranks the ends do not place must have been inside together in any case.
    Of hosts with clocks of their own the first does not hold: there they are believed where the ends tell nothing.
    `uneven`: the same collectives, equal whatever their sizes.
    """
    steps = joined_in_steps(columns)
    if steps is None:
        steps = joined_in_steps(uneven)
    if steps is None or len(steps) * len(columns) <= int((place >= 0).sum()):
        return None
    if _together_fraction(steps, columns, are_aligned=True) >= _MIN_AGREEING:
        return steps
    if _together_fraction(steps, columns) >= _MIN_AGREEING and _are_loose(place, placed, steps, columns):
        return steps
    if _agreeing_fraction(place, steps[:, list(placed)]) < _MIN_TOGETHER:
        return None
    return steps if len(placed) == len(columns) or _together_fraction(steps, columns) >= _MIN_TOGETHER else None


def _are_loose(place: I64, placed: Sequence[int], steps: I64, columns: Sequence[RankSequence]) -> bool:
    """Whether the ends fit the pairs they have found hardly better than those that the steps give, or found few.

    Where they tell the pairs, those of other steps fit many times worse: by what steps differ in length.
    """
    chosen = [columns[one] for one in placed]
    both = place[(place >= 0).all(axis=1)]
    if 2 * len(both) <= len(steps):
        return True
    return _spread_ns(steps[:, list(placed)], chosen) <= _LOOSE * _spread_ns(both, chosen)


def _spread_ns(place: I64, columns: Sequence[RankSequence]) -> float:
    """How far the ends of a pair [n, R] lie from where the others put them: 95 of 100 within, on the worst rank."""
    end = _gathered(place, [column.end_ns for column in columns])
    lag = end - end[:, :1]
    return float(np.quantile(np.abs(lag - np.median(lag, axis=0)), 0.95, axis=0).max())


def _gathered(place: I64, columns: Sequence[I64]) -> I64:
    """[n, R]: of each rank's column the values at these positions."""
    return np.stack([column[rows] for column, rows in zip(columns, place.T, strict=True)], axis=1)


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


def _unchecked(
    group: Group, sequences: Mapping[int, RankSequence], note: str
) -> tuple[list[GroupMatch], list[Refusal]]:
    """Match by steps or by order alone what ends too loosely to be told by its ends; refuse what cannot be one."""
    columns, reason = list(sequences.values()), ""
    method, place = Method.STEPS, joined_in_steps(columns)
    if place is None and all(np.array_equal(sequence.symbol, columns[0].symbol) for sequence in columns):
        method, place = Method.ORDER, np.repeat(np.arange(columns[0].row.size)[:, None], len(columns), axis=1)
    if place is None:
        counts = ", ".join(f"rank {rank}: {sequence.row.size}" for rank, sequence in sequences.items())
        reason = f"no sequence numbers, different sequences ({counts}), and several shifts fit equally well"
    elif (together := _together_fraction(place, columns)) < _MIN_TOGETHER:
        share = format_fraction(together)
        reason = f"matched by {method.value}, only {share} would overlap in time: not the same collectives"
    if place is None or reason:
        n_rows = sum(sequence.row.size for sequence in columns)
        return [], [Refusal(group=group, ranks=tuple(sequences), reason=reason, n_rows=n_rows)]
    return [_match(group, sequences, method, place, note)], []


def _together_fraction(place: I64, columns: Sequence[RankSequence], *, are_aligned: bool = False) -> float:
    """The share of instances in which no rank left before the last had come.

    By clocks as their ends tell them; by clocks as they are with `are_aligned`.
    """
    start, end = (_gathered(place, [getattr(one, side) for one in columns]) for side in ("start_ns", "end_ns"))
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
) -> dict[int, RankSequence]:
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
        out[rank] = RankSequence(
            row=mine,
            symbol=symbols[rank],
            seq=rows.seq[mine],
            start_ns=rows.start_ns[mine] + (summary.origin_unix_ns - origin),
            end_ns=rows.end_ns[mine] + (summary.origin_unix_ns - origin),
            step_number=np.append(summary.steps.number, -1)[rows.step[mine]],  # step -1 is the one appended
            # an all-to-all without arguments is NCCL's send-receive kernel; of point to point no ends agree
            is_synchronising=is_synchronising(rows.kind[mine]) | (rows.kind[mine] == CollectiveKind.SEND_RECV),
        )
    return {rank: sequence for rank, sequence in out.items() if sequence.row.size}


def _symbols(
    members: Mapping[int, RankSummary], chosen: Mapping[int, NDArray[Any]], sized: Sequence[CollectiveKind]
) -> dict[int, I64]:
    """A number for each row, equal across ranks exactly where kind, type and (of the kinds `sized`) sizes are."""
    words: dict[str, int] = {}
    keys = []
    for rank, summary in members.items():
        code = np.array([words.setdefault(text, len(words)) for text in summary.strings] + [-1], np.int64)
        rows, mine = summary.collectives, chosen[rank]
        kind = rows.kind[mine].astype(np.int64)
        is_sized = np.isin(kind, sized)
        sizes = (np.where(is_sized, column[mine], -1) for column in (rows.in_elements, rows.out_elements))
        name = np.where(kind == CollectiveKind.OTHER, code[rows.name[mine]], -1)
        keys.append(np.stack([kind, code[rows.dtype[mine]], *sizes, name], axis=1))
    _, inverse = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    edges = np.cumsum([len(key) for key in keys])[:-1]
    return dict(zip(members, np.split(inverse.reshape(-1).astype(np.int64), edges), strict=True))


def _by_ends(columns: Sequence[RankSequence]) -> list[Pairing]:
    """Pair each rank with the one that has most collectives; rows are positions in its synchronising ones."""
    sync = [np.flatnonzero(sequence.is_synchronising) for sequence in columns]
    most = int(np.argmax([rows.size for rows in sync]))
    reference, rows = columns[most], sync[most]
    itself = Pairing(row=np.arange(rows.size, dtype=np.int64), n_paired=rows.size, n_rival=0, is_checked=True)
    return [
        paired(reference.end_ns[rows], reference.symbol[rows], other.end_ns[mine], other.symbol[mine])
        if other is not reference
        else itself
        for other, mine in zip(columns, sync, strict=True)
    ]


def _match(
    group: Group, sequences: Mapping[int, RankSequence], method: Method, place: I64, note: str = ""
) -> GroupMatch:
    """Turn positions within the group's sequences to rows of each rank, and count what is left over."""
    rows = translated(place, [sequence.row for sequence in sequences.values()])
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


def _point_to_point(group: Group, members: Mapping[int, RankSummary]) -> tuple[list[PairMatch], list[Refusal]]:
    """Pair sends with receives by the peers that the trace names, or that a group of two does; by order from there."""
    sends = {rank: _to_peers(CollectiveKind.SEND, group, rank, members) for rank in members}
    receives = {rank: _to_peers(CollectiveKind.RECV, group, rank, members) for rank in members}
    pairs, refusals = [], []
    nameless = [{rank: side[rank].pop(_NAMELESS, _NO_ROWS) for rank in members} for side in (sends, receives)]
    n_nameless = sum(rows.size for side in nameless for rows in side.values())
    if n_nameless and (told := _pairs_by_ends(group, members, *nameless)):
        pairs += told
    elif n_nameless:
        reason = "point to point: the trace does not name the peer, and the group has more than two ranks"
        refusals.append(Refusal(group=group, ranks=tuple(members), reason=reason, n_rows=n_nameless))
    hops = {(rank, peer) for rank, by_peer in sends.items() for peer in by_peer}
    hops |= {(peer, rank) for rank, by_peer in receives.items() for peer in by_peer}
    for sender, receiver in sorted(hops):
        mine = sends.get(sender, {}).get(receiver, _NO_ROWS)
        theirs = receives.get(receiver, {}).get(sender, _NO_ROWS)
        reason = _reason_against((sender, receiver), mine, theirs, members)
        if reason:
            n_rows = int(mine.size + theirs.size)
            refusals.append(Refusal(group=group, ranks=(sender, receiver), reason=reason, n_rows=n_rows))
        else:
            rows = np.stack([mine, theirs], axis=1)
            pairs.append(PairMatch(group=group, sender=sender, receiver=receiver, rows=rows))
    return pairs, refusals


def _pairs_by_ends(
    group: Group, members: Mapping[int, RankSummary], sends: Mapping[int, I64], receives: Mapping[int, I64]
) -> list[PairMatch]:
    """Sends and receives of neighbours in a group, joined by their ends, which a transfer's two ends have together.

    Clocks are put right by the ends of the group's collectives. [] unless nearly every row has its other end.
    """
    line = [rank for rank in group.ranks if rank in members]
    if len(line) < len(group.ranks) or len(line) < 2:
        return []
    ends = {rank: _ends_ns(group, rank, members) for rank in line}
    found: list[tuple[int, int, int, I64, I64]] = []
    for one, other in pairwise(line):
        for sender, receiver in ((one, other), (other, one)):
            mine, theirs = sends[sender], receives[receiver]
            if mine.size and theirs.size:
                apart = np.abs(ends[sender][mine][:, None] - ends[receiver][theirs])
                nearest = apart.argmin(axis=1)
                is_mutual = apart.argmin(axis=0)[nearest] == np.arange(mine.size)
                close = np.flatnonzero(is_mutual & (apart.min(axis=1) <= _ENDS_APART_NS))
                found += [
                    (int(apart[row, nearest[row]]), sender, receiver, mine[row], theirs[nearest[row]]) for row in close
                ]
    used: set[tuple[bool, int, int]] = set()
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for _, sender, receiver, sent, taken in sorted(found):
        keys = ((True, sender, int(sent)), (False, receiver, int(taken)))
        if not used.intersection(keys):
            used.update(keys)
            rows.setdefault((sender, receiver), []).append((int(sent), int(taken)))
    n_rows = sum(side[rank].size for side in (sends, receives) for rank in line)
    if len(used) < _NEARLY_ALL * n_rows:
        return []
    return [
        PairMatch(group=group, sender=sender, receiver=receiver, rows=np.array(sorted(both), np.int64))
        for (sender, receiver), both in sorted(rows.items())
    ]


def _ends_ns(group: Group, rank: int, members: Mapping[int, RankSummary]) -> I64:
    """When each of a rank's collectives ended, on the clock of the group's first rank."""

    def shown(member: int) -> tuple[I64, I64]:
        summary = members[member]
        rows = summary.collectives
        end = rows.end_ns + (summary.origin_unix_ns - members[group.ranks[0]].origin_unix_ns)
        return end, end[(rows.group == summary.groups.index(group)) & is_synchronising(rows.kind)]

    (end, together), (_, first) = shown(rank), shown(group.ranks[0])
    is_told = together.size == first.size > 0
    return end - round(float(np.median(together - first))) if is_told else end


def _to_peers(kind: CollectiveKind, group: Group, rank: int, members: Mapping[int, RankSummary]) -> dict[int, I64]:
    """A rank's rows of one kind by peer; under `_NAMELESS` those whose peer nothing tells."""
    summary = members[rank]
    rows = summary.collectives
    mine = np.flatnonzero((rows.group == summary.groups.index(group)) & (rows.kind == kind))
    peer = rows.peer[mine]
    if group.size == 2 and len(members) == 2:
        (other,) = (member for member in members if member != rank)
        peer = np.where(peer < 0, other, peer)
    return {int(code): mine[places] for code, places in rows_by_value(peer)}


def _reason_against(hop: tuple[int, int], mine: I64, theirs: I64, members: Mapping[int, RankSummary]) -> str:
    sender, receiver = hop
    away = [rank for rank in hop if rank not in members]
    if away:
        return f"point to point: rank {away[0]} is missing"
    given, taken = members[sender].collectives.in_elements[mine], members[receiver].collectives.out_elements[theirs]
    if np.array_equal(given, taken):
        return ""
    return f"{mine.size} sends of rank {sender} and {theirs.size} receives of rank {receiver} differ in sizes"
