"""The steps of every rank of a run: how long each waited for data, how long it computed and synchronised."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workloads.timing import percentile
from workloads.world import World


class Stopwatch:
    """Times the two parts of each step of one rank: the wait for its batch, and all that follows."""

    def __init__(self) -> None:
        self.data_ns: list[int] = []
        self.work_ns: list[int] = []
        self._since_ns = 0

    def begin(self) -> None:
        """Marks the start of a step: the loop asks for its batch."""
        self._since_ns = time.perf_counter_ns()

    def fetched(self) -> None:
        """Marks that the batch is here."""
        self.data_ns.append(self._lap_ns())

    def end(self) -> None:
        """Marks the end of the step: what lies between its batch and now is compute and synchronisation."""
        self.work_ns.append(self._lap_ns())

    def _lap_ns(self) -> int:
        now_ns = time.perf_counter_ns()
        lap_ns = now_ns - self._since_ns
        self._since_ns = now_ns
        return lap_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """The steady steps of one rank in ns, by part; their sum is the step."""

    rank: int
    data_ns: tuple[int, ...]
    work_ns: tuple[int, ...]

    @property
    def step_ns(self) -> tuple[int, ...]:
        """Each step."""
        return tuple(data + work for data, work in zip(self.data_ns, self.work_ns, strict=True))


def of_all_ranks(world: World, watch: Stopwatch, *, skip: int) -> list[RankSteps]:
    """Gives the steps of all ranks but the first `skip`, on every rank; each has to call it."""
    pairs = world.gathered((watch.data_ns[skip:], watch.work_ns[skip:]))
    return [RankSteps(rank=rank, data_ns=tuple(data), work_ns=tuple(work)) for rank, (data, work) in enumerate(pairs)]


def slowest(ranks: Sequence[RankSteps]) -> RankSteps:
    """Gives the rank whose mean step is longest: it sets the pace, and it is seldom the one to blame."""
    return max(ranks, key=lambda one: statistics.fmean(one.step_ns))


def spread_ns(ranks: Sequence[RankSteps]) -> float:
    """Gives the mean over steps of the longest less the shortest step of all ranks."""
    return statistics.fmean(max(step) - min(step) for step in zip(*(one.step_ns for one in ranks), strict=True))


def figures(ranks: Sequence[RankSteps]) -> dict[str, Any]:
    """Gives the figures of a run that its tables hold; times in ms."""
    last = slowest(ranks)
    return {
        "steps_timed": len(last.step_ns),
        "slowest_rank": last.rank,
        "slowest_step_ms": statistics.fmean(last.step_ns) / 1e6,
        "step_p50_ms": percentile(last.step_ns, 0.5) / 1e6,
        "step_p95_ms": percentile(last.step_ns, 0.95) / 1e6,
        "rank_spread_ms": spread_ns(ranks) / 1e6,
        "ranks": [
            {
                "rank": one.rank,
                "step_mean_ms": statistics.fmean(one.step_ns) / 1e6,
                "data_mean_ms": statistics.fmean(one.data_ns) / 1e6,
                "compute_sync_mean_ms": statistics.fmean(one.work_ns) / 1e6,
                "data_ms": [part / 1e6 for part in one.data_ns],
                "compute_sync_ms": [part / 1e6 for part in one.work_ns],
            }
            for one in ranks
        ],
    }


def rank_table(row: dict[str, Any]) -> str:
    """Gives the ranks of a run as lines for people."""
    lines = [
        f"  {one['rank']:4} {one['step_mean_ms']:8.2f} {one['data_mean_ms']:8.2f} {one['compute_sync_mean_ms']:13.2f}"
        for one in row["ranks"]
    ]
    return "\n".join(["  rank     step     data  compute+sync (mean, ms)", *lines])
