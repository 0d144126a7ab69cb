"""On a run without a GPU every proof and every next step is one that can be done there."""

import re
from pathlib import Path

import pytest

from profkit.api import triage
from profkit.findings import KINDS
from profkit.model.finding import Finding
from tests.conftest import ROOT, every

NEEDS_A_DEVICE = {
    *("device.unused", "host.sync", "host.cpu_operators", "h2d.exposed", "d2h.exposed", "memory.pressure"),
    *("memory.fragmented", "memory.warmup", "kernel.layout", "precision.fallback", "precision.no_tf32"),
    *("kernel.below_roof", "roof.above"),
}
"""Findings about a device, which no trace of a CPU has."""
OF_A_GPU = re.compile(
    r"GPU|cuda|nccl|\bncu\b|tf32|pinned|pin_memory|nvidia|compression|reduce-overhead|\bdevice", re.IGNORECASE
)
ON_CPU = sorted(
    path for path in (ROOT / "traces").iterdir() if path.is_dir() or path.name.endswith("_cpu.pt.trace.json.gz")
)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.id)
def test_a_proof_can_be_done_where_the_finding_is_made(kind):
    if kind.id not in NEEDS_A_DEVICE and kind.id != "comm.slow_link":  # its hosts or its devices
        assert not OF_A_GPU.search(kind.proof_for(is_cpu=True))


@pytest.mark.parametrize("path", every(3, ON_CPU, 0.4), ids=lambda path: path.name)
def test_advice_on_a_cpu_names_nothing_of_a_gpu(path: Path):
    report = triage(path)
    for finding in report.findings:
        assert finding.id not in NEEDS_A_DEVICE
        for said in _said(finding):
            assert not OF_A_GPU.search(said), (finding.id, said)
    assert not OF_A_GPU.search(report.verdict.proof)


def _said(finding: Finding):
    yield finding.fix
    yield finding.proof
    for tool in finding.next_tools:
        yield from (tool.purpose, tool.look_for, tool.command)
        if tool.name == "nsys":
            assert "--whole" in tool.command, "nothing opens the range that nsys waits for"
