"""Ranks with a known truth: steps of phases and collectives, on clocks that are off and drift."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.ranks.align.clocks import Clocks, aligned
from profkit.ranks.align.match import matched
from profkit.ranks.align.match_types import Matching
from profkit.ranks.measure.stragglers import Stragglers, find_stragglers
from profkit.ranks.measure.waits import GroupWaits, split
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import (
    PHASES,
    BlockRows,
    CollectiveRows,
    Group,
    LeadRanges,
    NameRows,
    RankSummary,
    StepRows,
)

US, MS = 1_000, 1_000_000
ORIGIN = 1_790_857_026_000_000_000
TRANSFER = 400 * US
MESSAGE = 1_000_000


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated. `slow`: per rank the phase and the ns it takes longer before each step's first collective."""

    seed: int = 0
    n_ranks: int = 4
    n_steps: int = 12
    n_buckets: int = 4
    slow: Mapping[int, tuple[str, int]] = None
    max_offset_ns: int = 30 * MS
    max_drift: float = 35e-6
    jitter: float = 0.03
    end_jitter_ns: int = 3 * US
    transfer_jitter_ns: int = 5 * US
    has_seq: bool = False


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    summaries: tuple[RankSummary, ...]
    waits_ns: np.ndarray
    """[n, R]: true waiting, by instance."""


def simulate(job: Job) -> Simulated:
    """Give the summaries of all ranks and their true waits."""
    rng = np.random.default_rng(job.seed)
    slow = job.slow or {}
    n, ranks = job.n_steps * job.n_buckets, job.n_ranks
    usual = np.array([0.5, 4.0, 0.4, 0.1]) * MS  # per bucket, by PHASES; no device starts late
    lead = usual * rng.normal(1.0, job.jitter, (n, ranks, len(usual))).clip(0.5, 2)
    lead = np.concatenate((lead, np.zeros((n, ranks, 1))), axis=2)
    first = np.arange(n) % job.n_buckets == 0
    for rank, (phase, extra_ns) in slow.items():
        lead[first, rank, PHASES.index(phase)] += extra_ns
    lead = np.rint(lead).astype(np.int64)
    start, end = np.empty((n, ranks), np.int64), np.empty((n, ranks), np.int64)
    free = np.full(ranks, 10 * MS, np.int64)
    for instance in range(n):
        start[instance] = free + lead[instance].sum(axis=1)
        left = start[instance].max() + TRANSFER + int(rng.normal(0, job.transfer_jitter_ns))
        end[instance] = left + rng.exponential(job.end_jitter_ns, ranks).astype(np.int64)
        free = end[instance]
    offset = rng.integers(-job.max_offset_ns, job.max_offset_ns + 1, ranks)
    drift = rng.uniform(-job.max_drift, job.max_drift, ranks)
    summaries = tuple(
        _summary(job, rank, start[:, rank], end[:, rank], lead[:, rank], (offset[rank], drift[rank]))
        for rank in range(ranks)
    )
    return Simulated(summaries=summaries, waits_ns=start.max(axis=1)[:, None] - start)


def _summary(job, rank, start, end, lead, clock) -> RankSummary:
    offset, drift = clock

    def shown(time):
        return (time + offset + np.rint(drift * time).astype(np.int64)).astype(np.int64)

    n = start.size
    step = np.arange(n) // job.n_buckets
    begun = start - lead.sum(axis=1)
    step_start = begun[:: job.n_buckets]
    collectives = CollectiveRows(
        group=np.zeros(n, np.int32),
        kind=np.full(n, CollectiveKind.ALL_REDUCE, np.int8),
        name=np.zeros(n, np.int32),
        dtype=np.ones(n, np.int32),
        in_elements=np.full(n, MESSAGE),
        out_elements=np.full(n, MESSAGE),
        seq=np.arange(n) + 17 if job.has_seq else np.full(n, -1),
        peer=np.full(n, -1),
        issued_ns=shown(start - 20 * US),
        start_ns=shown(start),
        end_ns=shown(end),
        step=step.astype(np.int32),
        issuer=np.full(n, 2, np.int32),
        hidden_ns=np.zeros(n, np.int64),
        exposed_once_ns=shown(end) - shown(start),
        lead_ns=lead,
        ready_ns=shown(start),
        own_ns=lead,
        bucket_bytes=np.full(n, -1),
    )
    steps = StepRows(
        number=np.arange(job.n_steps),
        start_ns=shown(step_start),
        end_ns=shown(np.append(step_start[1:], end[-1])),
        phase_ns=lead.reshape(job.n_steps, job.n_buckets, -1).sum(axis=1),
        comm_ns=(end - start).reshape(job.n_steps, -1).sum(axis=1),
        **dict.fromkeys(("tokens", "padded_tokens", "samples", "embedded"), np.zeros(job.n_steps, np.int64)),
    )
    return RankSummary(
        rank=rank,
        world_size=job.n_ranks,
        source=f"rank{rank}.json",
        host=f"node{rank}",
        origin_unix_ns=ORIGIN,
        window_ns=(int(shown(begun[:1])[0]), int(shown(end[-1:])[0])),
        step_source="ProfilerStep",
        groups=(Group(name="0", ranks=tuple(range(job.n_ranks)), size=job.n_ranks),),
        strings=("allreduce", "Float", "autograd::engine::evaluate_function: AccumulateGrad"),
        collectives=collectives,
        steps=steps,
        ranges=NameRows.none(name=np.int32),
        lead_ranges=LeadRanges.none(name=np.int32),
        quiet=LeadRanges.none(name=np.int32),
        work=NameRows.none(name=np.int32),
        blocks=BlockRows(start_ns=shown(start), end_ns=shown(end), row=np.arange(n)),
    )


def without(summary: RankSummary, *rows: int) -> RankSummary:
    """Give the summary as if the rank's trace did not hold these collectives (negative counts from the end)."""
    kept = np.delete(np.arange(len(summary.collectives)), rows)
    return replace(summary, collectives=summary.collectives.take(kept))


def shifted(summary: RankSummary, ns: int) -> RankSummary:
    """Give the summary of a rank whose clock is ahead by this much."""
    return replace(summary, origin_unix_ns=summary.origin_unix_ns + ns)


def measured(summaries: Sequence[RankSummary]) -> tuple[Matching, Clocks, tuple[GroupWaits, ...]]:
    """Give what is measured of ranks before anybody is blamed."""
    matching = matched(summaries)
    clocks = aligned(summaries, matching)
    return matching, clocks, split(summaries, matching, clocks)


def stragglers_of(summaries: Sequence[RankSummary]) -> tuple[Stragglers, ...]:
    """Give the answer for each group."""
    return find_stragglers(measured(summaries)[2], summaries)
