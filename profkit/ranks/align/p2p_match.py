"""Sends and receives of point-to-point communication, paired."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from profkit.model.arrays import I64, rows_by_value
from profkit.ranks.align.match_types import PairMatch, Refusal
from profkit.ranks.reduce.collective_kinds import CollectiveKind, is_synchronising
from profkit.ranks.reduce.records import Group, RankSummary


def point_to_point(group: Group, members: Mapping[int, RankSummary]) -> tuple[list[PairMatch], list[Refusal]]:
    """Pair sends with receives by the peers that the trace names, or that a group of two does; by order from there."""
    sends = {rank: _to_peers(CollectiveKind.SEND, group, rank, members) for rank in members}
    receives = {rank: _to_peers(CollectiveKind.RECV, group, rank, members) for rank in members}
    pairs, refusals = [], []
    n_nameless = sum(by_peer.pop(_NAMELESS, _NONE).size for side in (sends, receives) for by_peer in side.values())
    if n_nameless and (told := _by_ends(group, members)):
        pairs += told
    elif n_nameless:
        reason = "point to point: the trace does not name the peer, and the group has more than two ranks"
        refusals.append(Refusal(group=group, ranks=tuple(members), reason=reason, n_rows=n_nameless))
    hops = {(rank, peer) for rank, by_peer in sends.items() for peer in by_peer}
    hops |= {(peer, rank) for rank, by_peer in receives.items() for peer in by_peer}
    for sender, receiver in sorted(hops):
        mine = sends.get(sender, {}).get(receiver, _NONE)
        theirs = receives.get(receiver, {}).get(sender, _NONE)
        reason = _reason_against((sender, receiver), mine, theirs, members)
        if reason:
            n_rows = int(mine.size + theirs.size)
            refusals.append(Refusal(group=group, ranks=(sender, receiver), reason=reason, n_rows=n_rows))
        else:
            rows = np.stack([mine, theirs], axis=1)
            pairs.append(PairMatch(group=group, sender=sender, receiver=receiver, rows=rows))
    return pairs, refusals


_NAMELESS = -1
_TOGETHER_NS = 100_000
"""How far the two ends of a transfer may lie apart. Chosen: NCCL's leave within some 10 us of each other."""
_NEARLY_ALL = 0.95
"""Of sends and receives, what must have an end each. Chosen: a window may cut some."""
_NONE = np.empty(0, np.int64)


def _by_ends(group: Group, members: Mapping[int, RankSummary]) -> list[PairMatch]:
    """Sends and receives of neighbours in a group, joined by their ends, which a transfer's two ends have together.

    Clocks are put right by the ends of the group's collectives. [] unless nearly every row has its other end.
    """
    line = [rank for rank in group.ranks if rank in members]
    if len(line) < len(group.ranks) or len(line) < 2:
        return []
    ends = {rank: _ends_ns(group, rank, members) for rank in line}
    sends, receives = (
        {rank: _to_peers(kind, group, rank, members).get(_NAMELESS, _NONE) for rank in line}
        for kind in (CollectiveKind.SEND, CollectiveKind.RECV)
    )
    found: list[tuple[int, int, int, I64, I64]] = []
    for one, other in pairwise(line):
        for sender, receiver in ((one, other), (other, one)):
            mine, theirs = sends[sender], receives[receiver]
            if mine.size and theirs.size:
                apart = np.abs(ends[sender][mine][:, None] - ends[receiver][theirs])
                nearest = apart.argmin(axis=1)
                is_mutual = apart.argmin(axis=0)[nearest] == np.arange(mine.size)
                close = np.flatnonzero(is_mutual & (apart.min(axis=1) <= _TOGETHER_NS))
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
