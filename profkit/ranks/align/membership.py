"""Who is here: which traces are ranks of one job and one recording, which ranks are missing, and what is left out.

Two recordings can lie in one folder, and two jobs. Ranks of the largest take part; every other trace is named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from profkit.model.documents.fleet import LeftOut
from profkit.plain import told_apart
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import Group
from profkit.ranks.reduce.summary import UNKNOWN_RANK

MOST_MISSING: Final = 1_024
"""Ranks that are named as missing, chosen: how many there are in all a file says, and it may say anything."""


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks that take part, each once and in order, and what does not."""

    present: tuple[Outcome, ...]
    left_out: tuple[LeftOut, ...]
    missing: tuple[int, ...]
    """The first `MOST_MISSING` of the `n_missing` ranks of the world that are not here."""
    n_missing: int
    world_size: int | None


def census(outcomes: Sequence[Outcome]) -> Census:
    """The ranks of one job and recording."""
    left_out: list[LeftOut] = []
    nameless = "neither the trace nor its file name (as in rank3) says which rank it is"
    kept = _taken(outcomes, left_out, lambda outcome: nameless if outcome.summary.rank == UNKNOWN_RANK else "")
    world_size, kept = _of_one_job(kept, left_out)
    kept = _of_one_recording(kept, left_out)
    kept = _of_one_set(kept, left_out)
    kept = _in_known_groups(kept, left_out)
    kept = _once_each(kept, left_out)
    here = {outcome.summary.rank for outcome in kept}
    return Census(
        present=tuple(sorted(kept, key=lambda outcome: outcome.summary.rank)),
        left_out=tuple(sorted(left_out, key=lambda item: item.source)),
        missing=tuple(islice((rank for rank in range(world_size or 0) if rank not in here), MOST_MISSING)),
        n_missing=max((world_size or 0) - sum(rank < (world_size or 0) for rank in here), 0),
        world_size=world_size,
    )


def _left(outcomes: Iterable[Outcome], reason: str) -> list[LeftOut]:
    return [LeftOut(source=outcome.report.source, reason=reason) for outcome in outcomes]


def _taken(outcomes: Iterable[Outcome], left_out: list[LeftOut], reason_of: Callable[[Outcome], str]) -> list[Outcome]:
    """The outcomes against which there is no reason; the others are left out for theirs."""
    reasons = [(outcome, reason_of(outcome)) for outcome in outcomes]
    left_out += [LeftOut(source=outcome.report.source, reason=reason) for outcome, reason in reasons if reason]
    return [outcome for outcome, reason in reasons if not reason]


def _of_one_job(outcomes: list[Outcome], left_out: list[LeftOut]) -> tuple[int | None, list[Outcome]]:
    """The world size that most traces name, and those that do not name another."""
    sizes = Counter(outcome.summary.world_size for outcome in outcomes if outcome.summary.world_size > 0)
    if not sizes:
        return None, outcomes
    usual = max(sizes, key=lambda size: (sizes[size], size))

    def reason(outcome: Outcome) -> str:
        size = outcome.summary.world_size
        reason = f"from another job: its world has {size} ranks, the others' world has {usual}"
        return "" if size in (0, usual) else reason

    return usual, _taken(outcomes, left_out, reason)


def _span_ns(outcome: Outcome) -> tuple[int, int]:
    origin, (low, high) = outcome.summary.origin_unix_ns, outcome.summary.window_ns
    return origin + low, origin + high


def _of_one_recording(outcomes: list[Outcome], left_out: list[LeftOut]) -> list[Outcome]:
    """The traces of one recording where ranks are there twice: windows that overlap, the most ranks, the latest.

    Where each rank is there once nothing is asked of the times: clocks of two machines may be far apart.
    """
    if len({outcome.summary.rank for outcome in outcomes}) == len(outcomes):
        return outcomes
    recordings: list[list[Outcome]] = []
    until = 0
    for outcome in sorted(outcomes, key=_span_ns):
        begin, end = _span_ns(outcome)
        if not recordings or begin >= until:
            recordings.append([])
        recordings[-1].append(outcome)
        until = max(until, end)

    def weight(place: int) -> tuple[int, int]:
        return len({outcome.summary.rank for outcome in recordings[place]}), place

    chosen = max(range(len(recordings)), key=weight)
    for place, recording in enumerate(recordings):
        if place != chosen:
            when = "earlier" if place < chosen else "later"
            left_out += _left(recording, f"from another recording, {when} than the one analysed here")
    return recordings[chosen]


def _of_one_set(outcomes: list[Outcome], left_out: list[LeftOut]) -> list[Outcome]:
    """The traces of one set of names where ranks are there twice: one folder, names alike but for numbers.

    Two jobs at one time, or two copies of one, must not be mixed rank by rank. Of sets that hold every rank that with
    most events; where none holds every rank, names tell nothing.
    """
    counts = Counter(outcome.summary.rank for outcome in outcomes)
    ranks = set(counts)
    if sum(count > 1 for count in counts.values()) < 2:  # of one rank the fuller trace is taken, see `_once_each`
        return outcomes
    sets: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        folder, _, name = outcome.report.source.rpartition("/")
        sets.setdefault((folder, re.sub(r"\d+", "#", name)), []).append(outcome)
    whole = [found for found in sets.values() if {outcome.summary.rank for outcome in found} == ranks]
    if not whole or len(sets) == 1:
        return outcomes
    chosen = max(whole, key=lambda found: sum(outcome.report.n_events for outcome in found))
    others = [outcome for outcome in outcomes if outcome not in chosen]
    name, *_ = told_apart(outcome.report.source for outcome in (chosen[0], *others))
    left_out += _left(others, f"its rank appears twice: {name} and files named like it are used")
    return chosen


def _in_known_groups(outcomes: list[Outcome], left_out: list[LeftOut]) -> list[Outcome]:
    """Leave out a trace none of whose process groups is known to the members that these groups name."""
    groups: dict[int, set[Group]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.summary.rank, set()).update(outcome.summary.groups)

    def reason(outcome: Outcome) -> str:
        mine = outcome.summary.rank
        others = {each: [one for one in each.ranks if one != mine and one in groups] for each in outcome.summary.groups}
        asked = [group for group, ranks in others.items() if len(ranks) > 1]
        is_known = any(group in groups[rank] for group in asked for rank in others[group])
        is_alone = asked and not is_known and len(outcomes) > 2
        return "from another job: no other rank has its process groups" if is_alone else ""

    return _taken(outcomes, left_out, reason)


def _once_each(outcomes: list[Outcome], left_out: list[LeftOut]) -> list[Outcome]:
    """The trace with most events of each rank: the other is a part of it, or broken off."""
    by_rank: dict[int, Outcome] = {}
    for outcome in outcomes:
        rank = outcome.summary.rank
        known = by_rank.setdefault(rank, outcome)
        if known is outcome:
            continue
        less, more = sorted((known, outcome), key=lambda item: item.report.n_events)
        by_rank[rank] = more
        name, _ = told_apart((more.report.source, less.report.source))
        fewer = "fewer" if less.report.n_events < more.report.n_events else "no more"
        left_out += _left([less], f"a second trace of rank {rank}, with {fewer} events than {name}")
    return list(by_rank.values())
