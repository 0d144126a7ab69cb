"""The step without the straggler, against the same job simulated without it; of real ranks the step as it was."""

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.ranks.measure.replay import MAX_ERROR, Counterfactual, ReplayRefusal, counterfactual
from profkit.ranks.measure.stragglers import Straggler, find_stragglers
from profkit.ranks.reduce.records import PHASES, Group
from profkit.units import format_fraction
from tests.ranks.overlap import Overlap, run
from tests.ranks.simulate import MS, US, Job, measured, simulate, stragglers_of, without
from tests.ranks.test_real_ranks import ranks_of


def replayed(summaries, *, only=None):
    """Give the counterfactual for the stragglers found (`only`: of these ranks)."""
    matching, clocks, waits = measured(summaries)
    found = find_stragglers(waits, summaries)
    late = [straggler for group in found for straggler in (*group.named, *group.hidden)]
    named = [straggler for straggler in late if only is None or straggler.rank in only]
    return counterfactual(summaries, matching, clocks, named)


def mean_step(truth):
    """Give the mean step of simulated ranks, on their own clocks (35 ppm at most apart)."""
    return np.mean([(s.steps.end_ns[-1] - s.steps.start_ns[0]) / len(s.steps) for s in truth.summaries])


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_the_step_without_the_straggler(phase, n_ranks):
    job = Job(seed=7, n_ranks=n_ranks, slow={1: (phase, 3 * MS)})
    found = replayed(simulate(job).summaries)
    assert isinstance(found, Counterfactual)
    assert found.error_fraction < 0.001
    assert found.observed_ns == pytest.approx(mean_step(simulate(job)), rel=1e-3)
    assert found.predicted_ns == pytest.approx(mean_step(simulate(replace(job, slow=None))), rel=0.01)
    assert found.gain_ns == found.replayed_ns - found.predicted_ns == pytest.approx(3 * MS, rel=0.1)
    assert [(each.rank, each.phases) for each in found.equalised] == [(1, (phase,))]
    assert found.equalised[0].removed_ns == pytest.approx(3 * MS, rel=0.1)
    assert found.n_instances == 48


def test_the_second_straggler_is_what_remains():
    job = Job(seed=4, n_ranks=8, n_steps=24, slow={2: ("host", 6 * MS), 5: ("data", 5 * MS)})
    ranks = simulate(job).summaries
    only_first = simulate(replace(job, slow={5: ("data", 5 * MS)}))
    assert replayed(ranks, only={2}).predicted_ns == pytest.approx(mean_step(only_first), rel=0.01)
    assert replayed(ranks).predicted_ns == pytest.approx(mean_step(simulate(replace(job, slow=None))), rel=0.01)


@pytest.mark.parametrize("phase", ["data", "compute"])
@pytest.mark.parametrize("transfer_ns", [200 * US, 1 * MS, 4 * MS])
def test_buckets_under_the_backward_pass(phase, transfer_ns):
    """Hidden, nearly hidden, and so long that each waits for the one before: whole traces, from which all is read."""
    job = Overlap(extra_ns={1: 3 * MS}, slow_phase=phase, transfer_ns=transfer_ns)
    summaries, step_ns = run(job)
    _, truth_ns = run(replace(job, extra_ns=None))
    found = replayed(summaries)
    assert found.observed_ns == pytest.approx(step_ns, rel=1e-3)
    assert found.error_fraction < 0.005
    assert found.predicted_ns == pytest.approx(truth_ns, rel=0.005)
    assert found.predicted_ns <= found.predicted_most_ns <= 1.005 * truth_ns
    assert found.equalised[0].phases == (phase,)


def test_lateness_that_overlap_absorbs_gains_nothing():
    """Rank 1 loads 3 ms longer and computes 3 ms less: without the load it would still come with the others."""
    summaries, _ = run(Overlap(extra_ns={1: 3 * MS}, slow_phase="data"))
    ranks = list(summaries)
    rows = ranks[1].collectives
    own = rows.own_ns.copy()
    own[::4, PHASES.index("data")] = ranks[0].collectives.own_ns[::4, PHASES.index("data")]
    ranks[1] = replace(ranks[1], collectives=replace(rows, own_ns=own))
    matching, clocks, waits = measured(summaries)
    named = find_stragglers(waits, summaries)[0].named
    found = counterfactual(ranks, matching, clocks, named)
    assert found.gain_ns == pytest.approx(0, abs=20 * US)
    assert abs(found.equalised[0].removed_ns) <= 20 * US


def test_a_replay_that_misses_the_step_says_nothing():
    """Each collective was ready 1 ms before it began, for a reason that nothing here tells."""
    ranks = []
    for summary in simulate(Job(slow={1: ("compute", 3 * MS)})).summaries:
        rows = summary.collectives
        ranks.append(replace(summary, collectives=replace(rows, ready_ns=rows.ready_ns - MS)))
    found = replayed(ranks)
    assert isinstance(found, ReplayRefusal)
    assert found.error_fraction > MAX_ERROR
    assert f"by {format_fraction(found.error_fraction)}, more than {format_fraction(MAX_ERROR)}" in found.reason


def test_an_order_that_cannot_be_is_refused():
    """Waits that end with the collective after: each would have to begin before itself."""
    ranks = []
    for summary in simulate(Job(slow={1: ("compute", 3 * MS)})).summaries:
        row = np.minimum(summary.blocks.row + 1, len(summary.collectives) - 1)
        ranks.append(replace(summary, blocks=replace(summary.blocks, row=row)))
    assert "order" in replayed(ranks).reason


def without_steps(summary):
    rows = summary.collectives
    outside = replace(rows, step=np.full(len(rows), -1, np.int32))
    return replace(summary, steps=summary.steps.take(np.arange(0)), collectives=outside)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda ranks: [rank for rank in ranks if rank.rank != 3], "1 ranks are missing"),
        (lambda ranks: [without_steps(rank) for rank in ranks], "has no steps"),
        (lambda ranks: [without(rank, *range(12, 48)) for rank in ranks], "too few common collectives"),
    ],
)
def test_refusals(change, reason):
    ranks = simulate(Job(seed=5, slow={1: ("compute", 3 * MS)})).summaries
    named = stragglers_of(ranks)[0].named
    ranks = change(ranks)
    matching, clocks, _ = measured(ranks)
    found = counterfactual(ranks, matching, clocks, named)
    assert isinstance(found, ReplayRefusal)
    assert reason in found.reason
    assert found.error_fraction is None


def test_without_stragglers_there_is_nothing_to_replace():
    found = replayed(simulate(Job()).summaries)
    assert isinstance(found, ReplayRefusal)
    assert "nothing to replace" in found.reason


def test_shared_cores_are_named_as_unmodelled():
    ranks = simulate(Job(seed=7, slow={1: ("data", 3 * MS)})).summaries
    assert not any("cores" in note for note in replayed(ranks).unmodelled)
    assert any("cores" in note for note in replayed([replace(rank, is_cpu=True) for rank in ranks]).unmodelled)


def someone(rank):
    """Give a rank as a straggler of no phase: all its own work is set to its peers'."""
    return Straggler(
        rank=rank,
        group=Group(),
        phase=None,
        phase_excess_ns=(0,) * 5,
        lateness_ns=0,
        free_lateness_ns=0,
        excess_ns=0,
        effect_fraction=0.0,
        share=0.0,
        p_value=1.0,
        n_last=0,
        n_instances=0,
        n_blocks=0,
        explained_fraction=0.0,
        compute_factor=None,
    )


def replayed_without(summaries, named):
    matching, clocks, _ = measured(summaries)
    return counterfactual(summaries, matching, clocks, named)


@pytest.mark.shared
def test_megatron_without_its_stragglers(shared_traces):
    summaries = ranks_of(shared_traces, "megatron-tp8-8xA100/*.json.gz")
    named = stragglers_of(summaries)[0].named
    found = replayed_without(summaries, named)
    assert found.error_fraction < 0.001
    assert found.n_instances == 84
    assert {each.rank: each.phases for each in found.equalised} == {0: ("host",), 6: ("data", "host")}
    late = sum(straggler.excess_ns for straggler in named)
    assert late < found.gain_ns < 1.1 * late  # the rest: what each cost behind the other
    assert found.predicted_ns == found.predicted_most_ns  # tensor parallelism: nothing runs under compute


@pytest.mark.shared
def test_gloo_ranks_come_out_again(shared_traces):
    found = replayed_without(ranks_of(shared_traces, "cpu_captures/gloo_fsdp2.*.json.gz"), [someone(0)])
    assert isinstance(found, Counterfactual)
    assert found.error_fraction < 0.005
    assert any("cores" in note for note in found.unmodelled)


@pytest.mark.parametrize("name", ["fsdp_vlm_prefetch_off", "fsdp_vlm_prefetch_on"])
def test_our_own_ranks_come_out_again(traces, name):
    """Two like ranks: made like its peer, one changes the step by little."""
    found = replayed_without(ranks_of(traces / name, "*.json.gz"), [someone(0)])
    assert found.error_fraction < 0.005
    assert abs(found.replayed_ns - found.predicted_ns) < 0.1 * found.replayed_ns
