"""Convolutions that time their algorithms: a first pass, not a steady step."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.memory import judge, measure
from profkit.model.documents.report import Bottleneck
from profkit.pipeline import triage_trace
from profkit.testing import Row, launch, span, trace_of
from profkit.timeline import Facts
from tests.drawing import BASE, US, failed_checks, finding_in, launched, triaged

GEMM = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc"


def passes(n_trials: int, *, operator: str = "aten::cudnn_convolution", n_steps: int = 0, tried: int = 1):
    """Operators of 1 ms; in the first `tried` of them a cudaMalloc, a short kernel and a wait for each trial."""
    rows, number = [], 0
    for place in range(max(n_steps, 4)):
        at = BASE + place * 1000 * US
        if n_steps:
            rows.append(span(f"ProfilerStep#{place}", at, at + 1000 * US))
        rows.append(Row(name=operator, cat="cpu_op", start_ns=at, end_ns=at + 990 * US))
        for trial in range(n_trials if place < tried else 0):
            number += 1
            begin = at + (10 + 100 * trial) * US
            for name, first, last in (("cudaMalloc", 0, 40), ("cudaEventSynchronize", 55, 90)):
                rows.append(launch(begin + first * US, begin + last * US, correlation=10**6 + number, name=name))
            rows += launched(GEMM, begin + 42 * US, begin + 60 * US, begin + 70 * US, number, call_ns=8 * US)
        number += 1
        rows += launched(GEMM, at + 940 * US, at + 950 * US, at + 985 * US, number, call_ns=5 * US)
    return triaged(rows)


def test_a_first_pass_of_convolutions_is_no_overhead():
    verdict, found, _ = passes(9, tried=4)
    said = found["memory.warmup"].evidence[0].statement
    assert "36 waits for events and 36 allocator calls inside convolutions" in said
    assert verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert "a first pass" in verdict.headline
    assert verdict.next_tool.command.startswith("profkit capture ")


@pytest.mark.parametrize(
    "changed",
    [
        {"n_trials": 9, "operator": "aten::item"},  # a wait of the script's own
        {"n_trials": 0},
        {"n_trials": 2},
        {"n_trials": 9, "n_steps": 8, "tried": 8},  # in every step: that is how the job runs
    ],
)
def test_what_is_no_first_pass(changed):
    of = passes(**changed)
    assert "memory.warmup" not in of.found
    assert not of.verdict.headline.startswith("convolutions")


def test_a_first_step_among_steady_ones_is_named_and_decides_nothing():
    of = passes(9, n_steps=8)
    assert "memory.warmup" in of.found
    assert not of.verdict.headline.startswith("convolutions")


def allocating(*, steps: int, of: tuple[int, ...], marked: bool = True, call: str = "cudaMalloc", beside: str = ""):
    """Steps of 10 ms with 40 kernels; in these steps such a call before every second one idles the device."""
    rows, number = [span(beside, BASE, BASE + US)] if beside else [], 0
    for step in range(steps):
        begin = BASE + step * 10_000 * US
        if marked:
            rows.append(span(f"ProfilerStep#{step}", begin, begin + 10_000 * US))
        for place in range(40):
            number += 1
            at = begin + place * 250 * US
            if place % 2 == 0 and step in of:
                rows.append(launch(at + 5 * US, at + 125 * US, correlation=10**6 + number, name=call))
            rows.append(span("aten::mm", at + 128 * US, at + 140 * US, cat="cpu_op"))
            rows += launched(GEMM, at + 130 * US, at + 140 * US, at + 240 * US, number, call_ns=6 * US)
    return trace_of(rows)


@pytest.mark.parametrize(
    ("job", "is_refused"),
    [
        ({"steps": 1, "of": (0,)}, True),
        ({"steps": 2, "of": (0, 1)}, False),  # both steps have them: they recur
        ({"steps": 1, "of": (0,), "call": "cudaEventSynchronize"}, False),  # a wait of the script's own
        ({"steps": 8, "of": tuple(range(8)), "marked": False, "call": "cudaEventSynchronize"}, False),
    ],
)
def test_a_short_trace_of_a_steady_job_is_no_first_pass(job, is_refused):
    verdict, _, rank = triaged(allocating(**job))
    assert ("steps.first_pass" in failed_checks(rank)) == is_refused
    if is_refused:  # the kernels beside the allocator's calls repeat: the verdict is on them, and says so
        assert verdict.bottleneck is Bottleneck.OVERHEAD
        assert any("is start-up or single stalls: the verdict is on the rest" in said for said in verdict.caveats)
        assert verdict.confidence <= 0.5


@pytest.mark.parametrize(("of", "is_refused"), [(range(8), False), ((2,), True)])
def test_a_step_chosen_by_hand_is_set_against_the_others(of, is_refused):
    rank, _ = triage_trace(allocating(steps=8, of=tuple(of)), step_range=(2, 3))
    assert ("steps.first_pass" in failed_checks(rank)) == is_refused


@pytest.mark.parametrize(
    ("peak", "capacity", "said"),
    [
        (30 * 10**9, 40 * 10**9, "30.0 GB of 40.0 GB reserved at peak; reserved memory shrank 2 times"),
        (30 * 10**9, None, "30.0 GB reserved at peak; reserved memory shrank 2 times"),
        (None, None, ""),
    ],
)
def test_reserved_memory_is_said_where_the_trace_has_it(peak, capacity, said):
    measured = measure(Facts.of(allocating(steps=6, of=tuple(range(6)))))
    (finding,) = judge(replace(measured, peak_reserved_bytes=peak, capacity_bytes=capacity, n_reserved_drops=2))
    assert said in [*(one.statement for one in finding.evidence), ""]
    assert ("memory.peak_reserved_bytes" in {one.metric for one in finding.evidence}) == bool(said)


@pytest.mark.parametrize(("beside", "trains"), [("AddmmBackward0", True), ("forward", False)])
def test_only_training_is_told_of_micro_batches_and_checkpoints(beside, trains):
    found = finding_in(allocating(steps=8, of=tuple(range(8)), beside=beside), "memory.pressure")
    assert ("micro-batch" in found.fix) == trains
    assert ("inference_mode" in found.fix) == (not trains)
    assert bool(found.proof) == (not trains)
