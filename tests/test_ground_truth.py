"""The workloads' pathologies are found and their healthy twin is clean: in the committed traces, and in fresh ones."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from profkit.ranks.fleet import triage
from tests.capture.running import run_forked, trace_path
from tests.conftest import ROOT

MANIFEST = tomllib.loads((ROOT / "traces" / "MANIFEST.toml").read_text())["trace"]
WORKLOAD = str(ROOT / "workloads" / "train.py")
REGIMES = {"baseline": "kernel-bound", "data": "data-bound", "overhead": "overhead-bound", "kernel": "kernel-bound"}


@pytest.mark.parametrize("row", MANIFEST, ids=lambda row: row["file"].partition(".")[0])
def test_committed_traces_get_the_verdict_of_the_manifest(row: dict[str, object], traces: Path) -> None:
    verdict = triage([str(traces / str(row["file"]))]).verdict
    assert verdict.bottleneck == row["bottleneck"]
    assert verdict.is_healthy == row.get("healthy", False)
    assert verdict.confidence >= 0.5


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(3))
def test_regimes_captured_afresh_are_told_apart(seed: int, tmp_path: Path) -> None:
    """One regime after the other, in processes of their own that share what importing torch takes."""
    pytest.importorskip("torch")
    flags = ("--device", "cpu", "--seed", str(seed))
    more = {"overhead": ("--rounds", "96")}
    scripts = [(WORKLOAD, "--regime", regime, *flags, *more.get(regime, ())) for regime in REGIMES]
    runs = run_forked(tmp_path / "said", scripts, out=tmp_path / "out")
    for (regime, bottleneck), one in zip(REGIMES.items(), runs, strict=True):
        verdict = triage([str(trace_path(tmp_path / "out", one.pid))]).verdict
        assert (regime, verdict.bottleneck) == (regime, bottleneck), verdict.headline
        assert verdict.is_healthy == (regime == "baseline"), verdict.headline
        if regime == "kernel":
            assert verdict.findings[0].id == "kernel.unfused"
