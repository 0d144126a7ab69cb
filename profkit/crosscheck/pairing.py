"""Which trace of the one tool is of the same rank as which trace of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.crosscheck.trace_profile import Portrait
from profkit.model.documents.rank_report import RankReport

_MAX_NAMED: Final = 8

Pairs = list[tuple[Portrait, Portrait]]


def paired(firsts: Sequence[Portrait], seconds: Sequence[Portrait]) -> tuple[Pairs, tuple[str, ...]]:
    """The pairs, in the order of the first tool's, and a sentence for those of the second without a partner.

    By rank, else by device; one trace on either side are a pair whatever they are called. A rank or a device that
    occurs twice on a side pairs nothing.
    """
    if len(firsts) == len(seconds) == 1:
        return [(firsts[0], seconds[0])], _other_rank(firsts[0], seconds[0])
    pairs: Pairs = []
    left = list(seconds)
    for first in firsts:
        partner = _partner(first, firsts, left)
        if partner is not None:
            left.remove(partner)
            pairs.append((first, partner))
    return pairs, without_partner([one.rank for one in left], seconds[0].tool if seconds else "")


def without_partner(ranks: Sequence[RankReport], tool: str) -> tuple[str, ...]:
    """One sentence on a tool's ranks without a partner, () where there are none."""
    if not ranks:
        return ()
    names = [str(one.rank) if one.rank is not None else one.source for one in ranks]
    named = ", ".join(names[:_MAX_NAMED])
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return (f"no partner for rank {named}{more} of {tool}",)


def _partner(first: Portrait, firsts: Sequence[Portrait], left: Sequence[Portrait]) -> Portrait | None:
    if first.rank.rank is not None and all(other.rank.rank is not None for other in left):
        ours = [one for one in firsts if one.rank.rank == first.rank.rank]
        theirs = [one for one in left if one.rank.rank == first.rank.rank]
    else:
        ours = [one for one in firsts if one.device == first.device]
        theirs = [one for one in left if one.device == first.device]
    return theirs[0] if len(ours) == len(theirs) == 1 else None


def _other_rank(first: Portrait, second: Portrait) -> tuple[str, ...]:
    ranks = first.rank.rank, second.rank.rank
    if None in ranks or ranks[0] == ranks[1]:
        return ()
    return (f"rank {ranks[0]} of {first.tool} is compared with rank {ranks[1]} of {second.tool}: one trace each",)
