"""Each flaw of `workloads.patterns` is found in a capture of it, and not in one of its healthy twin."""

from pathlib import Path

import pytest

from profkit.api import triage
from profkit.model.documents.report import Bottleneck, Report
from profkit.model.finding import Finding
from tests.capture.running import run_forked, trace_path
from tests.conftest import IN_FULL, ROOT
from workloads.patterns import CASES

WORKLOAD = str(ROOT / "workloads" / "patterns.py")
SAMPLE = ("gc",)  # its ranges are profkit capture's own; the others' are torch's, in drawn traces as well
FINDINGS = {
    "gc": "host.gc",
    "recompile": "host.recompile",
    "breaks": "host.graph_breaks",
    "contention": "host.contention",
    "threads": "host.contention",
    "optimizer": "host.optimizer_loop",
    "casts": "precision.casts",
    "recompute": "work.recompute",
}
HEADLINES = ("gc", "recompile")
"""Cases whose finding is also the verdict: of the others Python, on layers so small, has most of the step."""


def found(report: Report, finding_id: str) -> Finding | None:
    """The finding of that id, if there is one."""
    return next((one for one in report.findings if one.id == finding_id), None)


def wanted_cores(finding: Finding | None) -> float:
    """How many cores the threads of the process wanted at a time."""
    return 0.0 if finding is None else finding.seen("scheduling.wanted_cores").value


def test_every_case_has_a_finding() -> None:
    assert set(FINDINGS) == set(CASES)


@pytest.mark.long(11)
@pytest.mark.afresh
@pytest.mark.sampled
@pytest.mark.torch
def test_a_flaw_is_found_and_its_healthy_twin_is_quiet(tmp_path: Path) -> None:
    """Captured one after the other. Of cores the machine's other jobs take some: there the twin has less of it."""
    pytest.importorskip("torch")
    cases = CASES if IN_FULL else SAMPLE
    scripts = [(WORKLOAD, case, *more) for case in cases for more in ((), ("--healthy",))]
    runs = run_forked(tmp_path / "said", scripts, out=tmp_path / "out", options=("--shapes",))
    reports = [triage([str(trace_path(tmp_path / "out", one.pid))]) for one in runs]
    for case, flawed, healthy in zip(cases, reports[::2], reports[1::2], strict=True):
        finding, twin = found(flawed, FINDINGS[case]), found(healthy, FINDINGS[case])
        assert finding is not None, (case, flawed.verdict.headline)
        if case == "contention":
            assert twin is None or twin.fraction < finding.fraction
        elif case == "threads":
            assert wanted_cores(twin) < wanted_cores(finding)
        else:
            assert twin is None, (case, healthy.verdict.headline)
        if case in HEADLINES:
            assert flawed.verdict.bottleneck is Bottleneck.OVERHEAD
            assert flawed.verdict.findings[0].id == FINDINGS[case], flawed.verdict.headline
