"""The right rank with the right phase, or none."""

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.ranks.measure.fingerprints import communication_limit, only_work, traffic
from profkit.ranks.measure.longer_compute import compute_factor
from profkit.ranks.measure.permutation_test import blocks_of, excess_ns, lateness_ns, p_of_largest
from profkit.ranks.measure.stragglers import find_stragglers
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import PHASES, CollectiveRows, Group, LeadRanges, NameRows
from tests.conftest import IN_FULL
from tests.ranks.overlap import Overlap, run
from tests.ranks.simulate import MS, Job, measured, shifted, simulate, stragglers_of


def waits_of(summaries):
    return measured(summaries)[2]


def answer(summaries):
    (found,) = stragglers_of(summaries)
    return found


@pytest.mark.parametrize("n_ranks", [2, 4])
@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_job_has_none(seed, n_ranks):
    found = answer(simulate(Job(seed=seed, n_ranks=n_ranks)).summaries)
    assert found.named == found.hidden == ()
    assert found.reason


@pytest.mark.parametrize("n_ranks", [2, 4])
@pytest.mark.parametrize("seed", range(20))
def test_a_noisy_healthy_job_has_none(seed, n_ranks):
    """Phases that vary by a fifth: lateness is material, and everybody's."""
    assert answer(simulate(Job(seed=seed, n_ranks=n_ranks, jitter=0.2)).summaries).named == ()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("n_ranks", [2, 4, 8])
def test_the_right_rank_with_its_phase(phase, n_ranks):
    found = answer(simulate(Job(seed=7, n_ranks=n_ranks, slow={1: (phase, 3 * MS)})).summaries)
    (straggler,) = found.named
    assert (straggler.rank, straggler.phase) == (1, phase)
    assert straggler.excess_ns == pytest.approx(12 * 3 * MS, rel=0.25)
    assert straggler.free_lateness_ns == pytest.approx(straggler.lateness_ns, rel=0.01)
    assert straggler.explained_fraction == pytest.approx(1.0, abs=0.1)
    assert straggler.p_value < 0.01
    assert not found.limits


def test_an_offset_of_5_ms_does_not_move_the_blame():
    """Rank 1 is 3 ms late; rank 0's clock is 5 ms ahead: by raw time stamps rank 0 is the last."""
    truth = simulate(Job(seed=2, n_ranks=2, max_offset_ns=0, max_drift=0.0, slow={1: ("compute", 3 * MS)}))
    ranks = [shifted(truth.summaries[0], 5 * MS), truth.summaries[1]]
    raw = [summary.collectives.start_ns + summary.origin_unix_ns for summary in ranks]
    assert (raw[0] > raw[1]).all()
    (straggler,) = answer(ranks).named
    assert straggler.rank == 1


def test_two_stragglers_are_both_named_and_one_behind_them_apart():
    slow = {2: ("host", 6 * MS), 5: ("data", 5 * MS), 6: ("compute", int(3.5 * MS))}
    job = Job(seed=4, n_ranks=8, n_steps=24, slow=slow, jitter=0.1)
    found = answer(simulate(job).summaries)
    assert found.named[0].rank == 2
    assert {straggler.rank: straggler.phase for straggler in found.named + found.hidden} == {
        2: "host",
        5: "data",
        6: "compute",
    }


def test_one_rank_missing_of_eight_still_answers_with_its_limits():
    job = Job(seed=5, n_ranks=8, slow={3: ("compute", 4 * MS)})
    summaries = [summary for summary in simulate(job).summaries if summary.rank != 6]
    found = answer(summaries)
    assert [straggler.rank for straggler in found.named] == [3]
    assert "1 of 8 ranks are missing" in found.limits[0]


def test_the_missing_rank_may_be_the_straggler():
    job = Job(seed=5, n_ranks=8, slow={3: ("compute", 4 * MS)})
    summaries = [summary for summary in simulate(job).summaries if summary.rank != 3]
    found = answer(summaries)
    assert found.named == ()
    assert "may be later than these" in found.limits[0]


def test_one_hiccup_is_no_straggler():
    truth = simulate(Job(seed=8, n_ranks=4, n_steps=1, n_buckets=48, slow={1: ("host", 60 * MS)}))
    found = answer(truth.summaries)
    assert found.named == ()
    assert "chance" in found.reason


def test_a_rank_held_up_by_something_else_is_not_blamed():
    """It comes late, but did nothing longer than the others: a collective of another group kept it."""
    ranks = list(simulate(Job(seed=6, n_ranks=4, slow={1: ("compute", 4 * MS)})).summaries)
    lead = ranks[0].collectives.lead_ns.copy()
    ranks[1] = replace(ranks[1], collectives=replace(ranks[1].collectives, lead_ns=lead))
    found = answer(ranks)
    assert found.named == ()
    assert "held it up" in found.reason


def with_ranges(summary, name, ns):
    """Give the summary with a host range before each step's first collective."""
    rows = np.arange(0, 48, 4)
    strings = (*summary.strings, name)
    code = len(strings) - 1
    names = NameRows(
        name=np.array([code], np.int32),
        shape=np.zeros(1, np.int64),
        count=np.array([12]),
        total_ns=np.array([12 * ns]),
        median_ns=np.array([ns]),
    )
    leads = LeadRanges(row=rows, name=np.full(12, code, np.int32), total_ns=np.full(12, ns))
    return replace(summary, strings=strings, ranges=names, lead_ranges=leads)


def test_work_of_one_rank_alone_is_named():
    job = Job(seed=9, n_ranks=4, slow={0: ("host", 5 * MS)})
    ranks = list(simulate(job).summaries)
    ranks[0] = with_ranges(ranks[0], "save_checkpoint", 5 * MS)
    (straggler,) = answer(ranks).named
    found = only_work(straggler, waits_of(ranks)[0], ranks)
    assert found.names == ("save_checkpoint",)
    assert found.covered_fraction > 0.9
    everywhere = [with_ranges(summary, "save_checkpoint", 5 * MS) for summary in ranks]
    assert only_work(straggler, waits_of(everywhere)[0], everywhere) is None


def with_barriers(job, every):
    """The job's ranks, with each so many-th collective a barrier."""
    ranks = []
    for summary in simulate(job).summaries:
        kind = summary.collectives.kind.copy()
        kind[::every] = CollectiveKind.BARRIER
        ranks.append(replace(summary, collectives=replace(summary.collectives, kind=kind)))
    return ranks


def test_unseen_work_before_a_barrier():
    """A sleep leaves no range: that the rank is late at barriers alone is what gives it away."""
    ranks = with_barriers(Job(seed=9, n_ranks=4, slow={0: ("host", 5 * MS)}), 4)
    (straggler,) = answer(ranks).named
    found = only_work(straggler, waits_of(ranks)[0], ranks)
    assert found.names == ()
    assert found.barrier_fraction > 0.9
    assert found.host_before_barriers_fraction > 0.9


def test_work_before_a_barrier_is_seen_though_ranks_crowd_the_cores():
    """Each is late at all-reduces in turn, rank 0 as well: its work before the barrier is no less its own for that."""
    ranks = with_barriers(Job(seed=9, n_ranks=4, n_buckets=10, jitter=0.25, slow={0: ("host", 4 * MS)}), 10)
    straggler = next(one for one in answer(ranks).named if one.rank == 0)
    found = only_work(straggler, waits_of(ranks)[0], ranks)
    assert found.barrier_fraction < 0.6
    assert found.host_before_barriers_fraction > 0.85


def crowded(seed, *, slow_ns):
    """Give four ranks that are late at seven all-reduces of a step in turn, and rank 0 at the barrier besides."""
    return with_barriers(Job(seed=seed, n_ranks=4, n_buckets=8, jitter=0.5, slow={0: ("host", slow_ns)}), 8)


@pytest.mark.parametrize("seed", range(1, 5))
def test_barriers_are_looked_at_alone_where_all_else_is_noise(seed):
    ranks = crowded(seed, slow_ns=4 * MS)
    found = answer(ranks)
    assert [(one.rank, one.phase, one.n_instances, one.instances) for one in found.named] == [
        (0, "host", 12, "barriers")
    ]
    assert found.named[0].share < 0.7  # of all that lateness costs, not of what it costs at barriers
    assert only_work(found.named[0], waits_of(ranks)[0], ranks).barrier_fraction == 1
    assert "judged at its 12 barriers alone" in found.barrier_note


@pytest.mark.sampled
def test_nobody_is_late_at_barriers_where_nobody_works_before_them():
    named = [one.rank for seed in range(60 if IN_FULL else 8) for one in answer(crowded(seed, slow_ns=0)).named]
    assert len(named) <= 1


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_lateness_or_bandwidth(n_ranks):
    slow = {1: ("compute", 5 * MS)}
    late = communication_limit(waits_of(simulate(Job(n_ranks=n_ranks, slow=slow, jitter=0.01)).summaries)[0])
    even = communication_limit(waits_of(simulate(Job(n_ranks=n_ranks, jitter=0.001)).summaries)[0])
    assert late.is_skew
    assert late.is_enough
    assert late.balanced_ns == pytest.approx(late.wait_exposed_ns * (n_ranks - 1) / n_ranks, rel=0.05)
    assert not even.is_skew
    assert even.wait_fraction < 0.1
    assert even.bus_bytes_per_s == pytest.approx(4e6 / 400e-6 * 2 * (n_ranks - 1) / n_ranks, rel=0.1)


def extra(summary, *, n_elements):
    """Give the summary with each step's last collective asked for by the script, of another size."""
    rows = summary.collectives
    last = np.arange(48) % 4 == 3
    sizes = np.where(last, n_elements, rows.in_elements)
    issuer = np.where(last, -1, rows.issuer).astype(np.int32)
    changed = replace(rows, in_elements=sizes, out_elements=sizes, issuer=issuer)
    return replace(summary, collectives=changed)


@pytest.mark.parametrize(("n_elements", "is_suspect"), [(32_000_000, True), (1, False)])
def test_an_extra_collective(n_elements, is_suspect):
    ranks = [extra(summary, n_elements=n_elements) for summary in simulate(Job(jitter=0.001)).summaries]
    rows = traffic(waits_of(ranks)[0], ranks)
    (own,) = [row for row in rows if row.issuer == ""]
    assert own.is_suspect is is_suspect
    assert own.per_step == 1.0
    assert own.n_bytes == 4 * n_elements
    assert sum(row.share for row in rows) == pytest.approx(1.0)
    assert [row.is_suspect for row in rows if row.issuer] == [False]


def work(medians, names=("gemm", "norm")):
    return NameRows(
        name=np.arange(len(medians), dtype=np.int32),
        shape=np.ones(len(medians), np.int64),
        count=np.full(len(medians), 10),
        total_ns=np.array(medians) * 10,
        median_ns=np.array(medians),
    ), names


def test_the_same_kernels_take_longer():
    ranks = {}
    for summary in simulate(Job(n_ranks=3)).summaries:
        table, names = work([100, 50] if summary.rank else [120, 60])
        ranks[summary.rank] = replace(summary, work=table, strings=names)
    assert compute_factor(ranks, 0) == pytest.approx(1.2)
    assert compute_factor(ranks, 1) == pytest.approx(1 / 1.1)
    assert compute_factor({0: ranks[0]}, 0) is None


def test_buckets_beside_each_other_are_late_once():
    """Each step's second bucket runs beside the first: the same lateness, not more of it."""
    truth = simulate(Job(seed=3, n_ranks=2, slow={1: ("data", 5 * MS)}))
    ranks = []
    for summary in truth.summaries:
        rows = summary.collectives
        second = np.arange(48) % 4 == 1
        before = np.maximum(np.arange(48) - 1, 0)
        beside = {name: np.where(second, getattr(rows, name)[before], getattr(rows, name)) for name in ("start_ns",)}
        lead = np.where(second[:, None], 0, rows.lead_ns)
        ranks.append(replace(summary, collectives=replace(rows, lead_ns=lead, **beside)))
    (straggler,) = answer(ranks).named
    assert (straggler.rank, straggler.phase) == (1, "data")
    assert straggler.explained_fraction == pytest.approx(1.0, abs=0.1)
    assert straggler.lateness_ns == pytest.approx(12 * 5 * MS, rel=0.1)


def test_chance_needs_blocks():
    """One of two ranks late in every block: 2 ** -7 of all shuffles are as extreme with eight blocks, half with two."""
    always = np.array([[0.0, 1.0]] * 8)
    assert p_of_largest(always) == pytest.approx(2**-7, abs=0.006)
    assert p_of_largest(always[:2]) == pytest.approx(0.5, abs=0.05)
    assert p_of_largest(np.empty((0, 2))) == 1.0


def test_blocks_are_steps_where_there_are_enough():
    assert blocks_of(np.repeat(np.arange(6), 2)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert blocks_of(np.zeros(5, np.int64)).tolist() == [0, 1, 2, 3, 4]
    assert blocks_of(np.zeros(1000, np.int64)).max() == 127


def test_lateness_and_excess_in_a_picture():
    arrival = np.array([[0, 10, 30], [5, 5, 5], [0, 7, 99]])
    present = np.array([[True] * 3, [True] * 3, [True, True, False]])
    assert lateness_ns(arrival, present).tolist() == [[0, 0, 25], [0, 0, 0], [0, 7, 0]]
    assert excess_ns(arrival, present).tolist() == [[0, 0, 20], [0, 0, 0], [0, 7, 0]]


def late_by_its_own(waits, *, own, stayed_less):
    """Rank 1 arrives 10 ms late each time: so much of it for its own compute, and its collectives so much shorter."""
    n = len(waits.rows)
    late, spent, stayed = (np.zeros((n, 4), np.int64) for _ in range(3))
    late[:, 1], spent[:, 1], stayed[:, 1] = 10 * MS, own, stayed_less
    none = np.zeros_like(late)
    return replace(
        waits,
        uses_clocks=True,
        arrival_ns=100 * MS * np.arange(n)[:, None] + late,
        duration_ns=20 * MS - stayed,
        own_ns=np.stack([none, late, none, none, none], axis=2),
        lead_ns=np.stack([none, spent, none, none, none], axis=2),
    )


@pytest.mark.parametrize(
    ("own_ms", "stayed_less_ms", "reason"),
    [
        (5, 5, ""),
        (4.9, 5, "rank 1 is late, but its own work since its last collective explains only 49.0 % of it"),
        (5, 4.9, "arrival times name rank 1, durations name rank 1: the clocks"),
    ],
)
def test_half_of_the_lateness_is_its_own_work_and_half_is_seen_without_clocks(own_ms, stayed_less_ms, reason):
    summaries = simulate(Job()).summaries
    (waits,) = waits_of(summaries)
    changed = late_by_its_own(waits, own=int(own_ms * MS), stayed_less=int(stayed_less_ms * MS))
    (found,) = find_stragglers([changed], summaries)
    assert [one.rank for one in found.named] == ([] if reason else [1])
    assert found.reason.startswith(reason)


def test_the_effect_is_the_lateness_beyond_that_of_the_middle_rank():
    """Rank 0 is 10 ms late always, rank 1 or rank 2 in turn 6 ms: the middle of the others is late for half of 6 ms."""
    (waits,) = waits_of(simulate(Job()).summaries)
    n = len(waits.rows)
    late = np.zeros((n, 4), np.int64)
    late[:, 0], late[0::2, 1], late[1::2, 2] = 10 * MS, 6 * MS, 6 * MS
    spent = np.stack([np.zeros_like(late), late, *[np.zeros_like(late)] * 3], axis=2)
    arrival = 100 * MS * np.arange(n)[:, None] + late
    changed = replace(
        waits, arrival_ns=arrival, duration_ns=20 * MS - late, own_ns=spent, lead_ns=spent, uses_clocks=True
    )
    ((found,),) = [one.named for one in find_stragglers([changed], simulate(Job()).summaries)]
    span_ns = 100 * MS * (n - 1) + 20 * MS
    assert (found.rank, found.phase, found.lateness_ns) == (0, "compute", n * 10 * MS)
    assert found.effect_fraction == n * (10 - 3) * MS / span_ns
    assert (found.excess_ns, found.share, found.n_last) == (n * 4 * MS, 1.0, n)


def test_a_group_without_instances_is_left_out():
    ranks = [
        replace(summary, collectives=CollectiveRows(**{k: v[:0] for k, v in summary.collectives.columns().items()}))
        for summary in simulate(Job()).summaries
    ]
    assert waits_of(ranks) == ()
    assert find_stragglers((), ranks) == ()
    assert Group().size == 0


@pytest.mark.parametrize("phase", ["data", "compute"])
@pytest.mark.parametrize("transfer_ns", [200_000, 1 * MS, 4 * MS])
def test_the_phase_under_overlap(phase, transfer_ns):
    """Buckets under the backward pass: rank 1's end sooner than its peers', and more of its compute lies after them."""
    summaries, _ = run(Overlap(extra_ns={1: 3 * MS}, slow_phase=phase, transfer_ns=transfer_ns))
    (straggler,) = answer(summaries).named
    assert (straggler.rank, straggler.phase) == (1, phase)
    # 3 ms per step, though each of four buckets comes late for it
    assert straggler.lateness_ns == pytest.approx(8 * 3 * MS, rel=0.05)


def test_what_was_done_before_a_broadcast_counts():
    """DDP broadcasts buffers at the head of each step; who comes late there holds up nobody but is late afterwards."""
    ranks = []
    for summary in simulate(Job(seed=7, slow={1: ("data", 3 * MS)})).summaries:
        rows = summary.collectives
        kind = np.where(np.arange(48) % 4 == 0, CollectiveKind.BROADCAST, rows.kind).astype(np.int8)
        ranks.append(replace(summary, collectives=replace(rows, kind=kind)))
    waits = waits_of(ranks)[0]
    data = waits.own_ns[:, :, PHASES.index("data")]
    assert (data[::3, 1] - data[::3, 0]).mean() == pytest.approx(3 * MS, rel=0.05)


@pytest.mark.parametrize(
    ("is_cpu", "phase", "late_ms", "is_named"),
    [(True, "compute", 2, False), (True, "compute", 6, True), (True, "data", 2, True), (False, "compute", 2, True)],
)
def test_a_core_that_computes_a_little_longer_is_no_straggler(is_cpu, phase, late_ms, is_named):
    ranks = simulate(Job(n_ranks=2, slow={1: (phase, late_ms * MS)})).summaries
    found = answer([replace(rank, is_cpu=is_cpu) for rank in ranks])
    assert [late.rank for late in found.named] == ([1] if is_named else [])
    assert ("other work on its core" in found.reason) == (not is_named)
