"""Sends and receives of point-to-point communication, paired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.ranks.kinds import CollectiveKind
from profkit.ranks.matches import PairMatch, Refusal
from profkit.ranks.records import Group, RankSummary


def point_to_point(group: Group, members: Mapping[int, RankSummary]) -> tuple[list[PairMatch], list[Refusal]]:
    """Pair sends with receives where the group tells the peer, which a group of two does."""
    sends: dict[int, NDArray[Any]] = {}
    receives: dict[int, NDArray[Any]] = {}
    for rank, summary in members.items():
        rows = summary.collectives
        mine = rows.group == summary.groups.index(group)
        sends[rank] = np.flatnonzero(mine & (rows.kind == CollectiveKind.SEND))
        receives[rank] = np.flatnonzero(mine & (rows.kind == CollectiveKind.RECV))
    n_rows = sum(rows.size for side in (sends, receives) for rows in side.values())
    if n_rows == 0:
        return [], []
    ranks = tuple(members)
    if group.size != 2 or len(ranks) != 2:
        reason = "point to point: the trace does not name the peer, and the group has more than two ranks"
        return [], [Refusal(group=group, ranks=ranks, reason=reason, n_rows=n_rows)]
    pairs, refusals = [], []
    for sender, receiver in (ranks, ranks[::-1]):
        mine, theirs = sends[sender], receives[receiver]
        given, taken = members[sender].collectives.in_elements[mine], members[receiver].collectives.out_elements[theirs]
        if not np.array_equal(given, taken):
            reason = f"{mine.size} sends of rank {sender} and {theirs.size} receives of rank {receiver} differ in sizes"
            refusals.append(Refusal(group=group, ranks=ranks, reason=reason, n_rows=int(mine.size + theirs.size)))
        elif mine.size:
            pairs.append(
                PairMatch(group=group, sender=sender, receiver=receiver, rows=np.stack([mine, theirs], axis=1))
            )
    return pairs, refusals
