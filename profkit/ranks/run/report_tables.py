"""The tables of a fleet: where each rank's step goes, what the groups carry, how the clocks lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.model.arrays import median
from profkit.model.documents.fleet import ClockRow, GroupRow, RankRow
from profkit.model.intervals import from_where_alone
from profkit.ranks.align.clocks import MIN_ENDS
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.peer_totals import budget_of
from profkit.ranks.measure.stragglers import own_excess_ns
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import RankSummary
from profkit.units import format_ns

_MAX_SINGLE: Final = 8
"""Ranks up to which each has a row for people; of more, those without a cause share one."""


def rank_rows(joint: Joint, causes: Mapping[int, str]) -> tuple[RankRow, ...]:
    """One row for each rank; `causes` by rank, of those that are late."""
    waiting = _waiting(joint)
    return tuple(
        _rank_row(outcome, waiting.get(outcome.summary.rank), joint.n_steps, causes) for outcome in joint.outcomes
    )


def shown_rows(rows: Sequence[RankRow], causes: Mapping[int, str]) -> tuple[RankRow, ...]:
    """The rows for people: late ranks first, in the order of `causes`; of many ranks the others in one row."""
    late = sorted((row for row in rows if row.cause), key=lambda row: list(causes).index(row.ranks[0]))
    rest = [row for row in rows if not row.cause]
    if len(rows) <= _MAX_SINGLE or len(rest) < 2:
        return (*late, *rest)
    return (*late, _folded(rest))


class _Waiting(msgspec.Struct, frozen=True):
    """One rank over all groups: exposed waiting, and how often the others waited for it.

    What it waits for in two groups at the same time counts once.
    """

    wait_ns: int
    n_last: int
    n_instances: int


def _waiting(joint: Joint) -> dict[int, _Waiting]:
    out: dict[int, _Waiting] = {}
    columns = [{rank: column for column, rank in enumerate(waits.ranks)} for waits in joint.waits]
    waited = {
        summary.rank: _exposed_waiting_ns(
            summary,
            [
                (waits, column_of[summary.rank])
                for waits, column_of in zip(joint.waits, columns, strict=True)
                if summary.rank in column_of
            ],
        )
        for summary in joint.summaries
    }
    for waits in joint.waits:
        n_last, present = (own_excess_ns(waits) > 0).sum(axis=0), waits.present.sum(axis=0)
        for column, rank in enumerate(waits.ranks):
            known = out.get(rank, _Waiting(waited[rank], 0, 0))
            out[rank] = _Waiting(
                known.wait_ns,
                known.n_last + int(n_last[column]),
                known.n_instances + int(present[column]),
            )
    return out


def _exposed_waiting_ns(summary: RankSummary, groups: Sequence[tuple[GroupWaits, int]]) -> int:
    """At least so much of a rank's time is exposed waiting, in all its groups together, each with its column there."""
    begun, lasts, hidden, shown = [], [], [], []
    for waits, column in groups:
        rows = np.flatnonzero(waits.present[:, column])
        begun.append(summary.collectives.start_ns[waits.rows[rows, column]])
        lasts.append(np.minimum(waits.wait_ns, waits.duration_ns)[rows, column])
        hidden.append(waits.hidden_ns[rows, column])
        shown.append(waits.exposed_ns[rows, column])
    if not begun:
        return 0
    start = np.concatenate(begun)
    end = start + np.concatenate(lasts)
    once = end - from_where_alone(start, end)
    return int(np.clip(once - np.concatenate(hidden), 0, np.concatenate(shown)).sum())


def _rank_row(outcome: Outcome, waiting: _Waiting | None, n_shared: int, causes: Mapping[int, str]) -> RankRow:
    """A rank's row; `n_shared`: the steps that waiting was measured in."""
    report, rank = outcome.report, outcome.summary.rank
    budget, n_steps = budget_of(report), max(report.steps.n, 1)
    step = budget.window_ns // n_steps
    comm_ns = budget.comm_exposed - outcome.summary.unasked_ns
    parts = (budget.idle_data, budget.compute, budget.copy_exposed, comm_ns, budget.idle_dependency)
    data, compute, copy, comm, device = (part // n_steps for part in parts)
    wait = None if waiting is None else min(waiting.wait_ns // min(n_shared, n_steps), comm)
    return RankRow(
        ranks=(rank,),
        step_ns=step,
        data_ns=data,
        compute_ns=compute,
        host_ns=step - data - compute - copy - comm - device,
        copy_ns=copy,
        wait_ns=wait,
        transfer_ns=comm - (wait or 0),
        n_last=waiting.n_last if waiting else 0,
        n_instances=waiting.n_instances if waiting else 0,
        cause=causes.get(rank, ""),
        device_ns=device,
    )


def _folded(rows: Sequence[RankRow]) -> RankRow:
    """The medians of rows in one."""

    def middle(name: str) -> int:
        return median(np.array([getattr(row, name) for row in rows], np.int64))

    waits = [row.wait_ns for row in rows if row.wait_ns is not None]
    return RankRow(
        ranks=tuple(rank for row in rows for rank in row.ranks),
        step_ns=middle("step_ns"),
        data_ns=middle("data_ns"),
        compute_ns=middle("compute_ns"),
        host_ns=middle("host_ns"),
        copy_ns=middle("copy_ns"),
        wait_ns=median(np.array(waits, np.int64)) if waits else None,
        transfer_ns=middle("transfer_ns"),
        n_last=sum(row.n_last for row in rows),
        n_instances=max(row.n_instances for row in rows),
        device_ns=middle("device_ns"),
    )


def group_rows(joint: Joint) -> tuple[GroupRow, ...]:
    """One row for each group whose collectives are matched, the longest exposed first."""
    matches = {(match.group, match.ranks): match for match in joint.matching.groups}
    rows = [
        GroupRow(
            name=limit.group.name,
            ranks=waits.ranks,
            size=limit.group.size,
            method=matches[waits.group, waits.ranks].method.value,
            n_instances=limit.n_instances,
            wait_ns=limit.wait_ns,
            transfer_ns=limit.transfer_ns,
            exposed_ns=limit.exposed_ns,
            bus_bytes_per_s=limit.bus_bytes_per_s if waits.is_whole else None,
            note=matches[waits.group, waits.ranks].note,
        )
        for waits, limit in zip(joint.waits, joint.limits, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: -row.exposed_ns))


def clock_rows(joint: Joint) -> tuple[ClockRow, ...]:
    """One row for each rank's clock."""
    return tuple(
        ClockRow(
            rank=clock.rank,
            offset_ns=round(clock.offset_ns),
            drift_ppm=clock.drift * 1e6,
            n_ends=clock.n_ends,
            residual_p95_ns=round(clock.residual_p95_ns),
            is_fitted=clock.is_fitted,
        )
        for clock in sorted(joint.clocks.ranks.values(), key=lambda clock: clock.rank)
    )


def clock_note(rows: Sequence[ClockRow], joint: Joint) -> str:
    """How far the clocks can be trusted, in one line."""
    fitted = [row for row in rows if row.is_fitted]
    if not fitted:
        return f"not aligned: fewer than {MIN_ENDS} common collectives; waits are taken from durations alone"
    apart = max(row.offset_ns for row in fitted) - min(row.offset_ns for row in fitted)
    residual = max(row.residual_p95_ns for row in fitted)
    ends = max(row.n_ends for row in fitted)
    of = "" if len(fitted) == len(rows) else f" for {len(fitted)} of {len(rows)} ranks"
    moved = f", {format_ns(apart)} apart" if apart else ""
    if apart and _may_be_a_link(apart, joint):
        moved = (
            f"; the ends lie {format_ns(apart)} apart: the clocks differ, or a slow link lets one rank leave later than"
            " another"
        )
    return f"aligned on the ends of {ends:,} collectives{of}{moved}; 95 % agree within {format_ns(residual)}"


def _may_be_a_link(apart_ns: int, joint: Joint) -> bool:
    """Whether ranks may have left so long after one another: no longer than a transfer of gloo's takes over a network.

    gloo's rings pass the last pieces on from rank to rank; on hosts with one clock, with a link limited to 200 Mbit/s,
    they were seen to leave 45 ms apart (`analyses/netlab`). NCCL's leave within microseconds.
    """
    is_over_network = len({summary.host for summary in joint.summaries}) > 1
    longest = max((median(waits.transfer_ns) for waits in joint.waits if len(waits.rows)), default=0)
    return is_over_network and all(summary.is_cpu for summary in joint.summaries) and apart_ns <= longest
