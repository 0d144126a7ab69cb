"""Pairs of ranks between which sends take longer than between other ranks.

The end that comes later to a send and its receive shows what the transfer takes, whatever the clocks: the other waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.findings.ranks.stragglers import SLOW_LINK
from profkit.model.arrays import I64, median
from profkit.ranks.align.match_types import Matching, PairMatch
from profkit.ranks.measure.slow_links import SlowLink
from profkit.ranks.measure.waits import sizes_of
from profkit.ranks.reduce.records import Group, RankSummary

_Ranks = tuple[int, int]
_BY_DESIGN: Final = 8
"""How many times as fast one hop of a pipeline may be as another by design. Chosen: NVLink is 4 to 6 networks."""


class _Sent(msgspec.Struct, frozen=True):
    """What two ranks send to each other, [n] each: bytes, what a transfer takes, what the receiver's compute leaves."""

    n_bytes: I64
    lasts_ns: I64
    exposed_ns: I64


def slow_pairs(summaries: Sequence[RankSummary], matching: Matching) -> tuple[SlowLink, ...]:
    """The pairs that lose time against other pairs."""
    by_rank = {summary.rank: summary for summary in summaries}
    parts: dict[_Ranks, list[_Sent]] = defaultdict(list)
    groups: dict[_Ranks, Group] = {}
    for pair in matching.pairs:
        ranks = min(pair.sender, pair.receiver), max(pair.sender, pair.receiver)
        parts[ranks].append(_sent(pair, by_rank))
        groups[ranks] = pair.group
    sent = {ranks: _together(mine) for ranks, mine in parts.items()}
    found = []
    for ranks, mine in sent.items():
        twins = [other for other in sent if _are_twins(ranks, other, groups)]
        others = twins or [other for other in sent if other != ranks]
        ratio = SLOW_LINK.limit("ratio") if twins else _BY_DESIGN
        found.append(_against(ranks, mine, [sent[other] for other in others], ratio))
    return tuple(one for one in found if one is not None)


def _are_twins(one: _Ranks, other: _Ranks, groups: Mapping[_Ranks, Group]) -> bool:
    """Whether two pairs have the same places in groups of their own: the same hop of two pipelines."""
    here, there = groups[one].ranks, groups[other].ranks
    if set(here) & set(there) or not set(one) <= set(here) or not set(other) <= set(there):
        return False
    return [here.index(rank) for rank in one] == [there.index(rank) for rank in other] and len(here) == len(there)


def _sent(pair: PairMatch, by_rank: Mapping[int, RankSummary]) -> _Sent:
    sender, receiver = by_rank[pair.sender], by_rank[pair.receiver]
    given, taken = sender.collectives.take(pair.rows[:, 0]), receiver.collectives.take(pair.rows[:, 1])
    return _Sent(
        sizes_of(sender)[pair.rows[:, 0]],
        np.minimum(given.end_ns - given.start_ns, taken.end_ns - taken.start_ns),
        taken.exposed_once_ns,
    )


def _together(parts: Sequence[_Sent]) -> _Sent:
    return _Sent(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Sent.__struct_fields__))


def _against(ranks: _Ranks, mine: _Sent, peers: Sequence[_Sent], ratio: float) -> SlowLink | None:
    """A pair against the middle of others that send messages of the same size; None where it is not slow."""
    longer = np.zeros(mine.lasts_ns.size, np.int64)
    most: tuple[int, int, int, int, int] | None = None
    for size in np.unique(mine.n_bytes[mine.n_bytes > 0]).tolist():
        rows = np.flatnonzero(mine.n_bytes == size)
        others = [
            float(np.median(other.lasts_ns[other.n_bytes == size])) for other in peers if (other.n_bytes == size).any()
        ]
        usual = float(np.median(others)) if others else 0.0
        is_slow = mine.lasts_ns[rows] >= ratio * usual
        if not others or usual <= 0 or is_slow.mean() < SLOW_LINK.limit("always"):
            continue
        longer[rows] = np.maximum(mine.lasts_ns[rows] - round(usual), 0)
        lost = int(longer[rows].sum())
        if most is None or lost > most[0]:
            most = lost, size, median(mine.lasts_ns[rows]), round(usual), len(others)
    if most is None or int((longer > 0).sum()) < SLOW_LINK.limit("instances"):
        return None
    _, size, here_ns, there_ns, n_twins = most
    return SlowLink(
        group=Group(ranks=ranks, size=2),
        ranks=ranks,
        n_bytes=size,
        bus_bytes_per_s=size * 1e9 / max(here_ns, 1),
        twin_bytes_per_s=size * 1e9 / max(there_ns, 1),
        transfer_ns=here_ns,
        twin_transfer_ns=there_ns,
        n_twins=n_twins,
        n_instances=int((longer > 0).sum()),
        longer_ns=int(longer.sum()),
        exposed_ns=int(np.minimum(longer, mine.exposed_ns).sum()),
        is_pair=True,
    )
