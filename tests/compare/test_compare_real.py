"""Real pairs: direction and cause agree with what their authors measured (PROVENANCE.md beside the traces)."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from profkit.api import triage
from profkit.compare.captures.sides import Side, read_side
from profkit.compare.comparison import compare
from profkit.model.documents.comparison import Comparison
from tests.conftest import ROOT, SHARED_TRACES, dear


@cache
def side(name: str, path: Path) -> Side:
    return read_side(name, [str(path)])


def compared(baseline: Path, candidate: Path) -> Comparison:
    return compare(side("baseline", baseline), side("candidate", candidate))


def readings(comparison: Comparison) -> set[str]:
    return {item.id.removeprefix("compare.") for item in comparison.readings}


def one(pattern: str) -> Path:
    if not SHARED_TRACES.is_dir():
        pytest.skip("no real traces beside this checkout")
    (found,) = SHARED_TRACES.glob(pattern)
    return found


def test_two_workers_take_half_of_the_wait_away():
    traces = ROOT / "traces"
    comparison = compared(traces / "data_cpu.pt.trace.json.gz", traces / "data_workers2_cpu.pt.trace.json.gz")
    data = comparison.waterfall.bar("idle_data").delta_ns
    assert data < 0
    assert data == pytest.approx(comparison.waterfall.delta_ns, rel=0.1)  # nothing else moved
    assert readings(comparison) == {"input"}
    assert comparison.judgement.answer == "inconclusive"
    assert "cannot rule out noise" in comparison.judgement.sentence


def test_prefetch_on_two_shared_cores_hides_more_than_it_gains():
    """What PAIRS.toml says: all-gathers run while the block before computes, and two ranks share two cores."""
    traces = ROOT / "traces"
    comparison = compared(traces / "fsdp_vlm_prefetch_off", traces / "fsdp_vlm_prefetch_on")
    (overlap,) = comparison.readings
    assert overlap.id == "compare.overlap_bought_nothing"
    seen = {item.metric: item.value for item in overlap.evidence}
    assert seen["compare.comm_hidden_fraction_change"] > 0.15
    assert seen["compare.stretch_factor"] > 1.1
    assert comparison.comm.rest.by_count_ns == 0 == sum(row.by_count_ns for row in comparison.comm.rows)
    assert comparison.judgement.unit == "tokens/s"


RESNET = "kineto-tb-samples/resnet50_"
WORKERS = [  # of one commit each, so of one machine and one version
    (f"{RESNET}autograd_api_num_workers_0/*", f"{RESNET}autograd_api_num_workers_4/*"),
    (f"{RESNET}num_workers_0/2d19c6*", f"{RESNET}num_workers_4/7bd25b*"),
    dear(f"{RESNET}num_workers_0/d3fb40*", f"{RESNET}num_workers_4/29dba6*"),
    *(
        dear(f"{RESNET}num_workers_0/{zero}*", f"{RESNET}num_workers_4/{four}*")
        for zero in ("383a06", "769c3e")
        for four in ("234cf2", "3e633b")
    ),
]


@pytest.mark.shared
@pytest.mark.parametrize(("zero", "four"), WORKERS, ids=lambda text: text.rpartition("_")[2][:8])
def test_four_workers_make_resnet_faster_by_the_wait_for_data(zero, four):
    comparison = compared(one(zero), one(four))
    assert comparison.judgement.ratio < 1
    assert "input" in readings(comparison)
    assert min(comparison.waterfall.bars, key=lambda bar: bar.delta_ns).name == "idle_data"
    assert {item.id: item.presence for item in comparison.findings}["input.starved"] == "vanished"
    assert not readings(comparison) & {"precision", "compiled", "work_changed", "recompute"}


@pytest.mark.shared
@pytest.mark.parametrize("workers", [dear(0), 4])
def test_two_windows_of_one_process_among_other_runs_are_one_run(workers):
    """Two of the four files have one process id, and steps 5 to 10 and 16 to 21."""
    folder = one(f"{RESNET}num_workers_{workers}/*234cf2*" if workers else f"{RESNET}num_workers_0/*383a06*").parent
    assert [len(run.traces) for run in side("baseline", folder).runs] == [1, 1, 2]


@pytest.mark.shared
def test_segment_anything_compiled_and_in_bf16():
    comparison = compared(one("seg*/asdf_False-9ab*"), one("seg*/asdf_True-3b7*"))
    assert comparison.judgement.ratio < 0.5
    assert {"compiled", "precision"} <= readings(comparison)
    assert "work_changed" not in readings(comparison)
    assert comparison.compute.delta_ns == pytest.approx(comparison.waterfall.delta_ns, rel=0.05)


@pytest.mark.shared
def test_segment_anything_waits_less_for_its_device():
    comparison = compared(one("seg*/asdf_False-a73*"), one("seg*/asdf_False-9ab*"))
    assert comparison.readings[0].id == "compare.syncs"
    assert comparison.unlike[0].what == "device"


BATCHES = (2, 4, 8, 16, 32, 64, 128, 256, 512)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("small", "large"), [pair if pair in {(2, 4), (64, 128)} else dear(*pair) for pair in pairwise(BATCHES)]
)
def test_every_step_of_the_batch_sweep_is_other_work(small, large):
    sweep = "particle-transformer-batchsweep/batch_size_{}-*"
    comparison = compared(one(sweep.format(small)), one(sweep.format(large)))
    assert not comparison.judgement.is_comparable
    (work,) = (item for item in comparison.readings if item.id == "compare.work_changed")
    assert 1.5 < work.evidence[0].value < 6  # sequences are padded to the longest of a batch, so not always 2


@pytest.mark.shared
def test_the_batch_sweep_leaves_the_launch_bound():
    sweep = "particle-transformer-batchsweep/batch_size_{}-*"
    comparison = compared(one(sweep.format(64)), one(sweep.format(128)))
    assert (comparison.baseline.bottleneck, comparison.candidate.bottleneck) == ("overhead-bound", "kernel-bound")
    assert {item.id: item.presence for item in comparison.findings}["host.launch_bound"] == "vanished"


@pytest.mark.shared
def test_a_compiled_step_on_a_cpu():
    comparison = compared(one("cpu_captures/plain_w0*"), one("cpu_captures/compile_w0*"))
    assert comparison.judgement.ratio < 1
    assert readings(comparison) == {"compiled"}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("megatron-tp8-8xA100/megatron_kineto_1*", "megatron-tp8-8xA100/megatron_kineto_2*"),
        dear(f"{RESNET}num_workers_4/234cf2*", f"{RESNET}num_workers_4/3e633b*"),
        ("odd/Quentin*/*af68c4*", "odd/Quentin*/*c4adad*"),
    ],
)
def test_two_captures_of_one_program_give_no_program_reading(first, second):
    comparison = compared(one(first), one(second))
    assert not readings(comparison) & {"precision", "compiled", "recompute", "work_changed", "overlap_bought_nothing"}


@pytest.mark.shared
def test_ranks_of_a_folder_are_one_run():
    if not SHARED_TRACES.is_dir():
        pytest.skip("no real traces beside this checkout")
    ranks = read_side("baseline", [str(SHARED_TRACES / "param-et-replay" / "dlrm_kineto")])
    assert [len(run.traces) for run in ranks.runs] == [8]
    comparison = compare(ranks, ranks)
    assert comparison.waterfall.delta_ns == 0
    assert comparison.baseline.n_traces == 8


@pytest.mark.parametrize(("name", "late_rank"), [("ddp_straggler_ws4", 0), ("ddp_comm_ws4", None)])
def test_the_verdict_on_a_side_is_that_of_triage_on_its_ranks(name, late_rank):
    """One rank's trace says comm-bound for every victim; all ranks together name the late one."""
    folder = ROOT / "traces" / name
    verdict = triage([str(folder)]).verdict
    (run,) = side("baseline", folder).runs
    assert (run.bottleneck, run.late_rank) == (verdict.bottleneck.value, late_rank)
    comparison = compared(ROOT / "traces" / "ddp_barrier_ws4", folder)
    assert (comparison.candidate.bottleneck, comparison.candidate.late_rank) == (verdict.bottleneck.value, late_rank)
    assert {finding.id for finding in verdict.findings} <= {item.id for item in comparison.findings}
