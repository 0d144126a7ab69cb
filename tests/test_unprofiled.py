"""A step that the profiler slows down: what a fix saves is of the step without the profiler."""

import gzip
import re

import jsonschema
import pytest

from profkit.api import triage
from profkit.model.documents.report import Bottleneck, Report
from profkit.pipeline import analyse, triage_trace
from profkit.render.json.triage import report_to_dict
from profkit.render.schema import schema
from profkit.render.words.triage import step_sentence
from profkit.testing import span, trace_of
from tests.conftest import ROOT
from tests.drawing import MS, finding_in, in_steps, launched, triaged


def starved(
    *,
    plain_ms: float | None,
    profiled_ms: float | None = None,
    work_ms: int = 8,
    loader_ms: int = 0,
    name: str = "ampere_bf16_s16816gemm",
):
    """Recorded steps of 40 ms, of which the device works so many and waits for operators (and the loader) otherwise."""

    def drawn(start, number):
        if loader_ms:
            yield span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, start + loader_ms * MS)
        for part in range(8):
            at = start + part * 5 * MS
            begun = min(max(at, start + loader_ms * MS), at + 4 * MS)
            yield span("aten::mm", begun, at + 5 * MS - 1000, cat="cpu_op")
            at += 4 * MS
            end = at + 10_000 + work_ms * MS // 8
            yield from launched(name, at, at + 10_000, end, 8 * number + part + 1, call_ns=5_000)

    known = {} if plain_ms is None else {"profkit_unprofiled_step_mean_ns": round(plain_ms * MS)}
    if profiled_ms is not None:
        known["profkit_profiled_step_mean_ns"] = round(profiled_ms * MS)
    return trace_of(in_steps(8, 40 * MS, drawn), **known)


def reported(trace) -> Report:
    """The report on one trace alone."""
    rank, verdict = triage_trace(trace)
    return Report(verdict=verdict, ranks=(rank,), findings=rank.findings, skipped=rank.skipped)


@pytest.mark.parametrize("plain_ms", [None, 39.0, 60.0])
def test_a_profiler_that_costs_little_changes_nothing(plain_ms):
    trace = starved(plain_ms=plain_ms)
    _, verdict = triage_trace(trace)
    assert (verdict.step_ns, verdict.recorded_step_ns) == (40 * MS, None)
    assert verdict.recoverable_ns == analyse(trace).verdict.recoverable_ns


def test_step_gain_and_ceiling_are_of_the_step_without_the_profiler():
    recorded = analyse(starved(plain_ms=None)).verdict
    report = reported(starved(plain_ms=30))
    verdict = report.verdict
    assert verdict.bottleneck is recorded.bottleneck is not Bottleneck.INCONCLUSIVE
    assert (verdict.step_ns, verdict.recorded_step_ns) == (30 * MS, 40 * MS)
    assert recorded.recoverable_ns > 30 * MS, "more than the whole step takes without the profiler"
    assert verdict.recoverable_ns == pytest.approx((30 - 8) * MS, rel=0.01), "the device works for 8 ms"
    assert verdict.speedup_ceiling == pytest.approx(30 * MS / (30 * MS - verdict.recoverable_ns))
    assert verdict.headline == recorded.headline, "a share of what was recorded"
    assert any("without the profiler (30.0 ms per step)" in line for line in verdict.caveats)
    assert step_sentence(report).startswith("Step 30.0 ms (8 steps recorded, 40.0 ms with the profiler")
    assert report_to_dict(report)["verdict"]["recorded_step_ns"] == 40 * MS
    gains = [finding.recoverable_ns for finding in (*verdict.findings, *report.findings)]
    assert max(gains) == verdict.recoverable_ns


@pytest.mark.parametrize(("profiled_ms", "step_ms"), [(20.4, None), (30, 26.667)])
def test_a_validation_in_a_recorded_step_is_no_cost_of_the_profiler(profiled_ms, step_ms):
    """By the capture's clock a step takes 20 ms without it; the mean of the trace's steps is twice that."""
    _, verdict = triage_trace(starved(plain_ms=20, profiled_ms=profiled_ms))
    assert verdict.step_ns == (40 * MS if step_ms is None else pytest.approx(step_ms * MS, rel=1e-3))
    assert (verdict.recorded_step_ns is None) == (step_ms is None)


def test_idle_time_that_only_the_profiler_makes_is_no_gain():
    """The device works 8 of 40 ms with the profiler, and nearly all of 8.5 ms without it."""
    _, verdict = triage_trace(starved(plain_ms=8.5))
    assert verdict.recoverable_ns == pytest.approx(MS // 2, rel=0.01)
    assert verdict.speedup_ceiling == pytest.approx(1.06, abs=0.01)
    assert verdict.confidence < 0.1
    assert any("the GPU idles at most" in line for line in verdict.caveats)


def test_confidence_falls_with_the_profilers_cost():
    trust = [triage_trace(starved(plain_ms=plain_ms))[1].confidence for plain_ms in (40, 36, 30, 20, 13)]
    assert trust == sorted(trust, reverse=True)
    assert trust[-1] < 0.4


def gain_ms(trace, finding: str) -> float:
    """What a fix saves of a step at most, as the report has it."""
    return finding_in(trace, finding).recoverable_ns / MS


def test_kernels_last_as_long_without_the_profiler():
    """What TF32 saves of the device's 8 ms is the same with a profiler that doubles the step."""
    name = "ampere_sgemm_128x64_tn"
    recorded, plain = (gain_ms(starved(plain_ms=ms, name=name), "precision.no_tf32") for ms in (None, 20))
    assert plain == pytest.approx(recorded) == pytest.approx(7, rel=0.01)
    assert gain_ms(starved(plain_ms=6, name=name), "precision.no_tf32") < 6, "less than the whole step"


def test_a_wait_for_data_lasts_as_long_without_the_profiler():
    recorded, plain, short = (gain_ms(starved(plain_ms=ms, loader_ms=10), "input.starved") for ms in (None, 25, 12))
    assert plain == pytest.approx(recorded)
    assert plain > 9
    assert short == pytest.approx(12 - 8, rel=0.01), "the device works 8 of 12 ms"


RANKS = ROOT / "traces" / "ddp_weak_ws2"


def test_of_ranks_too_step_and_gain_are_those_without_the_profiler():
    report = triage(RANKS)
    verdict = report.verdict
    assert verdict.recorded_step_ns == pytest.approx(59.3 * MS, rel=0.01)
    assert verdict.step_ns in {rank.unprofiled_step_ns for rank in report.ranks} == {44_096_650, 44_452_238}
    assert step_sentence(report).startswith("Step 44.5 ms (11 steps recorded, 59.3 ms with the profiler, varies by")
    for finding in (*verdict.findings, *report.findings):
        assert finding.recoverable_ns <= verdict.step_ns, finding.id
    document = report_to_dict(report)
    jsonschema.Draft202012Validator(schema("triage")).validate(document)
    assert document["verdict"]["unprofiled_step_ns"] == 44_452_238
    assert document["ranks"][0]["unprofiled_step_ns"] == 44_096_650


@pytest.mark.parametrize("change", ["unknown on one rank", "nearly as long"])
def test_ranks_whose_unprofiled_steps_are_not_known_or_no_shorter_are_as_recorded(change, tmp_path):
    for rank in (0, 1):
        name = f"rank{rank}.pt.trace.json.gz"
        text = gzip.decompress((RANKS / name).read_bytes()).decode()
        if change == "nearly as long":
            text = re.sub(r'(?<="profkit_unprofiled_step_mean_ns": )\d+', str(58 * MS), text)
        elif rank:
            text = re.sub(r'"profkit_unprofiled_step_(mean_)?ns": \d+, ', "", text)
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    report = triage(tmp_path)
    assert (report.verdict.recorded_step_ns, report.verdict.unprofiled_step_ns) == (None, None)
    assert "the profiler" not in step_sentence(report)


NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("held", "finding", "held_ms", "plain_ms", "gain_ms"),
    [
        (NEXT, "input.starved", 10, 30, 10),
        (NEXT, "input.starved", 35, 20, 17.5),
        ("Python GC (generation 2)", "host.gc", 10, 25, 10),
    ],
    ids=["a wait shorter than the step", "a wait that is slowed as well", "a collection of garbage"],
)
def test_on_a_cpu_what_holds_the_step_up_lasts_as_long_without_the_profiler(held, finding, held_ms, plain_ms, gain_ms):
    drawn = lambda at, _: [  # noqa: E731
        span(held, at, at + held_ms * MS, cat="cpu_op" if held == NEXT else "user_annotation"),
        span("aten::mm", at + held_ms * MS, at + 40 * MS - 1000, cat="cpu_op"),
    ]
    verdict, found, _ = triaged(in_steps(8, 40 * MS, drawn), profkit_unprofiled_step_mean_ns=plain_ms * MS)
    assert verdict.step_ns == plain_ms * MS
    assert found[finding].recoverable_ns == pytest.approx(gain_ms * MS, rel=0.01), "the profiler slows operators alone"
