"""The graph that a replay runs over: each rank's own work, its waits, and the collectives that tie ranks together.

Flat columns over all collectives of all ranks; a position is own work since the rank's window began, in ns, so that it
stays where it is when waits change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from profkit.model.arrays import I64, Bool, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.table import NO_ROW
from profkit.ranks.align.clocks import Clocks
from profkit.ranks.align.match_types import Matching
from profkit.ranks.reduce.collective_kinds import is_synchronising
from profkit.ranks.reduce.records import RankSummary


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Moments of one rank, told by its own work: `own_ns` done, `n_blocks` waits over, `inside_ns` into the next."""

    own_ns: I64
    n_blocks: I64
    inside_ns: I64


class RankTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """One rank on the reference's clock. `first` is the place of its first collective in the flat columns."""

    summary: RankSummary
    first: int
    begin_ns: int
    start_ns: I64
    end_ns: I64
    block_own_ns: I64
    """Own work done when each wait began."""
    block_row: I64
    """The collective each wait was for, as a place in the flat columns."""
    ready: Places
    steps: Places
    """The begin of the first step and the end of the last."""
    window_ns: int
    """From the one to the other."""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed. Flat columns [n] over collectives; instance `i` has the members `edges[i]:edges[i + 1]`.

    `member` holds places in the flat columns, instances in the order of their first end.
    """

    ranks: tuple[RankTimeline, ...]
    rank: I64
    before: I64
    """The collective of the same group on the same rank that had ended last when this one began, `NO_ROW` if none."""
    is_tied: Bool
    """Whether its end follows the last arrival; else it lasts as long as it did."""
    transfer_ns: I64
    """From the last arrival to this rank's end (docs/sources.md, rule 17); if not tied, its duration."""
    member: I64
    edges: I64
    n_alone: int
    """Collectives without a partner on another rank."""


def graph_of(
    summaries: Sequence[RankSummary], matching: Matching, clocks: Clocks, *, is_each_end_needed: bool = False
) -> Graph:
    """The graph of a job; every rank's clock must be fitted.

    `is_each_end_needed` adds a wait of no length wherever a collective ended under other work.
    """
    timelines, first = [], 0
    for summary in sorted(summaries, key=lambda each: each.rank):
        timelines.append(_timeline(summary, clocks, first, is_each_end_needed=is_each_end_needed))
        first += len(summary.collectives)
    start = np.concatenate([line.start_ns for line in timelines])
    end = np.concatenate([line.end_ns for line in timelines])
    kind = np.concatenate([line.summary.collectives.kind for line in timelines])
    instance, n_instances = _instances(matching, {line.summary.rank: line for line in timelines}, start.size)
    n_members = np.bincount(instance, minlength=n_instances)
    last = np.full(n_instances, np.iinfo(np.int64).min)
    np.maximum.at(last, instance, start)
    first_end = np.full(n_instances, np.iinfo(np.int64).max)
    np.minimum.at(first_end, instance, end)
    is_tied = (n_members[instance] > 1) & (is_synchronising(kind) | (end >= last[instance]))
    in_order = np.argsort(first_end, kind="stable")
    place = np.empty(n_instances, np.int64)
    place[in_order] = np.arange(n_instances)
    return Graph(
        ranks=tuple(timelines),
        rank=np.repeat(np.arange(len(timelines)), [len(line.start_ns) for line in timelines]),
        before=np.concatenate([_before(line) for line in timelines]),
        is_tied=is_tied,
        transfer_ns=np.where(is_tied, np.maximum(end - last[instance], 0), end - start),
        member=np.argsort(place[instance], kind="stable"),
        edges=np.append(0, np.cumsum(n_members[in_order])),
        n_alone=int((n_members == 1).sum()),
    )


def _timeline(summary: RankSummary, clocks: Clocks, first: int, *, is_each_end_needed: bool) -> RankTimeline:
    def shown(time_ns: I64) -> I64:
        return clocks.corrected_ns(summary, time_ns)

    rows, steps = summary.collectives, summary.steps
    waits = Intervals(shown(summary.blocks.start_ns), shown(summary.blocks.end_ns))
    ends, row = waits.end_ns, summary.blocks.row
    begin = int(shown(np.array([summary.window_ns[0]]))[0])
    span = shown(np.array([steps.start_ns.min(), steps.end_ns.max()]))
    end = shown(rows.end_ns)
    own = _own_ns(waits, begin, waits.start_ns)
    if is_each_end_needed:
        others = np.setdiff1d(np.arange(len(rows)), row)
        others = others[~waits.contains(end[others])]
        order = np.argsort(np.concatenate((ends, end[others])), kind="stable")
        own = np.concatenate((own, _own_ns(waits, begin, end[others])))[order]
        ends, row = np.concatenate((ends, end[others]))[order], np.concatenate((row, others))[order]
    return RankTimeline(
        summary=summary,
        first=first,
        begin_ns=begin,
        start_ns=shown(rows.start_ns),
        end_ns=end,
        block_own_ns=own,
        block_row=row + first,
        ready=_places(waits, ends, begin, shown(rows.ready_ns)),
        steps=_places(waits, ends, begin, span),
        window_ns=int(span[1] - span[0]),
    )


def _own_ns(waits: Intervals, begin: int, at_ns: I64) -> I64:
    """The own work done at each time, counted from `begin`; negative before it."""
    low = np.full(at_ns.size, min(begin, int(at_ns.min(initial=begin))))
    before = waits.covered_ns(low[:1], np.array([begin]))[0] if at_ns.size else 0
    return at_ns - begin - waits.covered_ns(low, at_ns) + before


def _places(waits: Intervals, ends: I64, begin: int, at_ns: I64) -> Places:
    inside = np.zeros(at_ns.size, np.int64)
    if len(waits):
        now = np.searchsorted(waits.end_ns, at_ns, "right")
        started = waits.start_ns[np.minimum(now, len(waits) - 1)]
        inside = np.where(now < len(waits), np.maximum(at_ns - started, 0), 0)
    n_blocks = np.searchsorted(ends, at_ns, "right")
    return Places(own_ns=_own_ns(waits, begin, at_ns), n_blocks=n_blocks, inside_ns=inside)


def _before(line: RankTimeline) -> I64:
    out = np.full(line.start_ns.size, NO_ROW, np.int64)
    group = line.summary.collectives.group
    for _, rows in rows_by_value(group):
        by_end = rows[np.argsort(line.end_ns[rows], kind="stable")]
        place = np.searchsorted(line.end_ns[by_end], line.start_ns[rows], "right") - 1
        found = (place >= 0) & (by_end[np.maximum(place, 0)] != rows)
        out[rows[found]] = by_end[place[found]] + line.first
    return out


def _instances(matching: Matching, lines: Mapping[int, RankTimeline], n: int) -> tuple[I64, int]:
    """Each collective's instance, and how many there are; one without partners is an instance of its own."""
    instance = np.full(n, NO_ROW, np.int64)
    n_found = 0
    parts = [(match.ranks, match.rows) for match in matching.groups]
    parts += [((pair.sender, pair.receiver), pair.rows) for pair in matching.pairs]
    for ranks, rows in parts:
        for column, rank in enumerate(ranks):
            there = np.flatnonzero(rows[:, column] != NO_ROW)
            instance[rows[there, column] + lines[rank].first] = there + n_found
        n_found += len(rows)
    alone = np.flatnonzero(instance == NO_ROW)
    instance[alone] = np.arange(alone.size) + n_found
    used, instance = np.unique(instance, return_inverse=True)
    return instance.reshape(-1).astype(np.int64), used.size
