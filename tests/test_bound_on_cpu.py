"""What a fix saves at most on a CPU, where the time of the cause is no bound: the rest of the step gets faster, too."""

import pytest
from msgspec.structs import replace

from profkit.findings.communication import MODULE_BUFFERS
from profkit.findings.patterns import GC, GIL
from profkit.render.json.triage import report_to_dict
from profkit.render.words import triage as words
from profkit.verdict import on_cpu
from profkit.verdict.on_cpu import BEYOND, BEYOND_SHARED, beyond_of, bounded, most_ns
from tests.render import reports


@pytest.mark.parametrize(
    ("recoverable_ns", "whole_ns", "most"),
    [
        (16_000_000, 39_000_000, round(16_000_000 * (1 + BEYOND))),
        (36_000_000, 40_000_000, 36_000_000 + round(4_000_000 * BEYOND)),  # of the rest, where that is shorter
        (40_000_000, 40_000_000, 40_000_000),
        (41_000_000, 40_000_000, 41_000_000),  # no less than the cause
        (1_000_000, None, round(1_000_000 * (1 + BEYOND))),
    ],
)
def test_the_bound_is_the_time_of_the_cause_and_a_part(recoverable_ns, whole_ns, most):
    assert most_ns(recoverable_ns, whole_ns) == most


def test_the_part_is_read_when_it_is_asked_for(monkeypatch):
    """analyses/accuracy asks what profkit would say with nothing added."""
    monkeypatch.setattr(on_cpu, "BEYOND", 0.0)
    assert on_cpu.most_share(0.3) == 0.3


def test_on_a_gpu_the_time_of_the_cause_is_the_bound():
    report = reports.overhead()
    assert bounded(report.verdict, report.findings, is_cpu=False) == (report.verdict, report.findings)


def test_a_report_on_a_cpu_says_both():
    report = reports.overhead()
    verdict, findings = bounded(report.verdict, report.findings, is_cpu=True)
    said = words.gain_sentence(verdict)
    most = round((1 + BEYOND) * 17.5, 1)
    assert said == f"A fix saves about 17.5 ms per step (1.74x faster), {most} ms at most"
    assert words.gain_sentence(replace(verdict, speedup_ceiling=None)).startswith(
        "A fix saves about 17.5 ms per step, "
    )
    shown = replace(report, verdict=verdict, findings=findings)
    lead = verdict.findings[0]
    assert words.finding_saves(lead, shown) == f"saves about 17.5 ms per step, {most} ms at most"
    document = report_to_dict(shown)
    assert document["verdict"]["most_recoverable_ns"] == verdict.most_recoverable_ns
    assert {one["id"]: one["most_recoverable_ns"] for one in document["findings"]}[lead.id] == lead.most_recoverable_ns


@pytest.mark.parametrize(("kind", "beyond"), [(GIL, BEYOND_SHARED), (MODULE_BUFFERS, BEYOND_SHARED), (GC, BEYOND)])
def test_what_takes_cores_from_the_work_beside_it_may_save_more(kind, beyond):
    assert beyond_of(kind) == beyond
    report = reports.overhead()
    cause = replace(report.verdict.findings[0], id=kind.id)
    verdict, _ = bounded(replace(report.verdict, findings=(cause,)), (cause,), is_cpu=True)
    assert verdict.most_recoverable_ns == most_ns(report.verdict.recoverable_ns, report.verdict.step_ns, beyond)


def test_what_saves_nothing_has_no_bound():
    report = reports.overhead()
    nothing = replace(report.verdict, recoverable_ns=0, findings=())
    verdict, _ = bounded(nothing, (), is_cpu=True)
    assert verdict.most_recoverable_ns is None
    assert words.gain_sentence(verdict) == ""
