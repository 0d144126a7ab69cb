"""On real traces with shapes nothing is faster than its device, and matrix kernels have FLOPs."""

import pytest

from profkit.analyzers.roof import ANALYZER
from profkit.ingest.kineto.reader import read_trace
from profkit.timeline import Facts
from tests.conftest import SHARED_TRACES

pytestmark = pytest.mark.shared

# where in the set, the device, the least share of matrix-kernel time with FLOPs
TRACES = [
    ("megatron-tp8-8xA100/megatron_kineto_0.json.gz", "A100 80 GB SXM", 0.99),
    ("odd/Quentin-Anthony__torch-profiling-tutorial/af68c4*.json.gz", "H100 SXM", 0.99),
    ("odd/CodingPlatelets__SwitchTransformers/7ced8f*.json.gz", "A100 80 GB PCIe", 0.99),
    ("particle-transformer-batchsweep/batch_size_512-*.json.gz", "A100 40 GB", 0.99),
    ("segment-anything-eager-vs-compiled/amg_example_trace-6d986f.json.gz", "A100 40 GB", 0.75),
    ("tracelens-tests/inference/xdit_sd_3.5/profile_trace_rank_0.json.gz", "MI300X", 0.99),
    ("tracelens-tests/b200/eager_trace.json.gz", "B200", 0.12),  # no shape tells the FLOPs of vLLM's experts
    ("segment-anything-eager-vs-compiled/asdf_False-410efe.json.gz", "A100 40 GB", 0.9),
    ("param-et-replay/dlrm_kineto/worker0_*.json.gz", "V100 SXM2", 0.0),
]


@pytest.mark.parametrize(("pattern", "device", "least"), TRACES, ids=[pattern[:30] for pattern, *_ in TRACES])
def test_nothing_is_above_its_roof(pattern: str, device: str, least: float) -> None:
    found = sorted(SHARED_TRACES.glob(pattern)) if SHARED_TRACES.is_dir() else []
    if not found:
        pytest.skip("no shared traces here")
    result = ANALYZER.measure(Facts.of(read_trace(str(found[0]))))
    assert result.peak.name == device
    assert result.matrix_known_share >= least
    assert result.above == ()
    assert all(family.share is None or 0 < family.share <= 1.02 for family in result.families)
    assert result.mfu is None or 0 < result.mfu < 1
    assert result.left_ns <= result.busy_ns


def test_a_device_above_its_data_sheet_is_told_and_has_no_mfu() -> None:
    path = SHARED_TRACES / "tokenomics-llama-tp2" / "8f176e-llama_trace_4layers0_dim_1024.json.gz"
    if not path.is_file():
        pytest.skip("no shared traces here")
    result = ANALYZER.measure(Facts.of(read_trace(str(path))))
    assert {use.operator for use in result.above} == {"aten::linear"}
    assert result.above_ns > 0.5 * result.work_ns
    assert (result.mfu, result.hfu) == (None, None)
    assert [finding.id for finding in ANALYZER.judge(result)] == ["roof.above"]
