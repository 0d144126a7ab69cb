"""Which trace of the one tool is of the same rank as which trace of the other."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.handover.portrait import Portrait

Pairs = list[tuple[Portrait, Portrait]]


def paired(firsts: Sequence[Portrait], seconds: Sequence[Portrait]) -> tuple[Pairs, tuple[str, ...]]:
    """Give the pairs, in the order of the first tool's, and a sentence on each trace without a partner.

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
    done = {id(first) for first, _ in pairs}
    alone = [first for first in firsts if id(first) not in done]
    return pairs, tuple(f"{_named(one)} has no partner in the other tool's traces" for one in (*alone, *left))


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
    return (f"rank {ranks[0]} of {first.tool} is set against rank {ranks[1]} of {second.tool}: one trace each",)


def _named(one: Portrait) -> str:
    rank = f"rank {one.rank.rank}" if one.rank.rank is not None else f"device {one.device}"
    return f"{rank} of {one.tool} ({one.rank.source})"
