"""Groups whose links are slow: the same collectives at the same size take longer there than in their twins.

Twins are groups of as many ranks, none of them in both, that move the same: the tensor-parallel groups of a job, say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from profkit.findings.ranks.stragglers import SLOW_LINK
from profkit.model.arrays import I64, median
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.records import Group

Moved = tuple[int, int]
"""A kind of collective and the bytes of its message."""


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


def slow_links(waits: Sequence[GroupWaits]) -> tuple[SlowLink, ...]:
    """The groups that lose time against their twins, the one that loses most first."""
    moved = [_moved(group) for group in waits]
    found = []
    for place, group in enumerate(waits):
        twins = [other for other in range(len(waits)) if other != place and _are_twins(waits, moved, place, other)]
        if twins and group.is_whole:
            found.append(_against(group, moved[place], [(waits[twin], moved[twin]) for twin in twins]))
    return tuple(sorted((one for one in found if one is not None), key=lambda one: -one.exposed_ns))


def _moved(waits: GroupWaits) -> dict[Moved, I64]:
    """The instances of each kind and size whose bandwidth is known on all ranks, as rows."""
    known = waits.present.all(axis=1) & ~np.isnan(waits.bus_bytes_per_s)
    keys = np.stack([waits.kind, waits.n_bytes], axis=1)
    distinct, inverse = np.unique(keys[known], axis=0, return_inverse=True)
    rows, inverse = np.flatnonzero(known), inverse.reshape(-1)
    return {(int(kind), int(size)): rows[inverse == code] for code, (kind, size) in enumerate(distinct)}


def _are_twins(waits: Sequence[GroupWaits], moved: Sequence[Mapping[Moved, I64]], one: int, other: int) -> bool:
    first, second = waits[one], waits[other]
    is_apart = not set(first.ranks) & set(second.ranks)
    return bool(
        len(first.ranks) == len(second.ranks) and is_apart and moved[one] and moved[one].keys() == moved[other].keys()
    )


def _against(
    group: GroupWaits, moved: Mapping[Moved, I64], twins: Sequence[tuple[GroupWaits, Mapping[Moved, I64]]]
) -> SlowLink | None:
    """The group against the middle of its twins, None where it is not slow."""
    longer = np.zeros(len(group.rows), np.int64)
    speeds: dict[Moved, tuple[float, float]] = {}
    lasts: dict[Moved, tuple[int, int]] = {}
    for key, rows in moved.items():
        usual = np.median([np.median(twin.transfer_ns[there[key]]) for twin, there in twins])
        speed = float(np.median([np.median(twin.bus_bytes_per_s[there[key]]) for twin, there in twins]))
        here = float(np.median(group.bus_bytes_per_s[rows]))
        slow = group.bus_bytes_per_s[rows] * SLOW_LINK.limit("ratio") <= speed
        if slow.mean() < SLOW_LINK.limit("always"):
            continue
        longer[rows] = np.maximum(group.transfer_ns[rows] - round(float(usual)), 0)
        speeds[key] = here, speed
        lasts[key] = median(group.transfer_ns[rows]), round(float(usual))
    if not speeds or int((longer > 0).sum()) < SLOW_LINK.limit("instances"):
        return None
    most = max(speeds, key=lambda key: int(longer[moved[key]].sum()))
    transferred = np.maximum(group.exposed_once_ns - group.wait_exposed_ns, 0)
    return SlowLink(
        group=group.group,
        ranks=group.ranks,
        n_bytes=most[1],
        bus_bytes_per_s=speeds[most][0],
        twin_bytes_per_s=speeds[most][1],
        transfer_ns=lasts[most][0],
        twin_transfer_ns=lasts[most][1],
        n_twins=len(twins),
        n_instances=int((longer > 0).sum()),
        longer_ns=int(longer.sum()),
        exposed_ns=int(np.median(np.minimum(longer[:, None], transferred).sum(axis=0))),
    )
