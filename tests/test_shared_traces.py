"""Real traces beside the repository: busy, overlap and idle agree with an independent sweep, and nothing crashes."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from profkit.api import triage
from profkit.errors import ProfkitError
from profkit.ingest.kineto.reader import read_trace
from profkit.model.documents.report import Report
from profkit.model.finding import Finding
from profkit.model.trace import Trace
from profkit.render.json.triage import report_to_dict
from profkit.render.markdown import triage as markdown
from profkit.render.schema import schema
from profkit.render.terminal import triage as terminal
from profkit.timeline.activity import device_activity
from tests.conftest import SHARED_TRACES, every
from tests.test_one_number import assert_one_number

pytestmark = pytest.mark.shared

FILES = sorted(SHARED_TRACES.rglob("*.json.gz")) if SHARED_TRACES.is_dir() else []
MEASURED = ("compute", "comm", "memcpy", "busy", "overlap", "exposed", "idle")


def _id(path: Path) -> str:
    return str(path.relative_to(SHARED_TRACES))


_BOTTLENECKS: dict[Path, str] = {}
"""Verdicts that this process has found: each file is judged once."""


def _bottleneck(path: Path) -> str:
    if path not in _BOTTLENECKS:
        _BOTTLENECKS[path] = triage([str(path)]).verdict.bottleneck.value
    return _BOTTLENECKS[path]


@pytest.mark.parametrize("path", every(4, FILES, 0.5), ids=_id)
def test_a_report_or_one_line(path: Path) -> None:
    try:
        report = triage([str(path)])
    except ProfkitError as refused:
        error = refused
    else:
        error = None
    if error is not None:
        assert error.exit_code in {3, 4}
        assert "\n" not in error.message
        assert path.name in error.message
        return
    _BOTTLENECKS[path] = report.verdict.bottleneck.value
    for tool in (report.verdict.next_tool, *(tool for finding in report.findings for tool in finding.next_tools)):
        assert "--" not in tool.purpose, "an option belongs into the command, which runs as printed"
    if len(report.ranks) == 1 and report.ranks[0].devices:
        assert_one_number(report)
    document = report_to_dict(report)
    json.dumps(document, allow_nan=False)
    jsonschema.Draft202012Validator(schema("triage")).validate(document)
    for rank in document["ranks"]:
        for device in rank["devices"]:
            assert sum(device["budget_ns"].values()) == rank["window"]["duration_ns"]
    for width in (60, 80, 200):
        terminal.render(report, width=width, color=False, verbose=True)
    assert markdown.render(report)


def _sweep(trace: Trace, device: int) -> dict[str, int]:
    """Measure one device by a plain walk over edges: shares no code with the interval algebra."""
    gpu = trace.gpu
    rows = [row for row in range(len(gpu)) if gpu.device[row] == device and gpu.end_ns[row] > gpu.start_ns[row]]
    edges = [(int(gpu.start_ns[row]), 1, int(gpu.kind[row])) for row in rows]
    edges += [(int(gpu.end_ns[row]), -1, int(gpu.kind[row])) for row in rows]
    count, last, out = [0, 0, 0], 0, dict.fromkeys(MEASURED, 0)
    for time, change, kind in sorted(edges):
        length = time - last if any(count) else 0
        compute, comm, copy = (n > 0 for n in count)
        for name, holds in (
            ("compute", compute),
            ("comm", comm),
            ("memcpy", copy),
            ("busy", compute or comm or copy),
            ("overlap", compute and comm),
            ("exposed", comm and not compute),
        ):
            out[name] += length * holds
        count[kind] += change
        last = time
    return out


def _gpu_files() -> list[tuple[str, dict[str, Any]]]:
    if not SHARED_TRACES.is_dir():
        return []
    reference = json.loads((SHARED_TRACES / "REFERENCE.json").read_text())
    return [(name, row["reference"]) for name, row in reference.items() if (row.get("reference") or {}).get("gpu")]


@pytest.mark.parametrize(("name", "reference"), _gpu_files(), ids=lambda value: value if isinstance(value, str) else "")
def test_busy_overlap_and_idle_agree_with_two_sweeps(name: str, reference: dict[str, Any]) -> None:
    trace = read_trace(str(SHARED_TRACES / name))
    for row in reference["gpu"]:
        device = row["dev"]
        mine = trace.gpu.device == device
        window = int(trace.gpu.start_ns[mine].min()), int(trace.gpu.end_ns[mine].max())
        activity = device_activity(replace(trace, window_ns=window), device)
        found = {
            "compute": activity.compute.total_ns,
            "comm": activity.comm.total_ns,
            "memcpy": activity.copy.total_ns,
            "busy": activity.any.total_ns,
            "overlap": (activity.comm & activity.compute).total_ns,
            "exposed": (activity.comm - activity.compute).total_ns,
            "idle": window[1] - window[0] - activity.any.total_ns,
        }
        swept = _sweep(trace, device)
        assert {name: found[name] for name in swept if name != "idle"} == {
            k: v for k, v in swept.items() if k != "idle"
        }
        for key, value in found.items():
            if row.get(key) is not None:
                assert abs(value / 1e6 - row[key]) <= 0.001 + 1e-9, key  # the reference is rounded to 1 us


def test_known_truths() -> None:
    if not FILES:
        pytest.skip("no real traces beside this checkout")

    def bottleneck(pattern: str) -> set[str]:
        return {_bottleneck(path) for path in FILES if path.match(pattern)}

    # one of these runs twice as slowly on its host: its twin with workers shows what then remains, late launches
    slow = "kineto-tb-samples/resnet50_num_workers_{}/{}*"
    assert bottleneck("kineto-tb-samples/resnet50_num_workers_0/*") == {"data-bound", "overhead-bound"}
    assert bottleneck(slow.format(0, "2d19c6")) == bottleneck(slow.format(4, "7bd25b")) == {"overhead-bound"}
    assert "data-bound" not in bottleneck("kineto-tb-samples/resnet50_num_workers_4/*")
    # six ranks wait for ranks 0 and 6, whose hosts are late: rank 0 alone shows that of itself
    assert bottleneck("megatron-tp8-8xA100/*_[1-7].json.gz") == {"comm-bound"}
    assert bottleneck("megatron-tp8-8xA100/*_0.json.gz") == {"overhead-bound"}
    small = [path for n in (2, 4, 8, 16, 32, 64) for path in FILES if path.match(f"*/batch_size_{n}-*")]
    assert {_bottleneck(path) for path in small} == {"overhead-bound"}
    assert bottleneck("*/batch_size_128-*") == {"kernel-bound"}
    assert bottleneck("*/batch_size_256-*") == bottleneck("*/batch_size_512-*") == {"inconclusive"}


def test_a_gzipped_and_a_plain_file_are_the_same(tmp_path: Path) -> None:
    if not FILES:
        pytest.skip("no real traces beside this checkout")
    source = min((path for path in FILES if "megatron" in path.name), key=lambda path: path.stat().st_size)
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(source.read_bytes()))
    first, second = report_to_dict(triage([str(source)])), report_to_dict(triage([str(plain)]))
    for document in (first, second):
        document["ranks"][0]["source"] = document["verdict"]["source"] = ""
    assert first == second


def _finding(report: Report, finding_id: str) -> Finding:
    return next(finding for finding in report.findings if finding.id == finding_id)


@pytest.mark.parametrize("name", ["compile_w0", "plain_w0", "zerocode_compmod__rank0", "zerocode_fusedbw__rank0"])
def test_dispatch_is_not_said_to_cost_more_than_work_that_costs_more(shared_traces: Path, name: str) -> None:
    report = triage([str(shared_traces / "cpu_captures" / f"{name}.pt.trace.json.gz")])
    found, budget = _finding(report, "host.launch_bound"), report.ranks[0].devices[0].budget
    assert "overhead slow" in found.title
    assert found.fraction == pytest.approx(budget.fraction("idle_launch") + budget.fraction("idle_host"))
    assert "CUDA" not in found.fix


def test_tf32_is_not_called_full_precision(shared_traces: Path) -> None:
    folder = shared_traces / "odd" / "Quentin-Anthony__torch-profiling-tutorial"
    found = _finding(triage([str(min(folder.iterdir()))]), "precision.fallback")
    assert found.title == "matrix kernels run in tf32, not in half precision"
    assert found.evidence[0].statement.startswith("0.0 % of matrix-kernel time is in fp32, 100.0 % in tf32")
    assert "set_float32_matmul_precision" not in found.fix  # it would give what is there already


def test_of_collectives_on_a_cpu_nsys_sees_nothing(shared_traces: Path) -> None:
    report = triage([str(shared_traces / "cpu_captures" / "gloo_ddp.rank0.pt.trace.json.gz")])
    assert _finding(report, "comm.exposed").next_tools[0].command.startswith("profkit capture ")
    report = triage([str(shared_traces / "megatron-tp8-8xA100" / "megatron_kineto_4.json.gz")])
    assert _finding(report, "comm.exposed").next_tools[0].command.startswith("profkit nsys ")


def test_memory_is_not_pinned_for_a_cpu(shared_traces: Path) -> None:
    report = triage([str(shared_traces / "cpu_captures" / "et_w0.pt.trace.json.gz")])
    assert _finding(report, "input.starved").fix.endswith("persistent_workers=True")
    folder = shared_traces / "kineto-tb-samples" / "resnet50_num_workers_0"
    report = triage([str(min(folder.iterdir()))])
    assert _finding(report, "input.starved").fix.endswith("pin_memory=True")


def test_one_row_is_not_rows(shared_traces: Path) -> None:
    report = triage([str(shared_traces / "odd" / "kineto-docs" / "before_fix_trace.json.gz")])
    assert "1 row of activity recorded: too little for a verdict" in report.verdict.headline


def test_what_is_judged_alone_is_not_said_to_be_left_out(shared_traces: Path) -> None:
    text = terminal.render(triage([str(shared_traces / "hta-tests" / "trace_diff")]), width=80, color=False)
    assert "read         test.json.gz" in text
    assert "not joined   - test.json.gz: from another job" in text
    assert "left out" not in text


def test_traces_side_by_side_can_be_told_apart(shared_traces: Path) -> None:
    text = terminal.render(triage([str(shared_traces / "particle-transformer-batchsweep")]), width=80, color=False)
    assert "  9 traces, each over its own window" in text
    labels = re.findall(r"^  (batch_size_\d+)", text, re.MULTILINE)
    assert sorted(int(label.removeprefix("batch_size_")) for label in labels) == [2**k for k in range(1, 10)]


def test_a_stall_of_microseconds_is_not_called_a_start_up(shared_traces: Path) -> None:
    report = triage([str(shared_traces / "odd" / "rocm-aorta" / "smci350_200691.pt.trace.json.gz")])
    said = _finding(report, "host.stall").evidence[0].statement
    assert "the longest takes 126 us, too few to separate" in said
    report = triage([str(shared_traces / "hta-tests" / "triton_example" / "triton_example.json.gz")])
    assert (
        "the longest takes 13.3 s, as in start-up, compilation" in _finding(report, "host.stall").evidence[0].statement
    )


def test_one_wait_of_one_step_is_singular(shared_traces: Path) -> None:
    report = triage([str(shared_traces / "odd" / "kineto-tb-gpu-metrics" / "gpu_metrics_input.json.gz")])
    said = [item.statement for item in _finding(report, "input.starved").evidence]
    assert said[1] == "one wait takes 725 us"
    assert "the training process makes each batch itself" in said[2]
