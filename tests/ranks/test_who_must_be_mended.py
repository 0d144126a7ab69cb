"""Which ranks must be mended, and what that gives: late ranks of several groups, all hosts, rank 0, stalls."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

import profkit
from profkit.model.documents.report import Bottleneck
from tests.ranks.scripted import MS, US, Group, Op, Rank, Writing, in_steps, of, run, said, triaged, write

N_STEPS = 10
WORLD = Group(name="0", ranks=tuple(range(8)))


def step_ns(ranks: Mapping[int, Rank], n_steps: int = N_STEPS) -> float:
    return (max(max(rank.device.values()) for rank in ranks.values()) - 10 * MS) / n_steps


def layers(rank: int, n: int, usual_ns: int, name: str) -> Iterator[list[Op]]:
    """Layers of four kernels."""
    generator = np.random.default_rng((rank, usual_ns))
    for _ in range(n):
        around = usual_ns * (1 + 0.02 * generator.standard_normal(4))
        yield [Op(what="compute", ns=round(ns), name=name) for ns in around]


@in_steps(N_STEPS)
def grid(rank: int, late_ns: int) -> Iterator[Op]:
    """Pairs of ranks that share each layer, and two groups of four that reduce over the pairs."""
    block, place = divmod(rank, 2)
    tensor = Group(name=f"tp{block}", ranks=(2 * block, 2 * block + 1), transfer_ns=100 * US)
    data = Group(name=f"dp{place}", ranks=tuple(range(place, 8, 2)), transfer_ns=400 * US)
    yield Op(what="data", ns=MS + late_ns)
    for number, ops in enumerate(layers(rank, 8, 600 * US, "ampere_sgemm_128x64_tn")):
        yield from ops
        yield Op(what="collective", name="allreduce", group=tensor, elements=500_000)
        yield Op(what="join_stream")
        if number > 3:
            yield Op(what="collective", name="allreduce", group=data, stream=24)


def of_grid(late: Mapping[int, int]) -> dict[int, Rank]:
    return run({rank: grid(rank, late.get(rank, 0)) for rank in range(8)})


@pytest.mark.parametrize("late", [{2: 4_000_000, 5: 4_600_000}, {2: 4_600_000, 5: 4_600_000}, {1: 3 * MS, 6: 2 * MS}])
def test_a_ceiling_belongs_to_the_late_ranks_that_must_be_mended(tmp_path, late):
    """Both are alone in their groups: mended alone, the other one holds the job up as before."""
    ranks = of_grid(late)
    report = triaged(ranks, tmp_path)
    first, *others = of(report, "straggler.rank")
    both, alone = (step_ns(ranks) - step_ns(of_grid(left)) for left in ({}, _without(late, first.rank)))
    assert report.verdict.findings[0] == first
    assert " wait for ranks " in first.title
    assert 0.98 * both <= first.recoverable_ns <= 1.1 * both
    assert f"rank {first.rank} alone would save" in said(first)
    for one in others:
        left = step_ns(ranks) - step_ns(of_grid(_without(late, one.rank)))
        assert one.recoverable_ns == pytest.approx(left, abs=20 * US)
    assert alone < both


def _without(late: Mapping[int, int], rank: int | None) -> dict[int, int]:
    return {other: ns for other, ns in late.items() if other != rank}


def slow_hosts(rank: int, nap_ns: int) -> Iterator[Op]:
    """Buckets are reduced under backward; every host sleeps after each layer, whatever its device does."""
    for _ in range(N_STEPS):
        yield Op(what="step")
        for ops in layers(rank, 12, 250 * US, "ampere_sgemm_128x64_tn"):
            yield from [*ops, Op(what="host", ns=nap_ns)]
        for ops in layers(rank, 12, 350 * US, "ampere_sgemm_64x64_nt"):
            yield from [*ops, Op(what="collective", name="allreduce", group=WORLD), Op(what="host", ns=nap_ns)]
        yield Op(what="join")
        yield Op(what="compute", ns=MS)


@pytest.mark.parametrize("transfer_us", [400, 1500, 3000])
def test_slow_hosts_of_all_ranks_are_credited_with_communication_that_hides_them(tmp_path, transfer_us):
    """The device waits for its host while an all-reduce runs: without the host's delay the step is so much shorter."""
    ranks, spared = (run({r: slow_hosts(r, ns) for r in range(8)}, transfer_ns=transfer_us * US) for ns in (3 * MS, 0))
    report = triaged(ranks, tmp_path)
    won = step_ns(ranks) - step_ns(spared)
    assert report.verdict.findings[0].id == "host.launch_bound"
    assert 0.98 * won <= report.verdict.recoverable_ns <= 1.1 * won
    is_said = "communication runs alone because the host has not" in said(report.verdict.findings[0])
    assert is_said == (transfer_us < 3000)  # there the next bucket would have to wait for this one anyway


@in_steps(N_STEPS)
def reducing(rank: int, names: Iterable[tuple[str, int]]) -> Iterator[Op]:
    """A loop with an all-reduce in each layer, in which the host does what `names` says first."""
    for name, ns in names:
        yield Op(what="host", ns=ns, name=name)
    for ops in layers(rank, 4, 300 * US, "ampere_sgemm_128x64_tn"):
        yield from [*ops, Op(what="collective", name="allreduce", group=WORLD)]


def test_what_all_ranks_run_is_no_work_of_rank_0_however_slow_its_host(tmp_path):
    ranks = run({rank: reducing(rank, [("log_metrics", (20 if rank == 0 else 1) * 300 * US)]) for rank in range(8)})
    report = triaged(ranks, tmp_path)
    assert report.verdict.rank == 0
    assert not of(report, "rank0.work")
    assert "log_metrics takes 5.70 ms per step longer here" in said(of(report, "straggler.rank")[0])


def stalled(rank: int, stall_ns: int, late_ns: int) -> Iterator[Op]:
    """All hosts are held up for long in the first of six steps; rank 2 is late in each."""
    for step in range(6):
        yield Op(what="step")
        if step == 0:
            yield Op(what="host", ns=stall_ns + rank * MS)
        for ops in layers(rank, 6, 800 * US, "ampere_sgemm_128x64_tn"):
            yield from ops
            yield Op(what="host", ns=late_ns // 6 if rank == 2 else 0)
            yield Op(what="collective", name="allreduce", group=WORLD)
        yield Op(what="join")
        yield Op(what="sync")


def test_a_rank_late_in_every_step_outranks_a_stall_of_all_ranks(tmp_path):
    report = triaged(run({rank: stalled(rank, 400 * MS, 40 * MS) for rank in range(8)}), tmp_path)
    assert report.verdict.bottleneck is Bottleneck.STRAGGLER
    assert report.verdict.rank == 2
    alone = triaged(run({rank: stalled(rank, 400 * MS, 0) for rank in range(8)}), tmp_path / "none")
    assert alone.verdict.bottleneck is Bottleneck.INCONCLUSIVE


def saving(rank: int, save_ns: tuple[int, int]) -> Iterator[Op]:
    """Four steps, in the second of which rank 0 copies to its host and writes, for so long each."""
    for step in range(4):
        yield Op(what="step")
        for ops in layers(rank, 6, 800 * US, "ampere_sgemm_128x64_tn"):
            yield from [*ops, Op(what="collective", name="allreduce", group=WORLD)]
        yield Op(what="join")
        if (rank, step) == (0, 1):
            yield from [Op(what="copy", ns=save_ns[0]), Op(what="host", ns=save_ns[1])]
        yield Op(what="sync")


@pytest.mark.parametrize("save_ns", [(70 * MS, 40 * MS), (30 * MS, 80 * MS), (0, 110 * MS)])
def test_a_checkpoint_in_one_step_is_named_where_its_copies_are_recorded(tmp_path, save_ns):
    """What is copied is written then: mending it saves both. A host held up once may be anything: it is one event."""
    ranks, spared = (run({one: saving(one, ns) for one in range(8)}) for ns in (save_ns, (0, 0)))
    report = triaged(ranks, tmp_path)
    (late,) = of(report, "straggler.rank")
    won = step_ns(ranks, 4) - step_ns(spared, 4)
    assert late.rank == 0
    assert late.recoverable_ns == pytest.approx(won, rel=0.02)
    assert ("seen in one step alone, after copies that no other rank makes" in said(late)) == bool(save_ns[0])
    assert (" once, for " in late.title) == (not save_ns[0])


@in_steps(6)
def slow_node(rank: int, slower: float) -> Iterator[Op]:
    """Quads of ranks that share experts, and pairs over them; the second quad has slow devices."""
    quad = Group(name=f"ep{rank // 4}", ranks=tuple(range(rank // 4 * 4, rank // 4 * 4 + 4)), transfer_ns=100 * US)
    over = Group(name=f"dp{rank % 4}", ranks=tuple(range(rank % 4, 16, 4)), transfer_ns=200 * US)
    usual = round(500 * US * (slower if rank // 4 == 1 else 1.0))
    for number, ops in enumerate(layers(rank, 8, usual, "ampere_sgemm_128x64_tn")):
        yield from [*ops, Op(what="collective", name="allreduce", group=quad), Op(what="join_stream")]
        if number % 2:
            yield Op(what="collective", name="allreduce", group=over, stream=24)


def test_a_group_that_is_late_as_a_whole_is_mended_to_its_twins(tmp_path):
    """Within the group all are alike: what they have more is seen beside the other groups."""
    ranks, spared = (run({rank: slow_node(rank, slower) for rank in range(16)}) for slower in (1.25, 1.0))
    report = triaged(ranks, tmp_path)
    won = step_ns(ranks, 6) - step_ns(spared, 6)
    assert report.verdict.headline == "12 ranks wait for ranks 4-7, which compute longer"
    assert 0.98 * won <= report.verdict.recoverable_ns <= 1.06 * won


def test_ranks_behind_a_later_one_are_named_where_they_must_be_mended_too(tmp_path):
    """Ranks 4 to 7 have slow hosts, rank 5 the slowest: mended alone, the others are late."""
    naps = {4: 3 * MS, 5: 9 * MS, 6: 4 * MS, 7: 3 * MS}
    ranks = run({rank: reducing(rank, [("work", MS + naps.get(rank, 0))]) for rank in range(8)})
    report = triaged(ranks, tmp_path)
    won = step_ns(ranks) - step_ns(run({rank: reducing(rank, [("work", MS)]) for rank in range(8)}))
    assert report.verdict.headline.startswith("4 ranks wait for ranks 4-7, which are held up by their CPUs")
    assert report.verdict.recoverable_ns == pytest.approx(won, rel=0.02)


def test_parts_of_other_sizes_are_the_same_collective_where_steps_say_so(tmp_path):
    """Uneven shards: each rank's message has a size of its own, and no sequence number."""

    def uneven(rank: int) -> Iterator[Op]:
        for op in reducing(rank, [("work", MS + 4 * MS * (rank == 3))]):
            yield replace(op, elements=1_000_000 + 1_000 * rank)

    folder = write(run({rank: uneven(rank) for rank in range(8)}), tmp_path, Writing(has_seq=False))
    report = profkit.triage([str(folder)])
    assert report.fleet.refusals == ()
    assert report.verdict.rank == 3


@in_steps(N_STEPS)
def free_hosts(rank: int) -> Iterator[Op]:
    """Small kernels, and a host that waits for its device at the end of a step alone."""
    for ops in layers(rank, 12, 8 * US, "ampere_sgemm_128x64_tn"):
        yield from [*ops, Op(what="collective", name="allreduce", group=WORLD), Op(what="join")]


def of_free_hosts(slowest_us: float) -> dict[int, Rank]:
    hosts_us = (60, 61, slowest_us, 60.5, 62.2, 61.2, 61.5, 60.8)
    machines = {rank: {"launch_ns": round(us * US)} for rank, us in enumerate(hosts_us)}
    return run({rank: free_hosts(rank) for rank in range(8)}, transfer_ns=20 * US, machines=machines)


@pytest.mark.parametrize(("slowest_us", "is_named"), [(63.5, False), (80, True)])
def test_the_slowest_of_hosts_that_all_run_free_is_named_only_if_the_next_is_faster(tmp_path, slowest_us, is_named):
    """All devices wait for the slowest host; the others' hosts do nearly as much meanwhile."""
    ranks = of_free_hosts(slowest_us)
    report = triaged(ranks, tmp_path)
    assert [one.rank for one in of(report, "straggler.rank")] == ([2] if is_named else [])
    mended_ns = step_ns(of_free_hosts(61))
    won = step_ns(ranks) - mended_ns
    assert not is_named or 0.98 * won <= report.verdict.recoverable_ns <= 1.1 * won
    prediction = report.fleet.prediction
    assert not is_named or 0.97 * mended_ns <= prediction.predicted_ns <= prediction.predicted_most_ns
