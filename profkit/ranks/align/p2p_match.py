"""Sends and receives of point-to-point communication, paired."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profkit.model.arrays import I64, rows_by_value
from profkit.ranks.align.match_types import PairMatch, Refusal
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import Group, RankSummary


def point_to_point(group: Group, members: Mapping[int, RankSummary]) -> tuple[list[PairMatch], list[Refusal]]:
    """Pair sends with receives by the peers that the trace names, or that a group of two does; by order from there."""
    sends = {rank: _to_peers(CollectiveKind.SEND, group, rank, members) for rank in members}
    receives = {rank: _to_peers(CollectiveKind.RECV, group, rank, members) for rank in members}
    pairs, refusals = [], []
    n_nameless = sum(by_peer.pop(_NAMELESS, _NONE).size for side in (sends, receives) for by_peer in side.values())
    if n_nameless:
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
_NONE = np.empty(0, np.int64)


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
