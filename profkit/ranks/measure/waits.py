"""Each collective split: who came when, how long each rank waited for the last, and how long the transfer took.

    rank 0  |=====wait=====[transfer]      last = latest start over ranks
    rank 1             |===[transfer]      wait_r = last - start_r,  transfer = first end - last

Beside it the estimate that needs no clocks: a rank's duration minus the shortest over ranks (docs/sources.md, rule 17).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.findings.communication import SKEW
from profkit.model.arrays import I64, Bool, median
from profkit.model.intervals import from_where_alone
from profkit.model.table import Aligned
from profkit.ranks.align.clocks import Clocks
from profkit.ranks.align.match_types import GroupMatch, Matching, Method
from profkit.ranks.reduce.collective_kinds import (
    UNKNOWN,
    CollectiveKind,
    bus_factor,
    is_synchronising,
    message_bytes,
)
from profkit.ranks.reduce.records import PHASES, Group, RankSummary
from profkit.timeline.collectives import element_bytes

Float = NDArray[np.float64]

_DISPUTED: Final = 0.2
"""Share of the waiting by which the two estimates may differ (docs/sources.md, rule 17)."""
_DISPUTED_NS: Final = 20_000
"""What they may differ by at least: ranks leave an NCCL collective within some 10 us of each other."""


class GroupWaits(Aligned, frozen=True, kw_only=True):
    """The synchronising instances of one group, [n] or [n, R] with R the group's captured ranks.

    Times in ns; where `present` is False the values of [n, R] arrays are 0.
    """

    group: Group
    ranks: tuple[int, ...]
    is_whole: bool
    """Whether all ranks of the group are captured; else a rank that is not here may be the last."""
    uses_clocks: bool
    """Whether arrivals are on corrected clocks; else they are taken back from a common end, per instance."""
    kind: I64
    step: I64
    """Number of the step as the lowest rank has it, -1 outside."""
    present: Bool
    arrival_ns: I64
    """Start on the reference's clock since `Clocks.base_unix_ns`; without clocks, minus the duration."""
    duration_ns: I64
    wait_ns: I64
    free_wait_ns: I64
    """The clock-free estimate of `wait_ns`."""
    transfer_ns: I64
    n_bytes: I64
    """Message size as nccl-tests counts it, `UNKNOWN` where the trace does not say."""
    bus_bytes_per_s: Float
    """Bus bandwidth of the transfer (nccl-tests' definition), NaN where undefined."""
    hidden_ns: I64
    exposed_ns: I64
    exposed_once_ns: I64
    """What is exposed of the instance and beside none that began before: a rank's column adds up to a union."""
    waited_once_ns: I64
    """The waiting, in the same way: what the rank does not already wait in one that began before."""
    transferred_once_ns: I64
    """The transfer, in the same way, [n, R]."""
    wait_exposed_ns: I64
    """At least this much of that waiting is exposed: it less all that compute hides of the instance.

    Never more than what is exposed of the instance, however wrong the clocks are.
    """
    lead_ns: I64
    """[n, R, 5]: what each rank did since its last collective had ended, by `PHASES`."""
    own_ns: I64
    """[n, R, 5]: what each rank did itself since the group's instance before was ready, whatever ran beside it.

    Waits in other groups are left out, so that who is held up there has no more of it.
    """
    rows: I64

    @property
    def n_steps(self) -> int:
        """In how many steps the instances are; 0 where none are marked."""
        return np.unique(self.step[self.step >= 0]).size

    @property
    def disagreement_ns(self) -> int:
        """How far the two estimates of waiting are apart: the median over instances, of the worst rank.

        0 without clocks.
        """
        if not self.uses_clocks:
            return 0
        apart = np.abs(self.wait_ns - self.free_wait_ns)
        there = [apart[self.present[:, column], column] for column in range(len(self.ranks))]
        return max((median(column) for column in there if column.size), default=0)

    @property
    def disputed_fraction(self) -> float:
        """How far the two estimates are apart in all, as a share of the waiting; 0 without clocks."""
        waited = int(self.wait_ns[self.present].sum())
        if not self.uses_clocks or waited == 0:
            return 0.0
        return int(np.abs(self.wait_ns - self.free_wait_ns)[self.present].sum()) / waited

    @property
    def is_disputed(self) -> bool:
        """Whether the estimates differ by more than a fifth of the median wait: distrust the clocks then."""
        if not self.present.any():
            return False
        return self.disagreement_ns > max(_DISPUTED_NS, _DISPUTED * median(self.wait_ns[self.present]))


def split(summaries: Sequence[RankSummary], matching: Matching, clocks: Clocks) -> tuple[GroupWaits, ...]:
    """Waiting and transfer of every matched synchronising instance, per group; groups without any are left out."""
    by_rank = {summary.rank: summary for summary in summaries}
    found = [_group(match, by_rank, clocks) for match in matching.groups]
    return tuple(waits for waits in found if len(waits.rows))


def _group(match: GroupMatch, by_rank: Mapping[int, RankSummary], clocks: Clocks) -> GroupWaits:
    tables = [by_rank[rank] for rank in match.ranks]
    kinds = _gathered(match.rows, [summary.collectives.kind for summary in tables])
    kind = kinds.max(axis=1) if kinds.size else np.empty(0, np.int64)
    chosen = is_synchronising(kind)
    if match.method is Method.ENDS:  # its ends agree, so that a send-receive kernel was an all-to-all
        chosen |= kind == CollectiveKind.SEND_RECV
    on_all = chosen & (match.rows >= 0).all(axis=1)
    if on_all.sum() >= SKEW.limit("matched"):  # a rank whose window lacks an instance may be the last to come
        chosen = on_all
    rows, kind = match.rows[chosen], kind[chosen]
    present = rows >= 0

    def of_all(column: str) -> I64:
        return _gathered(rows, [getattr(table.collectives, column) for table in tables])

    begun, hidden = of_all("start_ns"), of_all("hidden_ns")
    duration = of_all("end_ns") - begun
    uses_clocks = all(clocks.ranks[rank].is_fitted for rank in match.ranks)
    if uses_clocks:
        start = _gathered(rows, [clocks.corrected_ns(table, table.collectives.start_ns) for table in tables])
    else:
        start = -duration
    end = start + duration
    last = _masked(start, present).max(axis=1)
    first_end = -_masked(-end, present).max(axis=1)
    wait = np.where(present, last[:, None] - start, 0)
    shortest = -_masked(-duration, present).max(axis=1)
    transfer = np.maximum(first_end - last, 0)
    n_bytes = _sizes(rows, tables)
    factor = bus_factor(kind, match.group.size or len(match.ranks))
    usable = (n_bytes > 0) & (transfer > 0)
    once = np.where(present, _once_ns(begun, np.minimum(wait, duration)), 0)
    return GroupWaits(
        group=match.group,
        ranks=match.ranks,
        is_whole=match.is_whole,
        uses_clocks=uses_clocks,
        kind=kind,
        step=_steps(rows, tables),
        present=present,
        arrival_ns=np.where(present, start, 0),
        duration_ns=duration,
        wait_ns=wait,
        free_wait_ns=np.where(present, duration - shortest[:, None], 0),
        transfer_ns=transfer,
        n_bytes=n_bytes,
        bus_bytes_per_s=np.where(usable, n_bytes / np.maximum(transfer, 1) * 1e9 * factor, np.nan),
        hidden_ns=hidden,
        exposed_ns=duration - hidden,
        exposed_once_ns=of_all("exposed_once_ns"),
        waited_once_ns=once,
        transferred_once_ns=np.where(present, _once_ns(begun + wait, np.where(present, transfer[:, None], 0)), 0),
        wait_exposed_ns=np.clip(once - hidden, 0, duration - hidden),
        lead_ns=of_all("lead_ns"),
        own_ns=_own_ns(rows, tables),
        rows=rows,
    )


def _once_ns(begun: I64, lasts: I64) -> I64:
    """[n, R]: of times that begin then and last so long, what none that began before has, in each column."""
    out = np.empty_like(begun)
    for column in range(begun.shape[1]):
        end = begun[:, column] + lasts[:, column]
        out[:, column] = end - from_where_alone(begun[:, column], end)
    return out


_LOWEST: Final = np.iinfo(np.int64).min // 4


def _masked(values: I64, present: Bool) -> I64:
    return np.where(present, values, _LOWEST)


def _gathered(rows: I64, columns: Sequence[NDArray[np.integer]]) -> I64:
    """[n, R] of one column of each rank's table, or [n, R, k]; 0 where a rank has no row."""
    out = np.zeros((*rows.shape, *columns[0].shape[1:]), np.int64)
    for place, column in enumerate(columns):
        there = rows[:, place] >= 0
        out[there, place] = column[rows[there, place]]
    return out


def _own_ns(rows: I64, tables: Sequence[RankSummary]) -> I64:
    out = np.zeros((*rows.shape, len(PHASES)), np.int64)
    for column, table in enumerate(tables):
        known, there = table.collectives, np.flatnonzero(rows[:, column] >= 0)
        mine = rows[there, column]
        if mine.size == 0:
            continue
        order = np.argsort(known.ready_ns, kind="stable")
        done = np.cumsum(known.own_ns[order], axis=0)
        ties = is_synchronising(known.kind[order]) | (known.kind[order] == CollectiveKind.SEND_RECV)
        at = np.flatnonzero((known.group[order] == known.group[mine[0]]) & ties)
        since = np.zeros_like(known.own_ns)
        since[order[at]] = np.diff(done[at], axis=0, prepend=np.zeros((1, len(PHASES)), np.int64))
        out[there, column] = since[mine]
    return out


def _steps(rows: I64, tables: Sequence[RankSummary]) -> I64:
    numbers = [np.append(table.steps.number, -1)[table.collectives.step] for table in tables]
    gathered = np.where(rows >= 0, _gathered(rows, numbers), -1)
    first = (rows >= 0).argmax(axis=1)
    step: I64 = gathered[np.arange(len(rows)), first] if len(rows) else np.empty(0, np.int64)
    return step


def _sizes(rows: I64, tables: Sequence[RankSummary]) -> I64:
    """The message size of each instance: equal on all ranks, and where splits differ the largest."""
    gathered = np.where(rows >= 0, _gathered(rows, [sizes_of(table) for table in tables]), UNKNOWN)
    largest: I64 = gathered.max(axis=1) if gathered.size else np.empty(0, np.int64)
    return largest


def sizes_of(summary: RankSummary) -> I64:
    """The message of each of a rank's collectives, bytes; `UNKNOWN` where nothing tells it."""
    width = np.array([element_bytes(text) for text in summary.strings] + [UNKNOWN], np.int64)
    columns = summary.collectives
    told = message_bytes(
        kind=columns.kind,
        in_elements=columns.in_elements,
        out_elements=columns.out_elements,
        element_bytes=width[columns.dtype],
    )
    sizes: I64 = np.where(told == UNKNOWN, columns.bucket_bytes, told)
    return sizes
