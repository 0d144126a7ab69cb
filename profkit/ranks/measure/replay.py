"""The step time if a rank had been like its peers: the job's timelines run again, with that rank's work replaced.

Each rank does its own work in its own time; a collective begins when its last rank has come and then takes what it
took; a rank that stood still for a collective goes on when that ends. What ranks did beside a collective goes on beside
it. Nothing else is kept, so that the replay of the job as it was misses what the model does not explain: above 3 %
there is no answer (docs/sources.md, rule 20).

It runs over a graph of flat columns over all collectives of all ranks; a position is own work since the rank's window
began, in ns, so that it stays where it is when waits change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool, rows_by_value
from profkit.model.documents.fleet import Prediction
from profkit.model.intervals import Intervals
from profkit.model.table import NO_ROW
from profkit.ranks.align.clocks import Clocks
from profkit.ranks.align.match_types import Matching
from profkit.ranks.measure.stragglers import Straggler
from profkit.ranks.measure.windows import steps_in_common
from profkit.ranks.reduce.collective_kinds import is_synchronising
from profkit.ranks.reduce.records import PHASES, RankSummary
from profkit.units import format_fraction

MAX_ERROR: Final = 0.03
"""Error of the replay of the job as it was, above which it says nothing (docs/sources.md, rule 20)."""

_UNKNOWN_NS: Final = np.iinfo(np.int64).max // 4
"""From here on a time or a delay is not known: the replay runs in the order of ends, and asks before waits are over."""
_ADDS: Final = 0.05
"""Of a rank's lateness, from which a phase adds to it. Chosen: less is noise."""
_CORES: Final = (
    "cores are shared: others may use the cores of a waiting rank, so the real gain is smaller (one study: 32 of 40 ms)"
)
_CONTENTION: Final = "compute and communication that overlap slow each other down as before"
_HIDDEN: Final = "when the result of a hidden collective is first needed: the two step times are the bounds"


class Equalised(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose `phases` were set to its peers' median, collective by collective.

    `removed_ns`: by how much that shortens the rank's own work, per step.
    """

    rank: int
    phases: tuple[str, ...]
    removed_ns: int


class Counterfactual(Prediction, frozen=True, kw_only=True):
    """The predicted step, and what it was predicted from.

    `predicted_ns` is the least step time the model allows, `predicted_most_ns` the greatest: the one where nothing
    waits for a collective that compute had hidden, the other where each was needed at the moment it ended.
    """

    equalised: tuple[Equalised, ...]
    n_instances: int
    later_gain_ns: int = 0
    """What steps behind the first gain; that one waits for what a host that runs ahead did before it. 0: not told."""

    @property
    def most_gain_ns(self) -> int:
        """What is gained at most; all steps gain what those behind the first do, or more of them would be late."""
        return max(self.gain_ns, self.observed_ns - self.predicted_ns, self.later_gain_ns)


class ReplayRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no prediction; `error_fraction` where the job as it was could be replayed."""

    reason: str
    error_fraction: float | None = None


def counterfactual(
    summaries: Sequence[RankSummary], matching: Matching, clocks: Clocks, stragglers: Sequence[Straggler]
) -> Counterfactual | ReplayRefusal:
    """The step time if these stragglers did what `phase` names as fast as their peers, or why it is not known.

    `stragglers` as `find_stragglers` names them; all of them are equalised at once.
    """
    if reason := _reason_against(summaries, matching, clocks, stragglers):
        return ReplayRefusal(reason=reason)
    graph = graph_of(summaries, matching, clocks)
    as_it_was = _steps_ns(graph, {})
    if as_it_was is None:
        return ReplayRefusal(reason="the order in which collectives end is impossible: the clocks are wrong")
    observed = np.array([line.window_ns / len(line.summary.steps) for line in graph.ranks])
    error = float((np.abs(as_it_was[0] - observed) / observed).max())
    if error > MAX_ERROR:
        missed = f"by {format_fraction(error)}, more than {format_fraction(MAX_ERROR)}"
        reason = f"the replay of the unchanged job misses its step time {missed}"
        return ReplayRefusal(reason=reason, error_fraction=error)
    cuts = _cuts(graph, matching, _phases_of(stragglers))
    least = _steps_ns(graph, cuts)
    most = _steps_ns(graph_of(summaries, matching, clocks, is_each_end_needed=True), cuts)
    if least is None or most is None:
        return ReplayRefusal(reason="the order in which collectives end would change", error_fraction=error)
    lines = graph.ranks
    is_usual = not any(one.event or one.is_once for one in stragglers)
    return Counterfactual(
        ranks=tuple(sorted(lines[place].summary.rank for place in cuts)),
        observed_ns=round(observed.mean()),
        replayed_ns=round(as_it_was[0].mean()),
        error_fraction=error,
        predicted_ns=round(least[0].mean()),
        predicted_most_ns=round(max(least[0].mean(), most[0].mean())),
        later_gain_ns=round((as_it_was[1] - np.minimum(least[1], most[1])).mean()) if is_usual else 0,
        equalised=tuple(
            Equalised(
                rank=lines[place].summary.rank,
                phases=_phases_of(stragglers)[lines[place].summary.rank],
                removed_ns=round((cut.removed_ns[-1] - cut.removed_ns[0]) / len(lines[place].summary.steps)),
            )
            for place, cut in cuts.items()
        ),
        n_steps=min(len(line.summary.steps) for line in lines),
        n_instances=len(graph.edges) - 1 - graph.n_alone,
        unmodelled=_unmodelled(graph, summaries),
    )


def _reason_against(
    summaries: Sequence[RankSummary], matching: Matching, clocks: Clocks, stragglers: Sequence[Straggler]
) -> str:
    if not stragglers:
        return "no rank keeps the others waiting: there is nothing to replace"
    if any(len(summary.steps) == 0 for summary in summaries):
        return "a rank has no steps: there is no step time to predict"
    missing = max(max(summary.world_size for summary in summaries) - len(summaries), 0)
    if missing or not all(match.is_whole for match in matching.groups):
        return f"{missing or 'some'} ranks are missing: their arrival times are unknown"
    loose = [summary.rank for summary in summaries if not clocks.ranks[summary.rank].is_fitted]
    if loose:
        named = ", ".join(map(str, loose[:8]))
        return f"too few common collectives to align the clocks (ranks {named}): arrival times are unknown"
    shared, n_steps = steps_in_common(summaries, clocks), max(len(summary.steps) for summary in summaries)
    if shared is not None and shared < n_steps:
        return f"only {shared} of {n_steps} steps are in every rank's window"
    return ""


def _unmodelled(graph: Graph, summaries: Sequence[RankSummary]) -> tuple[str, ...]:
    notes = [_HIDDEN, _CONTENTION]
    if any(summary.is_cpu for summary in summaries):
        notes.insert(0, _CORES)
    if graph.n_alone:
        notes.append(f"{graph.n_alone} unmatched collectives take as long as before")
    return tuple(notes)


class _Cut(msgspec.Struct, frozen=True):
    """How much of a rank's own work is taken away up to each of some positions, both in ns of own work."""

    at_own_ns: I64
    removed_ns: I64


def _phases_of(stragglers: Sequence[Straggler]) -> dict[int, tuple[str, ...]]:
    """The phases to equalise by rank: the one that makes it late and any other that adds to it; all where it is mixed.

    What mends a rank mends what comes with its cause, as the copies of a checkpoint do.
    """
    out: dict[int, tuple[str, ...]] = {}
    for straggler in stragglers:
        least = _ADDS * straggler.lateness_ns
        adds = tuple(phase for phase, ns in zip(PHASES, straggler.phase_excess_ns, strict=True) if ns >= least)
        named = (straggler.phase, *adds) if straggler.phase else PHASES
        named = (*named, "host") if straggler.more is not None else named
        wanted = (*out.get(straggler.rank, ()), *named)
        out[straggler.rank] = tuple(phase for phase in PHASES if phase in wanted)
    return out


def _cuts(graph: Graph, matching: Matching, phases: Mapping[int, tuple[str, ...]]) -> dict[int, _Cut]:
    """Per place of a rank to equalise: what of its own work before each collective is taken away."""
    lines = {line.summary.rank: line for line in graph.ranks}
    tails = {rank: _tail_ns(line) for rank, line in lines.items()}
    out = {}
    for rank, names in phases.items():
        line = lines[rank]
        excess = np.zeros(len(line.start_ns), np.int64)
        for ranks, rows in matching.parts:
            if rank in ranks:
                mine, more = _excess(lines, rank, names, _peers(rank, (ranks, rows), matching, phases))
                excess[mine] = more
        order = np.argsort(line.ready.own_ns, kind="stable")
        at = line.ready.own_ns[order]
        length = np.maximum(np.diff(at, prepend=0), 0)
        cut = np.where(length > 0, np.minimum(excess[order], length), 0)
        usual = np.median([tail for other, tail in tails.items() if other not in phases] or [tails[rank]])
        left = max(tails[rank] - round(float(usual)), 0)
        at = np.concatenate(([0], at, [int(at[-1]) + tails[rank]]))
        cut = np.concatenate(([_late_at_first_ns(line, lines, phases, int(cut.sum()) + left)], cut, [left]))
        out[list(lines).index(rank)] = _Cut(at, np.cumsum(cut))
    return out


def _late_at_first_ns(line: RankTimeline, lines: Mapping[int, RankTimeline], late: Collection[int], cut: int) -> int:
    """By how much a rank begins after its peers, for what it did in the step before; no more than in a usual step."""
    others = [other.begin_ns for rank, other in lines.items() if rank not in late] or [line.begin_ns]
    return min(max(line.begin_ns - round(float(np.median(others))), 0), cut // len(line.summary.steps))


def _tail_ns(line: RankTimeline) -> int:
    """A rank's own work behind its last collective, to the end of its last step."""
    return max(int(line.steps.own_ns[-1]) - int(line.ready.own_ns.max()), 0)


def _peers(rank: int, part: tuple[tuple[int, ...], I64], matching: Matching, late: Collection[int]) -> dict[int, I64]:
    """The rows of a rank and of its peers that are not late; of a group that is late as a whole those of its twins.

    Twins are as many ranks that ran as many collectives: the same instance there is the one in the same place.
    """
    ranks, rows = part
    columns = dict(zip(ranks, rows.T, strict=True))
    if any(other not in late for other in ranks):
        return {other: column for other, column in columns.items() if other == rank or other not in late}
    twins = {
        other: column
        for others, theirs in matching.parts
        if theirs.shape == rows.shape and not set(others) & set(ranks)
        for other, column in zip(others, theirs.T, strict=True)
        if other not in late
    }
    return {rank: columns[rank], **twins} if twins else columns


def _excess(
    lines: Mapping[int, RankTimeline], rank: int, names: tuple[str, ...], rows: Mapping[int, I64]
) -> tuple[I64, I64]:
    """The rank's rows that peers have too, and by how much its own work before exceeds their median, by phase."""
    others = [other for other in rows if other != rank]
    instances = np.flatnonzero((rows[rank] != NO_ROW) & (np.stack([rows[o] for o in others]) != NO_ROW).any(axis=0))
    mine = rows[rank][instances]
    excess = np.zeros(instances.size, np.int64)
    for name in names:
        phase = PHASES.index(name)
        seen = np.full((len(others), instances.size), np.nan)
        for row, other in enumerate(others):
            there = rows[other][instances] != NO_ROW
            table = lines[other].summary.collectives.own_ns
            seen[row, there] = table[rows[other][instances[there]], phase]
        own = lines[rank].summary.collectives.own_ns[mine, phase]
        excess += own - np.rint(np.nanmedian(seen, axis=0)).astype(np.int64)
    return mine, excess


def _moved(cut: _Cut | None, at: Places) -> I64:
    """Where moments are, in ns since the rank's window began and without its waits, after the cut."""
    whole = at.own_ns + at.inside_ns
    return whole if cut is None else whole - _removed(cut, at.own_ns)


def _removed(cut: _Cut, own_ns: I64) -> I64:
    removed: I64 = np.rint(np.interp(own_ns, cut.at_own_ns, cut.removed_ns)).astype(np.int64)
    return removed


def _blocks(graph: Graph, moved: Mapping[int, _Cut]) -> tuple[I64, I64]:
    """Per collective: the rank's wait that it ends (`NO_ROW` for none) and where that wait begins."""
    block = np.full(graph.rank.size, NO_ROW, np.int64)
    own = np.zeros(graph.rank.size, np.int64)
    for place, line in enumerate(graph.ranks):
        at = line.block_own_ns
        if place in moved:
            at = at - _removed(moved[place], at)
        block[line.block_row] = np.arange(at.size)
        own[line.block_row] = line.begin_ns + at
    return block, own


class _Delays:
    """How much later than its own work alone each rank is, after each of its waits; waits are noted as they end."""

    def __init__(self, graph: Graph) -> None:
        n_blocks = max(len(line.block_row) for line in graph.ranks)
        self._noted = np.full((len(graph.ranks), n_blocks), _UNKNOWN_NS)
        self._after = np.zeros((len(graph.ranks), n_blocks + 1), np.int64)
        self._n_known = np.zeros(len(graph.ranks), np.int64)

    def note(self, rank: I64, block: I64, late_ns: I64) -> None:
        """Take down by how much each rank is late after one of its waits."""
        self._noted[rank, block] = late_ns

    def at(self, rank: I64, n_blocks: I64) -> I64:
        """The delay of each rank after so many waits; beyond `_UNKNOWN_NS` where one of them is not noted yet."""
        while (behind := self._n_known[rank] < n_blocks).any():
            r = rank[behind]
            k = self._n_known[r]
            self._after[r, k + 1] = np.maximum(self._after[r, k], self._noted[r, k])
            self._n_known[r] = k + 1
        found: I64 = self._after[rank, n_blocks]
        return found


def _steps_ns(graph: Graph, moved: Mapping[int, _Cut]) -> NDArray[np.float64] | None:
    """[2, R]: each rank's mean step of a replay with own work cut, of all steps and without the first.

    None where the order of ends contradicts itself.
    """
    lines = graph.ranks
    delays = _Delays(graph)
    own = np.concatenate([line.begin_ns + _moved(moved.get(i), line.ready) for i, line in enumerate(lines)])
    n_blocks = np.concatenate([line.ready.n_blocks for line in lines])
    block, block_own = _blocks(graph, moved)
    end = np.full(graph.rank.size, _UNKNOWN_NS)
    for first, last in pairwise(graph.edges.tolist()):
        rows = graph.member[first:last]
        start = own[rows] + delays.at(graph.rank[rows], n_blocks[rows])
        before = graph.before[rows]
        start = np.maximum(start, np.where(before == NO_ROW, start, end[before]))
        if start.max() >= _UNKNOWN_NS:
            return None
        end[rows] = np.where(graph.is_tied[rows], start.max(), start) + graph.transfer_ns[rows]
        waiting = rows[block[rows] != NO_ROW]
        delays.note(graph.rank[waiting], block[waiting], end[waiting] - block_own[waiting])
    edges = [_moved(moved.get(i), line.steps) for i, line in enumerate(lines)]
    every = np.arange(len(lines))
    late = [delays.at(every, np.array([line.steps.n_blocks[side] for line in lines])) for side in range(3)]
    if max(side.max() for side in late) >= _UNKNOWN_NS:
        return None
    at = np.array(edges).T + np.array(late)
    n_steps = np.array([len(line.summary.steps) for line in lines])
    return np.stack(((at[2] - at[0]) / n_steps, (at[2] - at[1]) / np.maximum(n_steps - 1, 1)))


# --------------------------------------------------------------------------------------------------------- the graph


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
    """The begin of the first step, its end, and the end of the last."""
    window_ns: int
    """From that begin to the last end."""


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
    span = shown(np.array([steps.start_ns.min(), steps.end_ns.min(), steps.end_ns.max()]))
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
        window_ns=int(span[-1] - span[0]),
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
    for ranks, rows in matching.parts:
        for column, rank in enumerate(ranks):
            there = np.flatnonzero(rows[:, column] != NO_ROW)
            instance[rows[there, column] + lines[rank].first] = there + n_found
        n_found += len(rows)
    alone = np.flatnonzero(instance == NO_ROW)
    instance[alone] = np.arange(alone.size) + n_found
    used, instance = np.unique(instance, return_inverse=True)
    return instance.reshape(-1).astype(np.int64), used.size
