"""The workloads' pathologies are found and their healthy twin is clean: in the committed traces, and in fresh ones."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from profkit.ranks.fleet import triage
from tests.conftest import ROOT

MANIFEST = tomllib.loads((ROOT / "traces" / "MANIFEST.toml").read_text())["trace"]
REGIMES = {"baseline": "kernel-bound", "data": "data-bound", "overhead": "overhead-bound", "kernel": "kernel-bound"}


@pytest.mark.parametrize("row", MANIFEST, ids=lambda row: row["file"].partition(".")[0])
def test_committed_traces_get_the_verdict_of_the_manifest(row: dict[str, object], traces: Path) -> None:
    verdict = triage([str(traces / str(row["file"]))]).verdict
    assert verdict.bottleneck == row["bottleneck"]
    assert verdict.is_healthy == row.get("healthy", False)
    assert verdict.confidence >= 0.5


@pytest.mark.torch
@pytest.mark.parametrize("repeat", range(3))
@pytest.mark.parametrize("regime", REGIMES)
def test_regimes_captured_afresh_are_told_apart(regime: str, repeat: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    workload = [sys.executable, "-m", "workloads.train", "--regime", regime, "--device", "cpu", "--seed", str(repeat)]
    if regime == "overhead":
        workload += ["--rounds", "96"]
    command = [sys.executable, "-m", "profkit", "capture", "-o", str(tmp_path), "--", *workload]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    verdict = triage([str(tmp_path)]).verdict
    assert verdict.bottleneck == REGIMES[regime], verdict.headline
    assert verdict.is_healthy == (regime == "baseline"), verdict.headline
    if regime == "kernel":
        assert verdict.findings[0].id == "kernel.unfused"
