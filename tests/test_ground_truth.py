"""The workloads' pathologies are found and their healthy twin is clean: in the committed traces, and in fresh ones."""

import os
import tomllib
from pathlib import Path

import pytest

from profkit.api import triage
from tests.capture.running import run_forked, trace_path
from tests.conftest import ROOT

MANIFEST = tomllib.loads((ROOT / "traces" / "MANIFEST.toml").read_text())["trace"]
WORKLOAD = str(ROOT / "workloads" / "train.py")
N_SEEDS = int(os.environ.get("PROFKIT_SEEDS", "1"))
REGIMES = {"baseline": "kernel-bound", "data": "data-bound", "overhead": "overhead-bound", "kernel": "kernel-bound"}


@pytest.mark.parametrize("row", MANIFEST, ids=lambda row: row["file"].partition(".")[0])
def test_committed_traces_get_the_verdict_of_the_manifest(row: dict[str, object], traces: Path) -> None:
    verdict = triage([str(traces / str(row["file"]))]).verdict
    assert verdict.bottleneck == row["bottleneck"]
    assert verdict.is_healthy == row.get("healthy", False)
    assert verdict.confidence >= 0.5


@pytest.mark.afresh
@pytest.mark.torch
def test_regimes_captured_afresh_are_told_apart(tmp_path: Path) -> None:
    """One regime after the other, in processes of their own that share what importing torch takes.

    `make afresh` takes three seeds of each.
    """
    pytest.importorskip("torch")
    more = {"overhead": ("--rounds", "96")}
    cases = [(seed, regime, bottleneck) for seed in range(N_SEEDS) for regime, bottleneck in REGIMES.items()]
    scripts = [
        (WORKLOAD, "--regime", regime, "--device", "cpu", "--seed", str(seed), *more.get(regime, ()))
        for seed, regime, _ in cases
    ]
    runs = run_forked(tmp_path / "said", scripts, out=tmp_path / "out")
    for (seed, regime, bottleneck), one in zip(cases, runs, strict=True):
        verdict = triage([str(trace_path(tmp_path / "out", one.pid))]).verdict
        assert (seed, regime, verdict.bottleneck) == (seed, regime, bottleneck), verdict.headline
        is_crowded = any(
            finding.id in ("host.contention", "host.cores_taken") for finding in verdict.findings
        )  # the machine, not the job
        assert verdict.is_healthy == (regime == "baseline" and not is_crowded), verdict.headline
        if regime == "kernel":
            assert verdict.findings[0].id == "kernel.unfused"
