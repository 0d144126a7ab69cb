"""Clocks, waits, and how many steps the collectives of all ranks fill, against ranks whose truth is known."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profkit.model.intervals import Intervals
from profkit.model.table import NO_ROW
from profkit.ranks.align.clocks import Clocks
from profkit.ranks.measure.fingerprints import communication_limit
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.measure.windows import steps_in_common, steps_measured
from profkit.ranks.reduce.collective_kinds import CollectiveKind, bus_factor, collective_kind_of
from profkit.ranks.reduce.records import RankSummary
from profkit.timeline.collectives import element_bytes
from tests.conftest import examples
from tests.ranks.simulate import MESSAGE, MS, TRANSFER, US, Job, measured, shifted, simulate, without


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_ranks", [2, 4, 8])
def test_waits_within_5_us_under_30_ms_and_35_ppm(seed, n_ranks):
    truth = simulate(Job(seed=seed, n_ranks=n_ranks))
    _, clocks, (waits,) = measured(truth.summaries)
    assert waits.uses_clocks
    assert np.abs(waits.wait_ns - truth.waits_ns).max() <= 5 * US
    assert not waits.is_disputed
    assert clocks.residual_p95_ns <= 20 * US
    assert np.abs(waits.transfer_ns - TRANSFER).max() <= 40 * US


def test_the_clock_itself_is_found():
    truth = simulate(Job(n_ranks=2, max_offset_ns=0, max_drift=0.0))
    ranks = [truth.summaries[0], shifted(truth.summaries[1], 5 * MS)]
    _, clocks, _ = measured(ranks)
    assert abs(clocks.ranks[1].offset_ns - 5 * MS) <= 2 * US
    assert abs(clocks.ranks[1].drift) <= 20e-6
    assert clocks.ranks[0].offset_ns == 0


def test_ranks_of_one_host_have_one_clock():
    truth = simulate(Job(n_ranks=2, max_offset_ns=0, max_drift=0.0))
    _, clocks, _ = measured([replace(summary, host="a") for summary in truth.summaries])
    assert clocks.ranks[1].offset_ns == 0.0
    assert clocks.ranks[1].drift == 0.0


def test_few_ends_align_nothing_and_durations_say_who_waited():
    truth = simulate(Job(n_ranks=2, n_steps=3))
    _, _, (waits,) = measured(truth.summaries)
    assert not waits.uses_clocks
    assert np.abs(waits.wait_ns - truth.waits_ns).max() <= 25 * US  # each instance has its own jitter of leaving
    assert waits.disagreement_ns == 0


def test_ends_that_are_no_ends_are_disputed():
    """A rank whose rows are cut short: by clocks it waited, by durations it did not."""
    truth = simulate(Job(n_ranks=4))
    rows = truth.summaries[2].collectives
    longer = replace(rows, end_ns=rows.end_ns + np.arange(48) % 7 * MS)
    ranks = [*truth.summaries[:2], replace(truth.summaries[2], collectives=longer), truth.summaries[3]]
    ranks = [replace(s, collectives=replace(s.collectives, seq=np.arange(48))) for s in ranks]
    _, _, (waits,) = measured(ranks)
    assert waits.is_disputed


def test_bus_bandwidth_and_exposure():
    truth = simulate(Job(n_ranks=4))
    rows = truth.summaries[0].collectives
    hidden = (rows.end_ns - rows.start_ns) // 4
    ranks = [replace(truth.summaries[0], collectives=replace(rows, hidden_ns=hidden)), *truth.summaries[1:]]
    _, _, (waits,) = measured(ranks)
    assert set(waits.n_bytes.tolist()) == {4 * MESSAGE}
    assert waits.bus_bytes_per_s == pytest.approx(4 * MESSAGE / waits.transfer_ns * 1e9 * 1.5)
    assert (waits.hidden_ns[:, 0] == hidden).all()
    assert (waits.hidden_ns + waits.exposed_ns == waits.duration_ns).all()
    assert (waits.wait_exposed_ns <= waits.exposed_ns).all()


def test_an_absent_rank_counts_for_nothing():
    truth = simulate(Job(n_ranks=4, n_steps=5, has_seq=True))
    _, _, (waits,) = measured([without(truth.summaries[0], 5), *truth.summaries[1:]])
    assert len(waits.rows) == 20
    assert not waits.present[5, 0]
    assert waits.wait_ns[5, 0] == waits.duration_ns[5, 0] == 0
    others = truth.waits_ns[5, 1:] - truth.waits_ns[5, 1:].min()
    assert np.abs(waits.wait_ns[5, 1:] - others).max() <= 5 * US


def test_of_enough_instances_those_on_all_ranks_count():
    """The rank whose window lacks one may have been the last to come: the rest of it is no transfer."""
    truth = simulate(Job(n_ranks=4, has_seq=True))
    _, _, (waits,) = measured([without(truth.summaries[0], 5), *truth.summaries[1:]])
    assert len(waits.rows) == 47
    assert waits.present.all()
    assert np.abs(waits.wait_ns - np.delete(truth.waits_ns, 5, axis=0)).max() <= 5 * US


def test_the_factors_are_those_of_nccl_tests():
    kinds = np.array([CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST])
    assert bus_factor(kinds, 8).tolist() == [1.75, 0.875, 1.0]
    assert np.isnan(bus_factor(np.array([CollectiveKind.BARRIER]), 8)).all()
    assert np.isnan(bus_factor(kinds, 1)).all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)", CollectiveKind.ALL_REDUCE),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", CollectiveKind.SEND_RECV),
        ("_reduce_scatter_base", CollectiveKind.REDUCE_SCATTER),
        ("c10d::_allgather_base_", CollectiveKind.ALL_GATHER),
        ("all_to_allv", CollectiveKind.ALL_TO_ALL),
        ("gloo:barrier", CollectiveKind.BARRIER),
        ("c10d::reduce_", CollectiveKind.REDUCE),
        ("send", CollectiveKind.SEND),
        ("ncclDevKernel_Generic", CollectiveKind.SEND_RECV),
        ("nccl:coalesced", CollectiveKind.SEND_RECV),
        ("broadcast_one", CollectiveKind.BROADCAST),
    ],
)
def test_kinds_by_name(name, kind):
    assert collective_kind_of(name) is kind


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("Float", 4), ("BFloat16", 2), ("Half", 2), ("Long", 8), ("Float8_e4m3fn", 1), ("Byte", 1), ("Int", 4), ("?", -1)],
)
def test_bytes_of_a_type(dtype, size):
    assert element_bytes(dtype) == size


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_ranks=st.integers(2, 6),
    ahead_ns=st.lists(st.integers(-30 * MS, 30 * MS), min_size=6, max_size=6),
)
def test_waits_do_not_depend_on_the_clocks(seed, n_ranks, ahead_ns):
    job = Job(seed=seed, n_ranks=n_ranks, has_seq=True)
    truth = simulate(job).summaries
    _, _, (plain,) = measured(truth)
    _, _, (moved,) = measured([shifted(summary, ahead_ns[summary.rank]) for summary in truth])
    # a moved clock moves which ends the slope is taken from: up to 1 us seen, and 5 us is what waits are good for
    assert np.abs(plain.wait_ns - moved.wait_ns).max() <= 5 * US
    assert (plain.free_wait_ns == moved.free_wait_ns).all()
    present = moved.present
    assert (moved.wait_ns[present] >= 0).all()
    assert (moved.wait_ns.min(axis=1) == 0).all()


def test_no_more_waiting_is_exposed_than_is_exposed_of_the_instance():
    truth = simulate(Job(n_ranks=4, max_offset_ns=0, max_drift=0.0))
    ranks = [replace(summary, host="a") for summary in truth.summaries]
    _, _, (waits,) = measured([shifted(ranks[0], 500 * MS), *ranks[1:]])
    assert (waits.wait_exposed_ns >= 0).all()
    assert (waits.wait_exposed_ns <= waits.exposed_ns).all()


def beside(summary, n_beside=3):
    """The same rank with each collective started in as many parts beside each other, as gloo's threads run buckets."""
    rows = summary.collectives
    place = np.repeat(np.arange(len(rows)), n_beside)
    rows = rows.take(place)
    first = np.arange(place.size) % n_beside == 0
    rows = replace(
        rows,
        seq=np.arange(place.size),
        exposed_once_ns=np.where(first, rows.exposed_once_ns, 0),
        own_ns=np.where(first[:, None], rows.own_ns, 0),
        lead_ns=np.where(first[:, None], rows.lead_ns, 0),
    )
    return replace(summary, collectives=rows)


@pytest.mark.parametrize("slow", [{}, {0: ("data", 20 * MS)}])
def test_what_runs_at_the_same_time_counts_once(slow):
    """Three buckets beside each other are late, exposed and transferred once, however many there are."""
    truth = simulate(Job(n_ranks=4, slow=slow, jitter=0.2)).summaries
    _, _, (one,) = measured(truth)
    _, _, (three,) = measured([beside(summary) for summary in truth])
    alone, together = communication_limit(one), communication_limit(three)
    assert together.exposed_ns == alone.exposed_ns
    assert together.wait_exposed_ns == pytest.approx(alone.wait_exposed_ns, rel=0.01)
    assert together.wait_ns == pytest.approx(alone.wait_ns, rel=0.01)
    assert together.transfer_exposed_ns == pytest.approx(alone.transfer_exposed_ns, rel=0.01)
    assert together.transfer_ns == pytest.approx(alone.transfer_ns, rel=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_no_group_is_exposed_or_waits_longer_than_its_largest_rank(seed):
    """Also where ranks take turns in being late: nobody waits in all instances."""
    truth = [beside(summary) for summary in simulate(Job(seed=seed, n_ranks=4, jitter=0.5)).summaries]
    _, _, (waits,) = measured(truth)
    limit = communication_limit(waits)
    longest = max(Intervals.of(s.collectives.start_ns, s.collectives.end_ns).total_ns for s in truth)
    assert limit.exposed_ns <= longest
    assert limit.transfer_exposed_ns <= limit.exposed_ns
    assert limit.wait_exposed_ns <= limit.wait_ns <= longest


N_STEPS = 12


def _analysed(ranks: Sequence[RankSummary]) -> tuple[Sequence[RankSummary], Clocks, Sequence[GroupWaits]]:
    return ranks, *measured(ranks)[1:]


def _with_steps(summary: RankSummary, first: int, last: int) -> RankSummary:
    """The same collectives, but only these steps are marked."""
    rows = summary.collectives
    step = np.where((rows.step >= first) & (rows.step < last), rows.step - first, NO_ROW).astype(np.int32)
    steps = summary.steps.take(np.arange(first, last))
    return replace(summary, steps=steps, collectives=replace(rows, step=step))


def test_whole_steps_are_all_measured():
    ranks = _analysed(simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries)
    assert steps_in_common(*ranks[:2]) == steps_measured(*ranks) == N_STEPS


@pytest.mark.parametrize(("first", "last"), [(0, 9), (3, 12), (4, 8)])
def test_collectives_beside_one_ranks_steps_count_as_the_steps_that_they_fill(first, last):
    one, *others = simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries
    ranks = _analysed([_with_steps(one, first, last), *others])
    assert steps_in_common(*ranks[:2]) == last - first
    assert steps_measured(*ranks) == N_STEPS


def test_no_more_steps_than_are_usually_marked():
    ranks = _analysed([_with_steps(one, 3, 9) for one in simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries])
    assert steps_measured(*ranks) == 6  # its collectives fill all twelve


def test_a_clock_that_is_off_by_half_a_step_cannot_tell():
    summaries, clocks, waits = _analysed(simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries)
    step_ns = int((summaries[2].steps.end_ns - summaries[2].steps.start_ns).mean())
    unsure = replace(clocks.ranks[2], residual_p95_ns=step_ns // 2 + step_ns // 10)
    off = replace(clocks, ranks={**clocks.ranks, 2: unsure})
    assert steps_measured(summaries, clocks, waits) == N_STEPS
    assert steps_in_common(summaries, off) is None
    assert steps_measured(summaries, off, waits) is None


def test_a_collective_that_one_rank_lacks_counts_nowhere():
    one, *others = simulate(Job(n_ranks=4, n_steps=N_STEPS, has_seq=True)).summaries
    assert steps_measured(*_analysed([without(one, 20), *others])) == N_STEPS


def test_ranks_without_steps_cannot_tell():
    one, *others = simulate(Job(n_ranks=4, n_steps=N_STEPS)).summaries
    assert steps_measured(*_analysed([_with_steps(one, 0, 0), *others])) is None
