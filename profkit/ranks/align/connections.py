"""Which connection of one rank is which of another: what each rank sends to each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from profkit.model.trace import Connection
from profkit.ranks.reduce.records import RankSummary


class Link(msgspec.Struct, frozen=True, kw_only=True):
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
                Link(
                    sender=rank,
                    receiver=other,
                    sent_bytes=one.acked_bytes,
                    busy_ns=one.busy_ns,
                    resent_bytes=one.resent_bytes,
                )
                for (rank, one), other in zip(mine, (second, first), strict=True)
            )
        else:
            unpaired = max(unpaired, *(one.acked_bytes for _, one in mine))
    return Links(links=tuple(found), unpaired_bytes=unpaired)
