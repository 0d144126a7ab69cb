"""What lateness and communication look like: work on one rank alone, an extra collective, bandwidth or waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.findings.communication import EXTRA, SKEW
from profkit.findings.ranks.stragglers import RANK0
from profkit.model.arrays import Bool
from profkit.ranks.measure.permutation_test import lateness_ns, middle_of_others
from profkit.ranks.measure.stragglers import Straggler
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.activity import MAX_NAMES
from profkit.ranks.reduce.collective_kinds import UNKNOWN, CollectiveKind
from profkit.ranks.reduce.records import PHASES, Group, RankSummary


class OnlyWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work that only one rank does, before collectives for which the others wait."""

    rank: int
    names: tuple[str, ...]
    """Host ranges the others do not have, the longest first; empty where the trace shows none."""
    covered_ns: int
    covered_fraction: float
    """Share of the rank's lateness that those ranges cover."""
    barrier_fraction: float
    """Share of its lateness at barriers (and all-reduces of one element)."""
    host_before_barriers_fraction: float
    """Share of its host time beyond the others' that lies before barriers."""


def only_work(straggler: Straggler, waits: GroupWaits, summaries: Sequence[RankSummary]) -> OnlyWork | None:
    """What a straggler alone does; None where neither own ranges nor barriers hold half of its lateness."""
    members = set(waits.ranks)
    by_rank = {summary.rank: summary for summary in summaries if summary.rank in members}
    mine = by_rank[straggler.rank]
    waits = waits.at(waits.kind == CollectiveKind.BARRIER) if straggler.is_at_barriers else waits
    column = waits.ranks.index(straggler.rank)
    # As in `find_stragglers`: what a rank did since its last collective is all it can be late by.
    late = np.minimum(lateness_ns(waits.arrival_ns, waits.present)[:, column], waits.lead_ns[:, column].sum(axis=1))
    own = _own_names(mine, [summary for rank, summary in by_rank.items() if rank != straggler.rank])
    leads = mine.lead_ranges
    is_own = np.array([mine.name(int(code)) in own for code in leads.name], np.bool_)
    covered = np.zeros(len(mine.collectives), np.int64)
    np.maximum.at(covered, leads.row[is_own], leads.total_ns[is_own])  # ranges enclose each other: the longest counts
    per_instance = np.minimum(np.where(waits.rows[:, column] >= 0, covered[waits.rows[:, column]], 0), late)
    is_barrier = waits.kind == CollectiveKind.BARRIER
    total = max(int(late.sum()), 1)
    found = OnlyWork(
        rank=straggler.rank,
        names=tuple(name for name in own if name in {mine.name(int(code)) for code in leads.name}),
        covered_ns=int(per_instance.sum()),
        covered_fraction=int(per_instance.sum()) / total,
        barrier_fraction=int(late[is_barrier].sum()) / total,
        host_before_barriers_fraction=_host_excess_fraction(waits, column, is_barrier),
    )
    # Not by lateness: where ranks crowd the cores each is late somewhere, and that is nobody's work.
    least = RANK0.limit("covered")
    before_barrier = straggler.phase == "host" and found.host_before_barriers_fraction >= least
    return found if found.covered_fraction >= least or before_barrier else None


def _host_excess_fraction(waits: GroupWaits, column: int, chosen: Bool) -> float:
    """The share of a rank's host time beyond the middle of the others' that lies before chosen instances."""
    rows = np.flatnonzero(waits.present[:, column] & (waits.present.sum(axis=1) > 1))
    if rows.size == 0:
        return 0.0
    host = waits.lead_ns[rows, :, PHASES.index("host")]
    excess = np.maximum(host[:, column] - middle_of_others(host, waits.present[rows], column), 0)
    return float(excess[chosen[rows]].sum() / max(excess.sum(), 1.0))


def _own_names(mine: RankSummary, others: Sequence[RankSummary]) -> tuple[str, ...]:
    """The host ranges that the other ranks do not have, or hardly ever, by how often they run; the longest first.

    By counts, for a slow host takes longer for what all ranks do. Tables hold so many names alone: of a name that a
    full one lacks it is known that its rank spends no more on it than on the last name there.
    """
    counts = [
        {other.name(int(name)): int(count) for name, count in zip(other.ranges.name, other.ranges.count, strict=True)}
        for other in others
    ]
    unseen = [int(other.ranges.total_ns.min()) if len(other.ranges) >= MAX_NAMES else 0 for other in others]
    least = RANK0.limit("only_here")
    own = []
    for code, count, total in zip(mine.ranges.name, mine.ranges.count, mine.ranges.total_ns, strict=True):
        name = mine.name(int(code))
        there = [
            many.get(name, int(count) if rest >= least * int(total) else 0)
            for many, rest in zip(counts, unseen, strict=True)
        ]
        if there and float(np.median(there)) < least * int(count):
            own.append(name)
    return tuple(own)


_ALONE: Final = 0.95
"""Of the sum of transfers, the time in which any runs: below, they share the links. Chosen."""


class CommunicationLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What a group's communication is made of: somebody else's lateness, or transfer. Times in ns, over all instances.

    What runs at the same time counts once. Waiting is that of the rank that waits longest: of two ranks one may never
    wait, and the other's is not to be halved.
    """

    group: Group
    n_instances: int
    wait_ns: int
    transfer_ns: int
    exposed_ns: int
    """On the median rank."""
    wait_exposed_ns: int
    """At least this much of the exposed time is waiting: the most that punctual ranks could win."""
    balanced_ns: int
    """The mean of it over the ranks: what they win where all come at the time at which they come in the mean."""
    transfer_exposed_ns: int
    """The exposed time that is not waiting, on the median rank: what an infinitely fast network would take away."""
    wait_fraction: float
    """Waiting over waiting and transfer."""
    bus_bytes_per_s: float | None
    """Median bus bandwidth, weighted by size; None where sizes are unknown.

    Of collectives that share the links with each other it is that of all together: each alone looks slower.
    """
    is_shared: bool
    """Whether transfers of the group run beside each other, as those of gloo's threads do."""
    is_skew: bool
    """Whether waiting is at least half."""
    is_enough: bool
    """Whether at least 20 instances are matched and all ranks are here: else it is a statement on these alone."""


def communication_limit(waits: GroupWaits) -> CommunicationLimit:
    """Whether a group's collectives wait or transfer."""
    wait, transfer = int(waits.waited_once_ns.sum(axis=0).max()), int(waits.transferred_once_ns.sum(axis=0).max())
    exposed, wait_exposed = waits.exposed_once_ns.sum(axis=0), waits.wait_exposed_ns.sum(axis=0)
    fraction = wait / max(wait + transfer, 1)
    is_shared = transfer < _ALONE * int(waits.transfer_ns.sum())
    return CommunicationLimit(
        group=waits.group,
        n_instances=len(waits.rows),
        wait_ns=wait,
        transfer_ns=transfer,
        exposed_ns=int(np.median(exposed)),
        wait_exposed_ns=int(wait_exposed.max()),
        balanced_ns=int(wait_exposed.mean()),
        transfer_exposed_ns=int(np.median(np.maximum(exposed - wait_exposed, 0))),
        wait_fraction=fraction,
        bus_bytes_per_s=_together(waits) if is_shared else _usual_rate(waits),
        is_shared=is_shared,
        is_skew=fraction >= SKEW.limit("waiting"),
        is_enough=int(waits.present.all(axis=1).sum()) >= SKEW.limit("matched") and waits.is_whole,
    )


def _usual_rate(waits: GroupWaits) -> float | None:
    """The median bus bandwidth of a group's collectives, weighted by size; None where no size is known."""
    known = np.flatnonzero(~np.isnan(waits.bus_bytes_per_s))
    if not known.size:
        return None
    order = known[np.argsort(waits.bus_bytes_per_s[known])]
    reached = np.cumsum(waits.n_bytes[order])
    return float(waits.bus_bytes_per_s[order[np.searchsorted(reached, reached[-1] / 2)]])


def _together(waits: GroupWaits) -> float | None:
    """The bus bandwidth of all of a group's collectives over the time in which any transfers; None unless all count."""
    if np.isnan(waits.bus_bytes_per_s).any():
        return None
    spent_ns = float(np.median(waits.transferred_once_ns.sum(axis=0)))
    return float((waits.bus_bytes_per_s * waits.transfer_ns).sum()) / spent_ns if spent_ns else None


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind, size and issuer in a group, as the lowest rank has them."""

    group: Group
    kind: CollectiveKind
    n_bytes: int
    issuer: str
    """The outermost operator that asked for them; "" where the script asked itself."""
    n_instances: int
    per_step: float | None
    """Instances per step, None without steps."""
    transfer_ns: int
    exposed_ns: int
    """On the median rank."""
    share: float
    """Of the group's bytes; of its transfer time where sizes are unknown."""
    is_suspect: bool
    """An all-reduce the script itself asks for, never part of the backward pass, that is a tenth of the traffic or more
    and mostly exposed: gradients are reduced in backward, what else the step sends deserves a question."""


def traffic(waits: GroupWaits, summaries: Sequence[RankSummary]) -> tuple[Traffic, ...]:
    """What the group's collectives are, the largest share first."""
    by_rank: Mapping[int, RankSummary] = {summary.rank: summary for summary in summaries}
    lowest = by_rank[waits.ranks[0]]
    row = waits.rows[:, 0]
    issuer = np.where(row >= 0, lowest.collectives.issuer[row], -1)
    keys, inverse = np.unique(np.stack([waits.kind, waits.n_bytes, issuer], axis=1), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    sized = bool((waits.n_bytes != UNKNOWN).all())
    weight = waits.n_bytes if sized else waits.transfer_ns
    total = max(int(weight.sum()), 1)
    in_backward = {(int(kind), int(size)) for kind, size, code in keys if lowest.name(int(code))}
    n_steps = np.unique(waits.step[waits.step >= 0]).size
    out = []
    for place, (kind, size, code) in enumerate(keys):
        mine = inverse == place
        share = int(weight[mine].sum()) / total
        exposed = int(np.median(waits.exposed_once_ns[mine].sum(axis=0)))
        shown, spent = (np.median(part[mine].sum(axis=0)) for part in (waits.exposed_ns, waits.duration_ns))
        repeats = (int(kind), int(size)) in in_backward
        out.append(
            Traffic(
                group=waits.group,
                kind=CollectiveKind(int(kind)),
                n_bytes=int(size),
                issuer=lowest.name(int(code)),
                n_instances=int(mine.sum()),
                per_step=int((waits.step[mine] >= 0).sum()) / n_steps if n_steps else None,
                transfer_ns=int(waits.transfer_ns[mine].sum()),
                exposed_ns=exposed,
                share=share,
                is_suspect=bool(
                    kind == CollectiveKind.ALL_REDUCE
                    and code < 0
                    and in_backward
                    and not (repeats and sized)
                    and share >= EXTRA.limit("traffic")
                    and shown >= EXTRA.limit("exposed") * spent
                ),
            )
        )
    return tuple(sorted(out, key=lambda row: -row.share))
