"""The same collective on every rank, however the windows lie."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profkit.ranks.align.match import matched
from profkit.ranks.align.match_types import Method
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import Group
from tests.conftest import examples
from tests.ranks.overlap import Overlap, run
from tests.ranks.pipeline import in_one_group, pipeline
from tests.ranks.simulate import MS, Job, shifted, simulate, without


def in_elements(summary, values):
    return replace(summary, collectives=replace(summary.collectives, in_elements=np.array(values, np.int64)))


def test_by_sequence_number_whatever_the_windows():
    ranks = list(simulate(Job(has_seq=True)).summaries)
    ranks[1] = without(ranks[1], 0, 1)
    ranks[2] = without(ranks[2], 20)
    (match,) = matched(ranks).groups
    assert match.method is Method.SEQ
    assert match.rows.shape == (48, 4)
    assert match.n_late_start == (0, 2, 0, 0)
    assert match.n_missed == (0, 0, 1, 0)
    assert match.n_unmatched == (0, 0, 0, 0)
    assert match.rows[5].tolist() == [5, 3, 5, 5]
    assert match.rows[20].tolist() == [20, 18, -1, 20]


@pytest.mark.parametrize("missing", [(0,), (0, 1, 2), (23,), (47,), (10, 30), (0, 17, 18)])
def test_a_window_that_misses_collectives_is_found_and_said(missing):
    """All collectives are alike: only the times tell that a window begins later or has a hole."""
    ranks = list(simulate(Job(seed=3)).summaries)
    ranks[1] = without(ranks[1], *missing)
    (match,) = matched(ranks).groups
    assert match.method is Method.ENDS
    everywhere = np.arange(48)
    assert match.rows[:, 0].tolist() == everywhere.tolist()
    expected = np.setdiff1d(everywhere, missing)
    assert np.flatnonzero(match.rows[:, 1] >= 0).tolist() == expected.tolist()
    leading = int(np.argmax(np.isin(everywhere, missing, invert=True)))
    trailing = len([row for row in missing if row == 47])
    assert match.n_late_start[1] == leading
    assert match.n_missed[1] == len(missing) - leading - trailing


def test_windows_of_one_length_that_begin_elsewhere():
    """Equal counts prove nothing: rank 1 began one collective later and ended one later."""
    ranks = list(simulate(Job(seed=1, n_ranks=2)).summaries)
    (match,) = matched([without(ranks[0], -1), without(ranks[1], 0)]).groups
    assert match.method is Method.ENDS
    assert match.rows.tolist() == [[row + 1, row] for row in range(46)]
    assert match.n_unmatched == (1, 1)


def test_ambiguous_windows_are_refused():
    """Collectives like clockwork and no numbers: each shift fits as well as the next."""
    ranks = list(simulate(Job(seed=1, n_ranks=2, jitter=0.0, end_jitter_ns=0, transfer_jitter_ns=0)).summaries)
    ranks = [replace(summary, steps=summary.steps.take(np.empty(0, np.int64))) for summary in ranks]
    ranks = [
        replace(s, collectives=replace(s.collectives, step=np.full(len(s.collectives), -1, np.int32))) for s in ranks
    ]
    found = matched([ranks[0], without(ranks[1], 0)])
    assert found.groups == ()
    assert "several shifts fit equally well" in found.refusals[0].reason


def test_sizes_must_agree():
    ranks = list(simulate(Job(has_seq=True, n_ranks=2)).summaries)
    sizes = np.full(48, 1_000_000)
    sizes[7] = 5
    (match,) = matched([ranks[0], in_elements(ranks[1], sizes)]).groups
    assert match.n_unmatched == (1, 1)
    assert 7 not in match.rows[:, 0]


def test_sequence_numbers_that_pair_different_sizes_are_not_believed():
    ranks = list(simulate(Job(has_seq=True, n_ranks=2)).summaries)
    sizes = np.tile([10, 20, 30, 40], 12)
    ranks = [in_elements(summary, sizes) for summary in ranks]
    wrong = replace(ranks[1], collectives=replace(ranks[1].collectives, seq=ranks[1].collectives.seq + 1))
    (match,) = matched([ranks[0], wrong]).groups
    assert match.method is Method.ENDS
    assert "not used" in match.note
    assert (match.rows[:, 0] == match.rows[:, 1]).all()


def test_few_collectives_by_step_else_by_order():
    ranks = simulate(Job(n_ranks=2, n_steps=3, n_buckets=1)).summaries
    (match,) = matched([shifted(ranks[0], 0), shifted(ranks[1], 10**9)]).groups
    assert match.rows.tolist() == [[0, 0], [1, 1], [2, 2]]
    loose = [
        replace(s, collectives=replace(s.collectives, end_ns=s.collectives.end_ns + np.array([0, s.rank * MS, 0])))
        for s in ranks
    ]
    (match,) = matched(loose).groups
    assert match.method is Method.STEPS
    assert match.rows.tolist() == [[0, 0], [1, 1], [2, 2]]


def barriers_of_the_next_step(summary):
    """Every second collective is a barrier and stands in the next step; that of the last one lies outside."""
    rows = summary.collectives
    is_barrier = np.arange(len(rows)) % 2 == 1
    step = np.where(is_barrier, rows.step + 1, rows.step).astype(np.int32)
    kept = without(replace(summary, collectives=replace(rows, step=step)), -1)
    return with_barriers(kept)


def with_barriers(summary):
    rows = summary.collectives
    kind = np.where(np.arange(len(rows)) % 2 == 1, CollectiveKind.BARRIER, rows.kind).astype(np.int8)
    return replace(summary, collectives=replace(rows, kind=kind))


def test_a_step_that_begins_before_the_barrier_of_the_others_is_told_by_the_clocks():
    """Steps would pair each barrier with the one before."""
    rng = np.random.default_rng(2)
    job = Job(n_ranks=2, n_steps=20, n_buckets=2, slow={0: ("compute", 30 * MS)}, max_offset_ns=0, max_drift=0)
    ranks = [loosely_ended(one, rng, 3.0) for one in simulate(job).summaries]
    ranks = [barriers_of_the_next_step(ranks[0]), with_barriers(ranks[1])]
    assert matched(ranks).groups == (), "clocks of two hosts tell nothing"
    (match,) = matched([replace(one, host="node") for one in ranks]).groups
    assert match.method is Method.ORDER
    assert (match.rows[:, 0] == match.rows[:, 1]).all()


def loosely_ended(summary, rng, ms):
    """Give the summary as if its rank left each collective some ms late: more ranks than cores."""
    rows = summary.collectives
    return replace(summary, collectives=replace(rows, end_ns=rows.end_ns + rng.integers(0, ms * MS, len(rows))))


@pytest.mark.parametrize("seed", range(6))
def test_ranks_that_crowd_the_cores_are_matched_by_steps(seed):
    """The ends place one in half of its collectives or not at all; steps that agree with what they place know more."""
    rng = np.random.default_rng(seed)
    ranks = simulate(Job(seed=seed, n_steps=12, n_buckets=2, max_offset_ns=0, max_drift=0, jitter=0.3)).summaries
    ranks = [loosely_ended(summary, rng, 8 if summary.rank == 2 else 1) for summary in ranks]
    found = matched(ranks)
    (match,) = found.groups
    assert found.refusals == ()
    assert match.rows.tolist() == [[row] * 4 for row in range(24)]
    (match,) = matched([ranks[0], ranks[1], without(ranks[2], 0, 1), ranks[3]]).groups  # its window began a step later
    wrong = (match.rows[:, 2] >= 0) & (match.rows[:, 2] + 2 != match.rows[:, 0])
    assert not wrong.any()


@pytest.mark.parametrize("seed", range(24))
def test_steady_steps_that_end_loosely_are_not_paired_with_the_next(seed):
    """Steps of one length fit each other under any shift, by chance better than the right one; in time they do not."""
    rng = np.random.default_rng(seed)
    job = Job(seed=seed, n_ranks=2, n_steps=11, n_buckets=2, max_offset_ns=0, max_drift=0, jitter=0.05)
    ranks = [loosely_ended(summary, rng, 4) for summary in simulate(job).summaries]
    (match,) = matched(ranks).groups
    assert match.rows.tolist() == [[row, row] for row in range(22)]


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("n_steps", [11, 20])
def test_nor_on_hosts_with_clocks_of_their_own(seed, n_steps):
    """Their clocks do not say who was inside together; the ends, which tell nothing, must not outvote the steps."""
    rng = np.random.default_rng(seed)
    job = Job(seed=seed, n_ranks=2, n_steps=n_steps, n_buckets=2, max_offset_ns=0, max_drift=0, jitter=0.05)
    first, second = (loosely_ended(summary, rng, 4) for summary in simulate(job).summaries)
    (match,) = matched([first, shifted(second, 3_000 * MS)]).groups
    assert match.rows.tolist() == [[row, row] for row in range(2 * n_steps)]


def renumbered(summary, steps):
    """Give the summary as if its steps were numbered from another one on."""
    return replace(summary, steps=replace(summary.steps, number=summary.steps.number + steps))


@pytest.mark.parametrize("seed", range(6))
def test_ends_that_agree_outvote_steps_that_are_numbered_otherwise(seed):
    first, second = simulate(Job(seed=seed, n_ranks=2)).summaries
    (match,) = matched([first, shifted(renumbered(second, 1), 3_000 * MS)]).groups
    assert match.method is Method.ENDS
    assert match.rows.tolist() == [[row, row] for row in range(48)]


def test_collectives_of_one_step_that_never_meet_are_refused():
    """Two groups a trace does not tell apart: as many per step, but one rank's have ended when the other's begin."""
    ranks = simulate(Job(n_ranks=2, n_steps=3, n_buckets=1)).summaries
    late = np.array([0, 900, 100]) * MS
    rows = ranks[1].collectives
    apart = replace(rows, start_ns=rows.start_ns + late, end_ns=rows.end_ns + late)
    found = matched([ranks[0], replace(ranks[1], collectives=apart)])
    assert found.groups == ()
    assert "not the same collectives" in found.refusals[0].reason


def test_ranks_without_partners_are_refused_by_name():
    ranks = simulate(Job(n_ranks=2)).summaries
    found = matched(ranks[:1])
    assert found.groups == ()
    assert found.refusals[0].ranks == (0,)
    assert "only one rank" in found.refusals[0].reason


def test_no_rank_twice():
    ranks = simulate(Job(n_ranks=2)).summaries
    with pytest.raises(ValueError, match="once"):
        matched([ranks[0], ranks[0]])


def test_nothing_in_nothing_out():
    assert matched([]).groups == ()


def test_a_broadcast_is_matched_by_its_turn_between_others():
    ranks = []
    for summary in simulate(Job(seed=5, n_ranks=2)).summaries:
        kind = summary.collectives.kind.copy()
        kind[[2, 3, 30]] = CollectiveKind.BROADCAST
        ranks.append(replace(summary, collectives=replace(summary.collectives, kind=kind)))
    (match,) = matched([ranks[0], without(ranks[1], 30)]).groups
    assert match.n_unmatched == (1, 0)
    assert match.rows[-2:].tolist() == [[2, 2], [3, 3]]


def two_stages(sends, receives):
    base = simulate(Job(n_ranks=2, n_steps=1, n_buckets=3)).summaries
    out = []
    for summary, kind, sizes in ((base[0], CollectiveKind.SEND, sends), (base[1], CollectiveKind.RECV, receives)):
        rows = summary.collectives.take(np.arange(len(sizes)))
        column = np.array(sizes, np.int64)
        rows = replace(rows, kind=np.full(len(sizes), kind, np.int8), in_elements=column, out_elements=column)
        out.append(replace(summary, collectives=rows))
    return out


def test_sends_meet_receives():
    (pair,) = matched(two_stages([5, 6], [5, 6])).pairs
    assert (pair.sender, pair.receiver) == (0, 1)
    assert pair.rows.tolist() == [[0, 0], [1, 1]]


def test_sends_of_other_sizes_are_refused():
    found = matched(two_stages([5, 6], [5, 7]))
    assert found.pairs == ()
    assert "differ in sizes" in found.refusals[0].reason


def test_point_to_point_in_a_larger_group_names_no_peer():
    ranks = [replace(s, groups=(Group(name="pp", size=4),)) for s in two_stages([5], [5])]
    assert "does not name the peer" in matched(ranks).refusals[0].reason


@settings(max_examples=examples(40), deadline=None)
@example(seed=114, missing={10, 19, 33}, ahead_ns=0)
@example(seed=0, missing={3, 13, 18, 28, 38}, ahead_ns=0)
@given(
    seed=st.integers(0, 10**6), missing=st.sets(st.integers(0, 47), max_size=5), ahead_ns=st.integers(-30 * MS, 30 * MS)
)
def test_any_hole_and_any_offset(seed, missing, ahead_ns):
    ranks = simulate(Job(seed=seed, n_ranks=2)).summaries
    (match,) = matched([ranks[0], shifted(without(ranks[1], *missing), ahead_ns)]).groups
    there = np.setdiff1d(np.arange(48), list(missing))
    found = match.rows[match.rows[:, 1] >= 0]
    assert found.tolist() == np.stack([there, np.arange(there.size)], axis=1).tolist()


def test_steps_that_are_nearly_alike_are_not_shifted_by_two():
    """Four buckets a step end the same way under any shift by whole steps; between steps lies what tells."""
    summaries, _ = run(Overlap(extra_ns={1: 3_000_000}, slow_phase="data", transfer_ns=4_000_000))
    (match,) = matched(summaries).groups
    assert (match.rows == np.arange(32)[:, None]).all()


def test_peers_that_are_not_here_are_named():
    """Three stages of one group, the last one's trace missing: the first hop is paired, the second refused."""
    first, second, _ = [in_one_group(summary) for summary in pipeline(p=3, m=4)]
    found = matched([first, second])
    assert [(pair.sender, pair.receiver, len(pair.rows)) for pair in found.pairs] == [(0, 1, 12), (1, 0, 12)]
    assert {(refusal.ranks, refusal.reason) for refusal in found.refusals} == {
        ((1, 2), "point to point: rank 2 is missing"),
        ((2, 1), "point to point: rank 2 is missing"),
    }
