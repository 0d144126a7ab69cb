"""Replays of real ranks: the step as it was comes out again; what a straggler costs agrees with how late it was."""

import pytest

from profkit.ranks.align.clocks import aligned
from profkit.ranks.align.match import matched
from profkit.ranks.measure.replay import Counterfactual, counterfactual
from profkit.ranks.measure.stragglers import Straggler, find_stragglers
from profkit.ranks.measure.waits import split
from profkit.ranks.reduce.records import Group
from tests.ranks.test_real_ranks import ranks_of


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


def replayed(summaries, named):
    matching = matched(summaries)
    return counterfactual(summaries, matching, aligned(summaries, matching), named)


@pytest.mark.shared
def test_megatron_without_its_stragglers(shared_traces):
    summaries = ranks_of(shared_traces, "megatron-tp8-8xA100/*.json.gz")
    matching = matched(summaries)
    named = find_stragglers(split(summaries, matching, aligned(summaries, matching)), summaries)[0].named
    found = replayed(summaries, named)
    assert found.error_fraction < 0.001
    assert found.n_instances == 84
    assert {each.rank: each.phases for each in found.equalised} == {0: ("host",), 6: ("data", "host")}
    late = sum(straggler.excess_ns for straggler in named)
    assert late < found.gain_ns < 1.1 * late  # the rest: what each cost behind the other
    assert found.predicted_ns == found.predicted_most_ns  # tensor parallelism: nothing runs under compute


@pytest.mark.shared
def test_gloo_ranks_come_out_again(shared_traces):
    found = replayed(ranks_of(shared_traces, "cpu_captures/gloo_fsdp2.*.json.gz"), [someone(0)])
    assert isinstance(found, Counterfactual)
    assert found.error_fraction < 0.005
    assert any("cores" in note for note in found.unmodelled)


@pytest.mark.parametrize("name", ["fsdp_vlm_prefetch_off", "fsdp_vlm_prefetch_on"])
def test_our_own_ranks_come_out_again(traces, name):
    """Two like ranks: made like its peer, one changes the step by little."""
    found = replayed(ranks_of(traces / name, "*.json.gz"), [someone(0)])
    assert found.error_fraction < 0.005
    assert abs(found.replayed_ns - found.predicted_ns) < 0.1 * found.replayed_ns
