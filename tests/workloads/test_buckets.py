"""Small gradient buckets are found in a capture of two ranks, and not where DDP chooses their size."""

import subprocess
import sys
from pathlib import Path

import pytest

from profkit.api import triage
from profkit.model.finding import Finding
from tests.conftest import IN_FULL, ROOT

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.skipif(not IN_FULL, reason="two captures of two ranks: make full")]

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
CAPTURE = [sys.executable, "-m", "profkit", "capture", "--shapes", "--no-stacks", "--steps", "8"]


def found(folder: Path, *flags: str) -> Finding | None:
    """What the first rank's trace of a job with these flags says of its buckets."""
    line = [*CAPTURE, "-o", str(folder), "--", *TORCHRUN, "-m", "workloads.buckets", *flags]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True)
    report = triage([str(folder / "rank0.pt.trace.json.gz")])
    return next((one for one in report.findings if one.id == "comm.buckets"), None)


@pytest.mark.afresh
def test_small_buckets_are_found_and_the_usual_ones_are_quiet(tmp_path: Path) -> None:
    finding = found(tmp_path / "small", "--bucket-mb", "0.02")
    assert finding.title == "DDP reduces gradients in many small buckets"
    assert found(tmp_path / "usual") is None
