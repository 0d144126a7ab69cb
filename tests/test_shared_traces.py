"""Real traces beside the repository: busy, overlap and idle agree with an independent sweep, and nothing crashes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from profkit.errors import ProfkitError
from profkit.ingest.kineto import read_trace
from profkit.model.trace import Trace
from profkit.ranks.fleet import triage
from profkit.render import markdown, terminal
from profkit.render.json import report_to_dict
from profkit.render.schema import schema
from profkit.timeline.activity import device_activity
from tests.conftest import SHARED_TRACES

pytestmark = pytest.mark.shared

FILES = sorted(SHARED_TRACES.rglob("*.json.gz")) if SHARED_TRACES.is_dir() else []
MEASURED = ("compute", "comm", "memcpy", "busy", "overlap", "exposed", "idle")


def _id(path: Path) -> str:
    return str(path.relative_to(SHARED_TRACES))


@pytest.mark.parametrize("path", FILES, ids=_id)
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
        return {triage([str(path)]).verdict.bottleneck.value for path in FILES if path.match(pattern)}

    assert bottleneck("kineto-tb-samples/resnet50_num_workers_0/*") == {"data-bound"}
    assert "data-bound" not in bottleneck("kineto-tb-samples/resnet50_num_workers_4/*")
    assert bottleneck("megatron-tp8-8xA100/*") == {"comm-bound"}
    small = [path for n in (2, 4, 8, 16, 32, 64) for path in FILES if path.match(f"*/batch_size_{n}-*")]
    assert {triage([str(path)]).verdict.bottleneck.value for path in small} == {"overhead-bound"}
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
