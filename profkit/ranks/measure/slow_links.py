"""Slow links: of groups and pairs whose transfers take longer than their twins', of hosts whose connections stay busy.

Twins are groups of as many ranks, none of them in both, that move the same: the tensor-parallel groups of a job, say.
Of sends and receives it is pairs of ranks: the end that comes later shows what a transfer takes, whatever the clocks.
A ring goes at the pace of its slowest link, so that all its ranks transfer equally long; but only the sender into the
slow link has data under way all that time, which the kernel counts of each connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.findings.communication import BANDWIDTH
from profkit.findings.ranks.stragglers import SLOW_LINK
from profkit.model.arrays import I64, median
from profkit.model.intervals import from_where_alone
from profkit.model.trace import Connection
from profkit.ranks.align.match_types import Matching, PairMatch
from profkit.ranks.measure.waits import GroupWaits, sizes_of
from profkit.ranks.reduce.records import Group, RankSummary

_ALIKE: Final = 1.25
"""Sizes that differ by less, from the next one, count as one: tokens make messages vary. Chosen."""
_BY_DESIGN: Final = 8
"""How many times as fast one hop of a pipeline may be as another by design. Chosen: NVLink is 4 to 6 networks."""


class SlowLink(msgspec.Struct, frozen=True, kw_only=True):
    """A group that transfers more slowly than its twins. Times in ns, summed over its instances."""

    group: Group
    ranks: tuple[int, ...]
    n_bytes: int
    """The size at which it loses most."""
    bus_bytes_per_s: float
    twin_bytes_per_s: float
    """Median bus bandwidth at that size, here and in the twins."""
    transfer_ns: int
    twin_transfer_ns: int
    """Median transfer at that size, here and in the twins."""
    n_twins: int
    n_instances: int
    longer_ns: int
    """By how much its transfers are longer than the twins' at the same size."""
    exposed_ns: int
    """The part of that which no compute hides, on the median rank."""
    is_pair: bool = False
    """Whether it is two ranks that send to each other, and its twins other such pairs."""


def slow_links(
    waits: Sequence[GroupWaits], summaries: Sequence[RankSummary], matching: Matching
) -> tuple[SlowLink, ...]:
    """The groups and pairs that lose time against their twins, the one that loses most first."""
    found = [one for one in (*_slow_groups(waits), *_slow_pairs(summaries, matching)) if one is not None]
    return tuple(sorted(found, key=lambda one: -one.exposed_ns))


# --------------------------------------------------------------------------------------------------------- of a group

_Key = tuple[int, int]
"""A kind of collective and the place of its messages' size among the group's, the smallest first."""


class _Moved(msgspec.Struct, frozen=True):
    """What a group moves of one kind and size: the instances' rows, and the medians of their sizes and paces."""

    rows: I64
    n_bytes: int
    transfer_ns: float
    bytes_per_s: float


def _slow_groups(waits: Sequence[GroupWaits]) -> list[SlowLink | None]:
    moved = [_moved(group) for group in waits]
    ranks = [frozenset(group.ranks) for group in waits]
    alike: dict[tuple[int, frozenset[_Key]], list[int]] = defaultdict(list)
    for place, mine in enumerate(moved):
        alike[len(ranks[place]), frozenset(mine)].append(place)
    found = []
    for place, (group, mine) in enumerate(zip(waits, moved, strict=True)):
        twins = [
            moved[other]
            for other in alike[len(ranks[place]), frozenset(mine)]
            if other != place and ranks[place].isdisjoint(ranks[other]) and _are_as_large(mine, moved[other])
        ]
        if mine and twins and group.is_whole:
            found.append(_of_group(group, mine, twins))
    return found


def _moved(waits: GroupWaits) -> dict[_Key, _Moved]:
    """The instances of each kind and size whose bandwidth is known on all ranks."""
    known = np.flatnonzero(waits.present.all(axis=1) & ~np.isnan(waits.bus_bytes_per_s))
    out: dict[_Key, _Moved] = {}
    for kind in np.unique(waits.kind[known]).tolist():
        rows = known[waits.kind[known] == kind]
        sizes, inverse = np.unique(waits.n_bytes[rows], return_inverse=True)
        place = np.append(0, np.cumsum(sizes[1:] >= _ALIKE * sizes[:-1]))[inverse.reshape(-1)]
        for code in range(int(place.max()) + 1):
            mine = rows[place == code]
            pace = (float(np.median(column[mine])) for column in (waits.transfer_ns, waits.bus_bytes_per_s))
            out[kind, code] = _Moved(mine, median(waits.n_bytes[mine]), *pace)
    return out


def _are_as_large(mine: Mapping[_Key, _Moved], others: Mapping[_Key, _Moved]) -> bool:
    pairs = [(one.n_bytes, others[key].n_bytes) for key, one in mine.items()]
    return all(max(pair) < _ALIKE * min(pair) for pair in pairs)


def _of_group(
    group: GroupWaits, mine: Mapping[_Key, _Moved], twins: Sequence[Mapping[_Key, _Moved]]
) -> SlowLink | None:
    """The group against the middle of its twins; None where it is not slow."""
    longer = np.zeros(len(group.rows), np.int64)
    most: tuple[int, _Moved, float, float] | None = None
    for key, one in mine.items():
        usual = float(np.median([twin[key].transfer_ns for twin in twins]))
        speed = float(np.median([twin[key].bytes_per_s for twin in twins]))
        here = group.bus_bytes_per_s[one.rows]
        if (here * SLOW_LINK.limit("ratio") <= speed).mean() < SLOW_LINK.limit("always"):
            continue
        lost = np.maximum(group.transfer_ns[one.rows] * (1 - here / speed), 0)
        longer[one.rows] = np.rint(lost).astype(np.int64)
        lost_ns = int(longer[one.rows].sum())
        if most is None or lost_ns > most[0]:
            most = lost_ns, one, usual, speed
    if most is None or int((longer > 0).sum()) < SLOW_LINK.limit("instances"):
        return None
    _, one, usual, speed = most
    transferred = np.maximum(group.exposed_once_ns - group.wait_exposed_ns, 0)
    return SlowLink(
        group=group.group,
        ranks=group.ranks,
        n_bytes=one.n_bytes,
        bus_bytes_per_s=one.bytes_per_s,
        twin_bytes_per_s=speed,
        transfer_ns=median(group.transfer_ns[one.rows]),
        twin_transfer_ns=round(usual),
        n_twins=len(twins),
        n_instances=int((longer > 0).sum()),
        longer_ns=int(longer.sum()),
        exposed_ns=int(np.median(np.minimum(longer[:, None], transferred).sum(axis=0))),
    )


# ---------------------------------------------------------------------------------------------------------- of a pair

_Ranks = tuple[int, int]


class _Sent(msgspec.Struct, frozen=True):
    """What two ranks send to each other, [n] each: bytes, what a transfer takes, what the receiver's compute leaves."""

    n_bytes: I64
    lasts_ns: I64
    exposed_ns: I64


def _slow_pairs(summaries: Sequence[RankSummary], matching: Matching) -> list[SlowLink | None]:
    by_rank = {summary.rank: summary for summary in summaries}
    parts: dict[_Ranks, list[_Sent]] = defaultdict(list)
    groups: dict[_Ranks, Group] = {}
    for pair in matching.pairs:
        ranks = min(pair.sender, pair.receiver), max(pair.sender, pair.receiver)
        parts[ranks].append(_sent(pair, by_rank))
        groups[ranks] = pair.group
    names = _Sent.__struct_fields__
    sent = {
        ranks: _Sent(*(np.concatenate([getattr(part, name) for part in mine]) for name in names))
        for ranks, mine in parts.items()
    }
    found = []
    for ranks, mine in sent.items():
        twins = [other for other in sent if _are_twins(ranks, other, groups)]
        others = twins or [other for other in sent if other != ranks]
        ratio = SLOW_LINK.limit("ratio") if twins else _BY_DESIGN
        found.append(_of_pair(ranks, mine, [sent[other] for other in others], ratio))
    return found


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


def _of_pair(ranks: _Ranks, mine: _Sent, peers: Sequence[_Sent], ratio: float) -> SlowLink | None:
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


# -------------------------------------------------------------------------------------------------------- between hosts


class Link(msgspec.Struct, frozen=True):
    """What one rank sends to another over one connection."""

    sender: int
    receiver: int
    sent_bytes: int
    busy_ns: int
    """How long what it sent was under way (`Connection.busy_ns`)."""
    resent_bytes: int


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """What ranks send to each other, a direction each."""

    links: tuple[Link, ...]
    unpaired_bytes: int
    """The most that a rank sent over a connection whose other end no trace has."""


def links_between(summaries: Sequence[RankSummary]) -> Links:
    """The connections that two ranks have the ends of."""
    ends: dict[str, list[tuple[int, Connection]]] = defaultdict(list)
    for summary in summaries:
        for connection in summary.connections:
            ends[connection.id].append((summary.rank, connection))
    found: list[Link] = []
    unpaired = 0
    for mine in ends.values():
        if len(mine) == 2 and {one.end for _, one in mine} == {0, 1}:
            (first, _), (second, _) = mine
            found += (
                Link(rank, other, one.acked_bytes, one.busy_ns, one.resent_bytes)
                for (rank, one), other in zip(mine, (second, first), strict=True)
            )
        else:
            unpaired = max(unpaired, *(one.acked_bytes for _, one in mine))
    return Links(links=tuple(found), unpaired_bytes=unpaired)


class HostLink(msgspec.Struct, frozen=True, kw_only=True):
    """What one host sends to another."""

    sender_host: str
    receiver_host: str
    sender: int
    receiver: int
    """The ranks of its busiest connection."""
    sent_bytes: int
    resent_bytes: int
    busy_ns: int
    busy_fraction: float
    """Of the time of the sender's collectives, that in which data was under way to the receiver."""

    @property
    def hosts(self) -> frozenset[str]:
        """Its two ends."""
        return frozenset((self.sender_host, self.receiver_host))

    @property
    def bytes_per_s(self) -> float:
        """The rate at which it sends while data is under way."""
        return self.sent_bytes * 1e9 / max(self.busy_ns, 1)


class SlowSide(msgspec.Struct, frozen=True, kw_only=True):
    """Where data is under way during nearly all of the collectives' time, while other links are mostly free."""

    host: str
    """The host that all busy links share; "" where there is but one link, which may be slow at either end."""
    ranks: tuple[int, ...]
    """The ranks on that host."""
    busy: tuple[HostLink, ...]
    """The busy links, the busiest first."""
    free_fraction: float
    """`busy_fraction` of the busiest link beside these."""


def slow_side(summaries: Sequence[RankSummary], waits: GroupWaits) -> SlowSide | None:
    """The link, or the host behind it, on which all collectives of a group wait; None where it is not known."""
    hosts = {summary.rank: summary.host for summary in summaries}
    known = links_between(summaries)
    links = host_links(summaries, known)
    least = BANDWIDTH.limit("alike") * max((link.sent_bytes for link in links), default=0)
    links = [link for link in links if link.sent_bytes >= least]
    are_all_here = {hosts[rank] for rank in waits.ranks} <= {host for link in links for host in link.hosts}
    if not links or not are_all_here or known.unpaired_bytes >= least or not _is_slow(links[0], waits):
        return None
    busy = [link for link in links if link.busy_fraction > BANDWIDTH.limit("free")]
    shared = frozenset.intersection(*(link.hosts for link in busy))
    if len(busy) == len(links) or not shared:
        return None
    host = next(iter(shared)) if len(shared) == 1 else ""
    return SlowSide(
        host=host,
        ranks=tuple(sorted(rank for rank, there in hosts.items() if there == host)),
        busy=tuple(busy),
        free_fraction=links[len(busy)].busy_fraction,
    )


def _is_slow(link: HostLink, waits: GroupWaits) -> bool:
    """Whether data was under way on a link nearly all the time, and the collectives' data at that.

    Over InfiniBand, say, only words of control go over TCP, and what they wait for is the next acknowledgement.
    """
    message_bytes = int(waits.n_bytes[waits.n_bytes > 0].sum())
    return (
        link.busy_fraction >= BANDWIDTH.limit("busy")
        and link.busy_ns >= BANDWIDTH.limit("counted")
        and link.bytes_per_s >= 1e9 * BANDWIDTH.limit("rate")
        and link.sent_bytes >= BANDWIDTH.limit("carried") * message_bytes
    )


def host_links(summaries: Sequence[RankSummary], known: Links) -> list[HostLink]:
    """What hosts send to other hosts, the busiest first; [] where a trace does not say its host.

    Of connections beside each other the busiest tells how busy the link is.
    """
    hosts = {summary.rank: summary.host for summary in summaries}
    if not all(hosts.values()):
        return []
    spent_ns = {summary.rank: _spent_ns(summary) for summary in summaries}
    between: dict[tuple[str, str], list[Link]] = defaultdict(list)
    for link in sorted(known.links, key=lambda link: -link.busy_ns):
        between[hosts[link.sender], hosts[link.receiver]].append(link)
    found = [
        HostLink(
            sender_host=ends[0],
            receiver_host=ends[1],
            sender=first.sender,
            receiver=first.receiver,
            sent_bytes=sum(link.sent_bytes for link in (first, *more)),
            resent_bytes=sum(link.resent_bytes for link in (first, *more)),
            busy_ns=first.busy_ns,
            busy_fraction=min(first.busy_ns / max(spent_ns[first.sender], 1), 1.0),
        )
        for ends, (first, *more) in between.items()
        if ends[0] != ends[1]
    ]
    return sorted(found, key=lambda link: -link.busy_fraction)


def _spent_ns(summary: RankSummary) -> int:
    """The time in which a rank has a collective under way."""
    rows = summary.collectives
    if not len(rows):
        return 0
    return int((rows.end_ns - from_where_alone(rows.start_ns, rows.end_ns)).sum())
