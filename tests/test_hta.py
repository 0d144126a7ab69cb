"""Where Meta's HTA is right, profkit agrees with it on real traces (HTA's microsecond rounding switched off)."""

import gzip
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.ingest.kineto.reader import read_trace
from profkit.timeline.activity import device_activity
from tests.conftest import IN_FULL

pytestmark = [
    *(pytest.mark.hta, pytest.mark.shared, pytest.mark.sampled),
    pytest.mark.skipif(not IN_FULL, reason="HTA takes four seconds a trace: make full"),
]

# one device, no cuda_sync rows, streams above 0, integer or nanosecond timestamps: HTA's home ground
NAMES = (
    "hta-tests/trace_diff/control/control.json.gz",
    "hta-tests/timeline_analysis/sampled_rank-0.json.gz",
    "megatron-tp8-8xA100/megatron_kineto_0.json.gz",
    "tokenomics-llama-tp2/069bf5-llama_trace_4layers0_with_annotations.json.gz",
)


@contextmanager
def analysis(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give HTA's view of one trace alone in a folder, as rank 0."""
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    hta = pytest.importorskip("hta.trace_analysis")
    document = json.loads(gzip.decompress(path.read_bytes()))
    document["distributedInfo"] = {"rank": 0, "world_size": 1}
    target = folder / "rank0.json"
    target.write_text(json.dumps(document, indent=1))
    try:
        yield hta.TraceAnalysis(trace_dir=str(folder), include_last_profiler_step=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", NAMES)
def test_kernel_totals_busy_idle_and_overlap_agree(
    name: str, shared_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = read_trace(str(shared_traces / name))
    device = trace.device_indices[0]
    with (
        analysis(shared_traces / name, tmp_path / "hta", monkeypatch)
        if (tmp_path / "hta").mkdir() is None
        else None as theirs
    ):
        temporal = theirs.get_temporal_breakdown(visualize=False).iloc[0]
        overlap = float(theirs.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0])
        frame = theirs.get_gpu_kernel_breakdown(visualize=False, num_kernels=10**6, duration_ratio=1.0)[1]
        rows = theirs.t.traces[0]
        kept = rows[rows["stream"] != -1]
        low, high = float(kept["ts"].min()), float((kept["ts"] + kept["dur"]).max())
    total = int((trace.gpu.end_ns - trace.gpu.start_ns).sum()) / 1000
    assert total == pytest.approx(float(frame["sum (us)"].sum()), rel=1e-3)
    first = int(trace.gpu.start_ns.min())
    window = first, first + round((high - low) * 1000)
    ours = device_activity(replace(trace, window_ns=window), device)
    assert ours.compute.total_ns / 1000 == pytest.approx(float(temporal["compute_time(us)"]), rel=1e-3, abs=2)
    idle_us = (window[1] - window[0] - ours.any.total_ns) / 1000
    assert idle_us == pytest.approx(float(temporal["idle_time(us)"]), rel=1e-3, abs=2)
    hidden = 100 * (ours.comm & ours.compute).total_ns / ours.comm.total_ns
    assert hidden == pytest.approx(overlap, abs=0.1)
