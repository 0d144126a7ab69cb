"""Links that are slow: groups whose transfers take longer than their twins', and hosts whose connections stay busy.

Twins are groups of as many ranks, none of them in both, that move the same: the tensor-parallel groups of a job, say.
A ring goes at the pace of its slowest link, so that all its ranks transfer equally long; but only the sender into the
slow link has data under way all that time, which the kernel counts of each connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.findings.communication import BANDWIDTH
from profkit.findings.ranks.stragglers import SLOW_LINK
from profkit.model.arrays import I64, median
from profkit.model.intervals import from_where_alone
from profkit.ranks.align.connections import Links, links_between
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.records import Group, RankSummary

Moved = tuple[int, int]
"""A kind of collective and the place of its messages' size among the group's, the smallest first."""
_ALIKE: Final = 1.25
"""Sizes that differ by less, from the next one, count as one: tokens make messages vary. Chosen."""


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


def slow_links(waits: Sequence[GroupWaits]) -> tuple[SlowLink, ...]:
    """The groups that lose time against their twins, the one that loses most first."""
    moved = [_moved(group) for group in waits]
    usual = [{key: _usual(group, rows) for key, rows in mine.items()} for group, mine in zip(waits, moved, strict=True)]
    sizes = [
        {key: median(group.n_bytes[rows]) for key, rows in mine.items()}
        for group, mine in zip(waits, moved, strict=True)
    ]
    ranks = [frozenset(group.ranks) for group in waits]
    alike: dict[tuple[int, frozenset[Moved]], list[int]] = defaultdict(list)
    for place, mine in enumerate(moved):
        if mine:
            alike[len(ranks[place]), frozenset(mine)].append(place)
    found = []
    for place, group in enumerate(waits):
        others = alike.get((len(ranks[place]), frozenset(moved[place])), [])
        twins = [
            other
            for other in others
            if other != place and ranks[place].isdisjoint(ranks[other]) and _are_as_large(sizes[place], sizes[other])
        ]
        if twins and group.is_whole:
            found.append(_against(group, moved[place], [usual[twin] for twin in twins]))
    return by_cost(one for one in found if one is not None)


def by_cost(links: Iterable[SlowLink]) -> tuple[SlowLink, ...]:
    """Slow links, the one that loses most first."""
    return tuple(sorted(links, key=lambda one: -one.exposed_ns))


def _moved(waits: GroupWaits) -> dict[Moved, I64]:
    """The instances of each kind and size whose bandwidth is known on all ranks, as rows."""
    known = np.flatnonzero(waits.present.all(axis=1) & ~np.isnan(waits.bus_bytes_per_s))
    out: dict[Moved, I64] = {}
    for kind in np.unique(waits.kind[known]).tolist():
        rows = known[waits.kind[known] == kind]
        sizes, inverse = np.unique(waits.n_bytes[rows], return_inverse=True)
        place = np.append(0, np.cumsum(sizes[1:] >= _ALIKE * sizes[:-1]))[inverse.reshape(-1)]
        out |= {(kind, code): rows[place == code] for code in range(int(place.max()) + 1)}
    return out


def _are_as_large(sizes: Mapping[Moved, int], others: Mapping[Moved, int]) -> bool:
    return all(max(size, others[key]) < _ALIKE * min(size, others[key]) for key, size in sizes.items())


def _usual(waits: GroupWaits, rows: I64) -> tuple[float, float]:
    """The median transfer (ns) and bus bandwidth (bytes/s) of these instances."""
    return float(np.median(waits.transfer_ns[rows])), float(np.median(waits.bus_bytes_per_s[rows]))


def _against(
    group: GroupWaits, moved: Mapping[Moved, I64], twins: Sequence[Mapping[Moved, tuple[float, float]]]
) -> SlowLink | None:
    """The group against the middle of its twins, of each what is `_usual` there; None where it is not slow."""
    longer = np.zeros(len(group.rows), np.int64)
    speeds: dict[Moved, tuple[float, float]] = {}
    lasts: dict[Moved, tuple[int, int]] = {}
    for key, rows in moved.items():
        usual, speed = (float(np.median([twin[key][of] for twin in twins])) for of in (0, 1))
        here = float(np.median(group.bus_bytes_per_s[rows]))
        slow = group.bus_bytes_per_s[rows] * SLOW_LINK.limit("ratio") <= speed
        if slow.mean() < SLOW_LINK.limit("always"):
            continue
        lost = group.transfer_ns[rows] * (1 - group.bus_bytes_per_s[rows] / speed)
        longer[rows] = np.rint(np.maximum(lost, 0)).astype(np.int64)
        speeds[key] = here, speed
        lasts[key] = median(group.transfer_ns[rows]), round(usual)
    if not speeds or int((longer > 0).sum()) < SLOW_LINK.limit("instances"):
        return None
    most = max(speeds, key=lambda key: int(longer[moved[key]].sum()))
    transferred = np.maximum(group.exposed_once_ns - group.wait_exposed_ns, 0)
    return SlowLink(
        group=group.group,
        ranks=group.ranks,
        n_bytes=median(group.n_bytes[moved[most]]),
        bus_bytes_per_s=speeds[most][0],
        twin_bytes_per_s=speeds[most][1],
        transfer_ns=lasts[most][0],
        twin_transfer_ns=lasts[most][1],
        n_twins=len(twins),
        n_instances=int((longer > 0).sum()),
        longer_ns=int(longer.sum()),
        exposed_ns=int(np.median(np.minimum(longer[:, None], transferred).sum(axis=0))),
    )


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
    found: dict[tuple[str, str], HostLink] = {}
    for link in sorted(known.links, key=lambda link: -link.busy_ns):
        ends = hosts[link.sender], hosts[link.receiver]
        if ends[0] == ends[1]:
            continue
        before = found.get(ends)
        found[ends] = HostLink(
            sender_host=ends[0],
            receiver_host=ends[1],
            sender=before.sender if before else link.sender,
            receiver=before.receiver if before else link.receiver,
            sent_bytes=link.sent_bytes + (before.sent_bytes if before else 0),
            resent_bytes=link.resent_bytes + (before.resent_bytes if before else 0),
            busy_ns=before.busy_ns if before else link.busy_ns,
            busy_fraction=before.busy_fraction if before else min(link.busy_ns / max(spent_ns[link.sender], 1), 1.0),
        )
    return sorted(found.values(), key=lambda link: -link.busy_fraction)


def _spent_ns(summary: RankSummary) -> int:
    """The time in which a rank has a collective under way."""
    rows = summary.collectives
    if not len(rows):
        return 0
    return int((rows.end_ns - from_where_alone(rows.start_ns, rows.end_ns)).sum())
