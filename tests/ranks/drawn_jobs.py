"""Drawn jobs of eight ranks, tensor parallel by data parallel, each with one known fault or none; who names it?

    python -m tests.ranks.drawn_jobs            200 with a fault, 100 without: prints the tally, and each miss
    python -m tests.ranks.drawn_jobs --seed 7   one job: its truth, and the report's answer

What a fault costs is measured: the same job is run without it.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import profkit
from profkit.findings import kind_of
from profkit.model.documents.report import Bottleneck, Report
from tests.ranks.scripted import MS, US, Clock, Group, Op, Rank, Writing, run, write

N_RANKS = 8
MATERIAL = 0.05
"""The share of the step from which a fault must be named."""
CAUSES = ("data", "host", "device", "work", "shared", "link")
TRANSFER_NS = {"tp": 150 * US, "dp": 500 * US}
LAUNCHES = "launches"
NAP = "nap"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One job. `extra_ns` and `factor` are the fault's size, by cause; `how` is which kind of host fault."""

    seed: int
    tp: int
    n_steps: int
    n_layers: int
    is_synced: bool
    """Whether the host waits for its device at the end of a step, else early in backward, as where the loss is read."""
    jitter: float
    cause: str = ""
    rank: int = 0
    extra_ns: int = 0
    factor: float = 1.0
    how: str = ""
    slow_group: str = ""
    has_seq: bool = True
    clocks: tuple[Clock, ...] = ()
    hiccup: tuple[int, int] = (-1, 0)
    """A rank that is held up once, in its second step, and for how long: a report may say that, as one event."""


def drawn(seed: int, *, is_healthy: bool = False) -> Drawn:
    """The job of a seed."""
    rng = np.random.default_rng((seed, is_healthy))
    tp = int(rng.choice([1, 2, 4]))
    job = Drawn(
        seed=seed,
        tp=tp,
        n_steps=int(rng.integers(2, 11)),
        n_layers=int(rng.integers(3, 7)),
        is_synced=bool(rng.random() < 0.6),
        jitter=float(rng.choice([0.01, 0.02, 0.05])),
        has_seq=bool(rng.random() < 0.7),
        clocks=tuple(
            Clock(offset_ns=int(rng.integers(-5 * MS, 5 * MS)), drift=float(rng.choice([0, 0, 5e-5, -5e-5])))
            for _ in range(N_RANKS)
        ),
    )
    if is_healthy:
        is_hit = rng.random() < 0.3
        return replace(
            job,
            jitter=float(rng.choice([0.01, 0.05, 0.15])),
            hiccup=(int(rng.integers(N_RANKS)), int(rng.uniform(1, 8) * MS)) if is_hit else (-1, 0),
        )
    cause = str(rng.choice([one for one in CAUSES if one != "link" or tp > 1]))
    part = rng.uniform(0.06, 0.5)
    return replace(
        job,
        cause=cause,
        rank=int(rng.integers(N_RANKS)),
        extra_ns=int(part * _usual_step_ns(job)),
        factor=1 + float(part) * 1.6,
        how=str(rng.choice([NAP, "evaluate_metrics", LAUNCHES])) if cause == "host" else "",
        slow_group=f"{rng.choice(['tp', 'dp'])}{rng.integers(2)}" if cause == "link" else "",
    )


def _usual_step_ns(job: Drawn) -> int:
    comm = 2 * job.n_layers * TRANSFER_NS["tp"] * (job.tp > 1) + TRANSFER_NS["dp"]
    return MS + job.n_layers * 4 * MS + MS + comm


def groups_of(job: Drawn) -> dict[int, tuple[Group | None, Group]]:
    """By rank its tensor-parallel group (None where there is none) and its data-parallel one."""

    def group(kind: str, number: int, ranks: tuple[int, ...]) -> Group:
        name = f"{kind}{number}"
        slower = 2.0 + 6 * (job.factor - 1) if job.cause == "link" and name == job.slow_group else 1.0
        return Group(name=name, ranks=ranks, transfer_ns=round(TRANSFER_NS[kind] * slower))

    out: dict[int, tuple[Group | None, Group]] = {}
    for rank in range(N_RANKS):
        block, place = divmod(rank, job.tp)
        tensor = tuple(range(block * job.tp, (block + 1) * job.tp))
        data = tuple(range(place, N_RANKS, job.tp))
        out[rank] = (group("tp", block, tensor) if job.tp > 1 else None, group("dp", place, data))
    return out


def ran(job: Drawn) -> dict[int, Rank]:
    """All ranks' rows."""
    groups = groups_of(job)
    machine: dict[str, Any] = {}
    if job.cause == "shared":
        period = 4 * MS
        machine = {"others_slice": (period, round(period * min(0.9 * (job.factor - 1), 0.75)))}
    if job.how == LAUNCHES:
        machine = {"launch_ns": 8 * US + job.extra_ns // (job.n_layers * 18)}
    programs = {rank: _program(job, rank, *groups[rank]) for rank in range(N_RANKS)}
    return run(programs, seed=job.seed, machines={job.rank: machine})


def _program(job: Drawn, rank: int, tensor: Group | None, data: Group) -> Iterator[Op]:
    generator = np.random.default_rng((job.seed, rank))
    hit = job.cause if rank == job.rank and job.cause != "link" else ""
    slower = job.factor if hit == "device" else 1.0
    late_ns = job.extra_ns if hit == "data" else 0

    def about(ns: float) -> int:
        return max(round(ns * (1 + job.jitter * generator.standard_normal())), US)

    def layer(ns: int, name: str) -> Iterator[Op]:
        for _ in range(8):
            yield Op(what="compute", ns=about(ns * slower / 8), name=name)
        yield from _shared_layer(tensor)

    def backward() -> Iterator[Op]:
        for number in range(job.n_layers):
            yield from layer(round(2.6 * MS), "ampere_sgemm_64x64_nt")
            if number % 2 or number == job.n_layers - 1:
                size = 1_000_000 + 1_000 * number
                yield Op(what="collective", name="allreduce", group=data, elements=size, stream=24)
            if number == 0 and not job.is_synced:
                yield Op(what="sync")

    for step in range(job.n_steps):
        yield Op(what="step")
        yield Op(what="data", ns=about(MS) + late_ns)
        yield from _held_up(job, rank, step, hit)
        for _ in range(job.n_layers):
            yield from layer(round(1.4 * MS), "ampere_sgemm_128x64_tn")
            if hit == "work":
                yield Op(what="compute", ns=about(job.extra_ns / job.n_layers), name="flash_fwd_kernel", grid=128)
        yield from backward()
        yield Op(what="join")
        yield Op(what="compute", ns=about(MS), name="multi_tensor_apply_kernel")
        if job.is_synced:
            yield Op(what="sync")


def _shared_layer(tensor: Group | None) -> Iterator[Op]:
    """What ends a layer whose parts are on several ranks."""
    if tensor is not None:
        yield Op(what="collective", name="allreduce", group=tensor, elements=500_000, stream=20)
        yield Op(what="join_stream", stream=20)


def _held_up(job: Drawn, rank: int, step: int, hit: str) -> Iterator[Op]:
    """What holds a rank's host up before the forward pass."""
    if hit == "host" and job.how in (NAP, "evaluate_metrics"):
        yield Op(what="host", ns=job.extra_ns, name="" if job.how == NAP else job.how)
    if rank == job.hiccup[0] and step == 1:
        yield Op(what="host", ns=job.hiccup[1])


def cost(job: Drawn, ranks: dict[int, Rank]) -> float:
    """What the fault costs, as a share of the job's time."""
    sound = ran(replace(job, cause="", how="", factor=1.0, extra_ns=0))
    lasts = [max(max(rank.device.values()) for rank in some.values()) - 10 * MS for some in (ranks, sound)]
    return 1 - lasts[1] / lasts[0]


def reported(job: Drawn, ranks: dict[int, Rank], folder: Path) -> Report:
    """The report on the job's traces."""
    how = Writing(has_seq=job.has_seq, clocks=dict(enumerate(job.clocks)))
    return profkit.triage([str(write(ranks, folder, how))])


_PHASE = {"data": "data", "host": "host", "device": "compute", "work": "compute", "shared": "device"}


def answer(job: Drawn, report: Report) -> str:
    """Whether the report is right: "right", else what it says."""
    verdict = report.verdict
    top = verdict.findings[0] if verdict.findings else None
    if not job.cause:
        named = [one for one in report.findings if kind_of(one.id).bottleneck is Bottleneck.STRAGGLER]
        is_of_hiccup = [one.rank for one in named] == [job.hiccup[0]] and " once, for " in named[0].title
        return "right" if not named or is_of_hiccup else f"names rank {named[0].rank}: {named[0].title}"
    said = f"{verdict.bottleneck.value}: {verdict.headline}"
    if job.cause == "link":
        is_right = top is not None and top.id == "comm.slow_link" and job.slow_group in top.title
        return "right" if is_right else said
    if verdict.bottleneck is not Bottleneck.STRAGGLER or verdict.rank != job.rank:
        return said
    cause = next(row.cause for row in report.fleet.rows if row.ranks == (job.rank,))
    is_right = cause.startswith(_PHASE[job.cause])
    if job.cause == "device":
        is_right &= "same kernels" in cause
    if job.cause == "work":
        is_right &= "more work" in cause
    return "right" if is_right else f"{said} [{cause}]"


def tried(seed: int, *, is_healthy: bool = False) -> tuple[Drawn, float, str]:
    """A seed's job, what its fault costs, and the report's answer."""
    job = drawn(seed, is_healthy=is_healthy)
    ranks = ran(job)
    with tempfile.TemporaryDirectory() as folder:
        report = reported(job, ranks, Path(folder))
    return job, cost(job, ranks) if job.cause else 0.0, answer(job, report)


def tally(first: int, n_jobs: int, n_healthy: int) -> str:
    """What became of so many jobs from a seed on, one line for each miss."""
    right, of, slight, lines = Counter[str](), Counter[str](), 0, []
    for seed in range(first, first + n_jobs):
        job, share, said = tried(seed)
        if share < MATERIAL:
            slight += 1
            continue
        of[job.cause] += 1
        right[job.cause] += said == "right"
        if said != "right":
            where = f"{job.cause} {job.how}{job.slow_group} on rank {job.rank}, {share:.1%} of the time"
            lines.append(f"seed {seed}: {where}: {said}")
    false = [(seed, tried(seed, is_healthy=True)[2]) for seed in range(first, first + n_healthy)]
    false = [(seed, said) for seed, said in false if said != "right"]
    lines += [f"healthy seed {seed}: {said}" for seed, said in false]
    lines += [f"{cause:8} {right[cause]:3} of {of[cause]:3}" for cause in CAUSES]
    total, all_right = sum(of.values()), sum(right.values())
    share = f"{all_right / max(total, 1):.1%}"
    lines.append(f"right    {all_right:3} of {total:3} ({share}); {slight} more cost less than 5 % of the time")
    lines.append(f"false    {len(false):3} of {n_healthy:3} healthy jobs")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--healthy", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    if args.seed is None:
        print(tally(args.first, args.jobs, args.healthy))
        return
    job, share, said = tried(args.seed)
    print(f"{job}\ncosts {share:.1%}: {said}")


if __name__ == "__main__":
    main()
