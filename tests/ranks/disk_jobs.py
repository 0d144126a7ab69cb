"""Data-parallel jobs by script: what each rank does in its steps, and what is wrong with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.ranks.scripted import MS, US, Group, Op


@dataclass(frozen=True, kw_only=True)
class Job:
    """`slow`: per rank what it takes longer in each step, in `phase`: "data", "host", "device" or "work"."""

    n_ranks: int = 4
    n_steps: int = 12
    n_buckets: int = 4
    slow: Mapping[int, int] = field(default_factory=dict)
    phase: str = "data"
    rotates: bool = False
    """Whether the first of `slow` is another rank in each step."""
    is_synced: bool = True
    """Whether the host waits for its device at the end of each step."""
    has_barrier: bool = False
    alone: tuple[int, str] = (0, "")
    """What rank 0 alone does before the barrier, and the name of its range."""
    nameless_ns: int = 0
    """What it does there besides, in no range."""


def programs(job: Job) -> dict[int, Iterator[Op]]:
    """Give each rank's operations: loader, forward, backward with a bucket after each part, optimizer."""
    world = Group(name="0", ranks=tuple(range(job.n_ranks)))
    return {rank: _program(job, rank, world) for rank in range(job.n_ranks)}


def _program(job: Job, rank: int, world: Group) -> Iterator[Op]:
    generator = np.random.default_rng(rank)

    def about(ns: float) -> int:
        return max(round(ns * (1 + 0.02 * generator.standard_normal())), 1)

    forward, part = 4 * MS, 2 * MS
    for step in range(job.n_steps):
        more = job.slow.get((rank - step) % job.n_ranks if job.rotates else rank, 0)
        slower = 1 + more / (forward + job.n_buckets * part) if job.phase == "device" else 1.0
        yield Op(what="step")
        yield Op(what="data", ns=about(MS) + (more if job.phase == "data" else 0))
        if more and job.phase == "host":
            yield Op(what="host", ns=more)
        if more and job.phase == "work":
            yield Op(what="compute", ns=about(more), name="flash_fwd_kernel", grid=128)
        for _ in range(10):
            yield Op(what="compute", ns=about(forward * slower / 10))
        for bucket in range(job.n_buckets):
            yield Op(what="compute", ns=about(part * slower), name="ampere_sgemm_64x64_nt")
            yield Op(what="collective", name="allreduce", group=world, elements=1_000_000 + 1_000 * bucket)
        yield Op(what="join")
        yield Op(what="compute", ns=about(500 * US), name="multi_tensor_apply_kernel")
        if job.is_synced:
            yield Op(what="sync")
        if rank == 0 and job.alone[0]:
            yield Op(what="host", ns=job.alone[0], name=job.alone[1])
            yield Op(what="host", ns=job.nameless_ns)
        if job.has_barrier:
            yield Op(what="collective", name="barrier", group=world, elements=1)
            yield Op(what="join")
            yield Op(what="sync")
