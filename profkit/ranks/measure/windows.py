"""What the ranks' windows have in common: steps of all, and collectives that some windows lack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import numpy as np

from profkit.model.arrays import I64
from profkit.model.table import NO_ROW
from profkit.ranks.align.clocks import Clocks
from profkit.ranks.align.match_types import GroupMatch, Matching
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.records import RankSummary

_MAX_NAMED = 4


def steps_in_common(summaries: Sequence[RankSummary], clocks: Clocks) -> int | None:
    """How many of the median rank's steps lie in every rank's window; None where clocks or steps cannot tell.

    To the nearest step: windows begin and end at a step's edge, which ranks reach at different times.
    """
    if not _can_tell(summaries, clocks):
        return None
    edges = np.array([_edges_ns(summary, clocks) for summary in summaries])
    n_steps = _usual_n_steps(summaries)
    step = float(np.median((edges[:, 1] - edges[:, 0]) / [len(summary.steps) for summary in summaries]))
    shared = float(edges[:, 1].min() - edges[:, 0].max())
    return int(np.clip(round(shared / step) if step > 0 else n_steps, 0, n_steps))


def steps_measured(summaries: Sequence[RankSummary], clocks: Clocks, waits: Sequence[GroupWaits]) -> int | None:
    """Number of the median rank's steps that the matched collectives fill; None where that cannot be told.

    Where every collective is on every rank, these are the steps that all windows share, and as many more as there are
    collectives beside them: traces hold some from before and after their steps.
    """
    shared = steps_in_common(summaries, clocks)
    if not shared or not all(group.present.all() for group in waits):
        return None
    edges = np.array([_edges_ns(summary, clocks) for summary in summaries])
    low, high = int(edges[:, 0].max()), int(edges[:, 1].min())
    last = np.concatenate([group.arrival_ns.max(axis=1) for group in waits]) if waits else np.empty(0, np.int64)
    n_inside = int(((last >= low) & (last < high)).sum())
    return min(round(shared * last.size / n_inside), _usual_n_steps(summaries)) if n_inside else None


def common_steps(numbers: Sequence[I64]) -> I64:
    """The numbers of steps that all ranks have."""
    return np.unique(reduce(np.intersect1d, numbers))


def of_steps(number: I64, summaries: Sequence[RankSummary], column: Callable[[RankSummary], I64]) -> I64:
    """A column of the steps with these numbers, which all ranks have, [S, R] or [S, R, k], ranks in order."""
    ranks = sorted(summaries, key=lambda summary: summary.rank)
    rows = [np.intersect1d(number, summary.steps.number, return_indices=True)[2] for summary in ranks]
    return np.stack([column(summary)[mine] for summary, mine in zip(ranks, rows, strict=True)], axis=1)


def _can_tell(summaries: Sequence[RankSummary], clocks: Clocks) -> bool:
    """Whether each rank's clock is known to half a step: an edge that is further off is another step's."""
    return all(
        len(summary.steps)
        and clocks.ranks[summary.rank].is_fitted
        and 2 * clocks.ranks[summary.rank].residual_p95_ns <= _length_ns(summary) / len(summary.steps)
        for summary in summaries
    )


def _length_ns(summary: RankSummary) -> int:
    return int(summary.steps.end_ns.max() - summary.steps.start_ns.min())


def _usual_n_steps(summaries: Sequence[RankSummary]) -> int:
    return int(np.median([len(summary.steps) for summary in summaries]))


def _edges_ns(summary: RankSummary, clocks: Clocks) -> I64:
    steps = summary.steps
    return clocks.corrected_ns(summary, np.array([steps.start_ns.min(), steps.end_ns.max()]))


def gaps(matching: Matching) -> Iterable[str]:
    """For each group: what some of its ranks' windows lack."""
    for match in matching.groups:
        whole = (match.rows != NO_ROW).all(axis=1)
        n_lacking = int((~whole).sum())
        if n_lacking:
            name = f" of group {match.group.name}" if match.group.name else ""
            verb = "is" if n_lacking == 1 else "are"
            yield (
                f"{n_lacking:,} of {len(whole):,} collectives{name} {verb} missing on some ranks ({_by_rank(match)})"
            )


def _by_rank(match: GroupMatch) -> str:
    said = []
    there = match.rows != NO_ROW
    for column, rank in enumerate(match.ranks):
        rows = np.flatnonzero(there[:, column])
        behind = len(there) - 1 - int(rows.max(initial=-1))
        first = match.n_late_start[column]
        parts = [f"starts {first:,} later"] * (first > 0) + [f"ends {behind:,} earlier"] * (behind > 0)
        parts += [f"lacks {match.n_missed[column]:,} in between"] * (match.n_missed[column] > 0)
        if parts:
            said.append(f"rank {rank} {', '.join(parts)}")
    more = f"; {len(said) - _MAX_NAMED} more" if len(said) > _MAX_NAMED else ""
    return "; ".join(said[:_MAX_NAMED]) + more
