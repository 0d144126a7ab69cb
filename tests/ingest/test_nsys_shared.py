"""Real nsys exports beside the repository: totals, attribution and budgets agree with plain SQL and a plain sweep."""

import gzip
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from profkit.analyzers import kernels
from profkit.api import triage
from profkit.errors import UnsupportedTraceError
from profkit.ingest.read import read_traces
from profkit.model.trace import Kind, Trace
from profkit.pipeline import analyse
from profkit.render.json.triage import report_to_dict
from profkit.render.markdown import triage as markdown
from profkit.render.schema import schema
from profkit.render.terminal import triage as terminal
from profkit.timeline import Facts
from profkit.timeline.host import enclosing_op
from tests.conftest import ROOT
from tests.ingest.nsys_files import RANK0, Export, global_pid

pytestmark = pytest.mark.shared

SHARED = ROOT.parent / "shared" / "data" / "nsys"
FILES = sorted(SHARED.glob("*.sqlite.gz")) if SHARED.is_dir() else []
STATS = sorted(SHARED.glob("stats/*_cuda_gpu_kern_sum.txt")) if SHARED.is_dir() else []
PROVENANCE = SHARED / "PROVENANCE.md"


def _id(path: Path) -> str:
    return path.name.removesuffix(".sqlite.gz")


def _plain(path: Path, folder: Path) -> Path:
    plain = folder / path.name.removesuffix(".gz")
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    return plain


def _select(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def _tables(path: Path) -> set[str]:
    return {name for (name,) in _select(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.mark.parametrize("path", FILES, ids=_id)
def test_a_report_or_one_line(path: Path, tmp_path: Path) -> None:
    plain = _plain(path, tmp_path)
    if not {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"} & _tables(plain):
        with pytest.raises(UnsupportedTraceError, match="holds no kernels"):
            triage([str(plain)])
        return
    report = triage([str(plain)])
    document = report_to_dict(report)
    json.dumps(document, allow_nan=False)
    jsonschema.Draft202012Validator(schema("triage")).validate(document)
    for rank in document["ranks"]:
        assert rank["format"] == "nsys"
        for device in rank["devices"]:
            assert sum(device["budget_ns"].values()) == rank["window"]["duration_ns"]
    for width in (60, 80, 200):
        terminal.render(report, width=width, color=False, verbose=True)
    assert markdown.render(report)
    assert plain.stat().st_size == len(gzip.decompress(path.read_bytes()))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [plain.name]


@pytest.mark.parametrize("path", FILES, ids=_id)
def test_every_row_that_its_provenance_counts_arrives(path: Path, tmp_path: Path) -> None:
    line = next(line for line in PROVENANCE.read_text().splitlines() if line.startswith(f"- `{_id(path)}"))
    told = {table: int(count) for table, count in re.findall(r"(\w+)=(\d+)", line)}
    try:
        traces = list(read_traces(str(_plain(path, tmp_path))))
    except UnsupportedTraceError:
        assert "CUPTI_ACTIVITY_KIND_KERNEL" not in told
        return
    n_device_rows = sum(told.get(f"CUPTI_ACTIVITY_KIND_{what}", 0) for what in ("KERNEL", "MEMCPY", "MEMSET"))
    assert sum(len(trace.gpu) for trace in traces) == n_device_rows
    assert sum(len(trace.calls) for trace in traces) == told["CUPTI_ACTIVITY_KIND_RUNTIME"]
    assert sum(len(trace.sync_rows) for trace in traces) == told.get("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 0)


@pytest.mark.parametrize("path", FILES, ids=_id)
def test_cpu_samples_agree_with_sql(path: Path, tmp_path: Path) -> None:
    """As many as nsys took of processes with kernels, and as many without a symbol for the innermost frame."""
    plain = _plain(path, tmp_path)
    if not {"COMPOSITE_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"} <= _tables(plain):
        pytest.skip("no CPU samples, or no kernels")
    told = _select(
        plain,
        "SELECT count(*), sum(ifnull(c.unresolved, 0) != 0 OR s.value LIKE '[%') FROM COMPOSITE_EVENTS e"
        " LEFT JOIN SAMPLING_CALLCHAINS c ON c.id = e.id AND c.stackDepth = 0 LEFT JOIN StringIds s ON s.id = c.symbol"
        " WHERE e.threadState IN (0, 1)"
        " AND e.globalTid >> 24 IN (SELECT globalPid >> 24 FROM CUPTI_ACTIVITY_KIND_KERNEL)",
    )
    found = [trace.samples for trace in read_traces(str(plain))]
    assert told == [(sum(map(len, found)), sum(int((samples.name < 0).sum()) for samples in found))]


@pytest.mark.parametrize("path", FILES, ids=_id)
def test_kernel_totals_agree_with_sql(path: Path, tmp_path: Path) -> None:
    """The SQL of NVIDIA's own cuda_gpu_kern_sum: count and time by demangled name."""
    plain = _plain(path, tmp_path)
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in _tables(plain):
        pytest.skip("no kernels")
    told = _select(
        plain,
        "SELECT value, count(*), sum(end - start), min(end - start), max(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        " JOIN StringIds ON demangledName = id GROUP BY demangledName",
    )
    found: dict[str, list[int]] = {}
    for trace in read_traces(str(plain)):
        for row in np.flatnonzero(trace.gpu.n_bytes < 0):
            duration = int(trace.gpu.end_ns[row] - trace.gpu.start_ns[row])
            found.setdefault(trace.name(int(trace.gpu.name[row])), []).append(duration)
    assert {name: (len(all_), sum(all_), min(all_), max(all_)) for name, all_ in found.items()} == {
        name.replace("<unnamed>", "(anonymous namespace)"): tuple(rest) for name, *rest in told
    }


def _attribution(trace: Trace) -> tuple[int, int, int]:
    """Give kernels, those with a launch call, and those whose call lies in an NVTX range of its thread."""
    rows = np.flatnonzero(trace.gpu.kind != Kind.COPY)
    launch = trace.gpu.launch_row[rows]
    launch = launch[launch >= 0]
    thread, at = trace.calls.thread[launch], trace.calls.start_ns[launch]
    inside = (enclosing_op(trace.ops, thread, at) >= 0) | (enclosing_op(trace.spans, thread, at) >= 0)
    return rows.size, launch.size, int(inside.sum())


@pytest.mark.parametrize(
    ("name", "n_kernels", "n_launched", "n_inside"),
    [
        ("torchrun_train_before", 4010, 3986, 3986),
        ("cupy_nvtx", 3689, 3689, 3682),
        ("torch_infer_nvtx", 3442, 3442 - 1810, 3442 - 1810),
    ],
)
def test_kernels_find_their_launch_and_its_nvtx_range(
    name: str, n_kernels: int, n_launched: int, n_inside: int
) -> None:
    paths = [path for path in FILES if name in path.name]
    if not paths:
        pytest.skip("no real exports beside this checkout")
    counts = np.sum([_attribution(trace) for trace in read_traces(str(paths[0]))], axis=0)
    assert counts.tolist() == [n_kernels, n_launched, n_inside]


def _sweep(rows: list[tuple[int, int, str]]) -> dict[str, int]:
    """Give compute, communication not under it, copies under neither, and idle: a plain walk over edges."""
    edges = sorted([(start, 1, kind) for start, _, kind in rows] + [(end, -1, kind) for _, end, kind in rows])
    count = {"compute": 0, "comm": 0, "copy": 0}
    out = dict.fromkeys((*count, "idle"), 0)
    last = edges[0][0]
    for time, change, kind in edges:
        out[next((name for name in count if count[name]), "idle")] += time - last
        count[kind] += change
        last = time
    return out


@pytest.mark.parametrize("name", ["torchrun_train_before", "torchrun_train_after", "torch_infer", "cupy"])
def test_the_budget_of_each_rank_agrees_with_a_sweep_over_sql(name: str, tmp_path: Path) -> None:
    paths = [path for path in FILES if name in path.name]
    if not paths:
        pytest.skip("no real exports beside this checkout")
    plain = _plain(paths[0], tmp_path)
    by_process: dict[int, list[tuple[int, int, str]]] = {}
    kernel_kind = "CASE WHEN value LIKE 'nccl%' THEN 'comm' ELSE 'compute' END"
    joined = "CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON demangledName = id"
    selects = [f"SELECT globalPid, start, end, {kernel_kind} FROM {joined}"]  # noqa: S608
    selects += [
        f"SELECT globalPid, start, end, 'copy' FROM {table}"  # noqa: S608
        for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
        if table in _tables(plain)
    ]
    for sql in selects:
        for process, start, end, kind in _select(plain, sql):
            by_process.setdefault(process >> 24 & 0xFFFFFF, []).append((start, end, kind))
    traces = list(read_traces(str(plain)))
    assert {trace.meta.metadata["pid"] for trace in traces} == set(by_process)
    assert [trace.meta.rank for trace in traces] == ([0, 1] if len(traces) == 2 else [None])
    for trace in traces:
        budget = Facts.of(trace).budget
        low, high = trace.window_ns
        rows = [
            (max(start, low), min(end, high), kind)
            for start, end, kind in by_process[trace.meta.metadata["pid"]]
            if end > low and start < high
        ]
        swept = _sweep([(low, low, "copy"), *rows, (high, high, "copy")])
        assert (budget.compute, budget.comm_exposed, budget.copy_exposed) == (
            swept["compute"],
            swept["comm"],
            swept["copy"],
        )
        assert budget.window_ns - budget.compute - budget.comm_exposed - budget.copy_exposed == swept["idle"]


def test_before_and_after_of_the_training_on_two_h100() -> None:
    """Two windows of 0.3 s, each inside one forward pass: what the fix changed lies outside them."""
    shares: dict[str, list[float]] = {}
    for path in FILES:
        if match := re.search("torchrun_train_(before|after)", path.name):
            analysed = [analyse(trace) for trace in read_traces(str(path))]
            shares[match[1]] = [round(one.facts.budget.fraction("compute"), 3) for one in analysed]
            assert all(one.facts.trace.steps == () for one in analysed)  # a layer is no step
            assert {one.verdict.bottleneck.value for one in analysed} == {"kernel-bound"}
    if not shares:
        pytest.skip("no real exports beside this checkout")
    assert shares == {"before": [0.846, 0.857], "after": [0.76, 0.761]}


def test_no_environment_is_ever_shown() -> None:
    n_shown = 0
    for path in FILES:
        try:
            report = triage([str(path)])
        except UnsupportedTraceError:
            continue
        shown = json.dumps(report_to_dict(report)) + terminal.render(report, width=200, color=False, verbose=True)
        for word in ("scrubbed", "LD_PRELOAD", "MODAL_TASK_SECRET", "PYTHONUNBUFFERED"):
            assert word not in shown
        n_shown += 1
    if not FILES:
        pytest.skip("no real exports beside this checkout")
    assert n_shown > len(FILES) / 2


@pytest.mark.parametrize("path", STATS, ids=lambda path: path.stem)
def test_an_export_of_what_nsys_stats_summed_gives_the_same_sums(path: Path, tmp_path: Path) -> None:
    """No export of these runs is public: rows with the same counts, times and names stand for them."""
    row = re.compile(r"\s+[\d.]+\s+(\d+)\s+(\d+)\s+(?:[\d.]+\s+){5}(\S.*?)\s*$")
    found = [match for line in path.read_text().splitlines() if (match := row.match(line))]
    told = [(int(match[1]), int(match[2]), match[3]) for match in found]
    assert len(told) > 10
    export, at = Export(), 1000
    for total, count, name in told[:10]:
        for number in range(count):
            duration = total // count + (number < total % count)
            export.kernel(at, at + duration, name, launched=False, correlation=1)
            at += duration + 1
    (trace,) = read_traces(str(export.write(tmp_path / "x.sqlite")))
    result = kernels.measure(Facts.of(trace))
    assert isinstance(result, kernels.Kernels)
    by_name: dict[str, tuple[int, int]] = {}
    for total, count, name in told[:10]:  # two kernels may share the 100 columns that the text shows
        known = by_name.get(name, (0, 0))
        by_name[name] = (known[0] + total, known[1] + count)
    assert {use.name: (use.total_ns, use.count) for use in result.top} == {
        name.replace("<unnamed>", "(anonymous namespace)"): value for name, value in by_name.items()
    }
    assert trace.meta.metadata["pid"] == RANK0 == global_pid(RANK0) >> 24 & 0xFFFFFF


@pytest.mark.skipif(not FILES, reason="no real exports beside this checkout")
def test_without_steps_no_sentence_speaks_of_them() -> None:
    (path,) = [path for path in FILES if "cuda_softmax" in path.name]
    report = triage([str(path)])
    said = [item.statement for finding in report.findings for item in finding.evidence]
    assert report.verdict.step_ns is None
    assert any(line.startswith("copies from the device take 21.2 ms in the window") for line in said)
    assert not [line for line in said if "per step" in line]


@pytest.mark.skipif(not FILES, reason="no real exports beside this checkout")
def test_ranges_that_recur_are_steps_whatever_they_are_called() -> None:
    """`Step 190 to 200` names ten steps at once, fifty times, inside one `Loop`."""
    (path,) = [path for path in FILES if "cupy_nvtx" in path.name]
    (trace,) = read_traces(str(path))
    assert trace.step_source == "ranges"
    assert len(trace.steps) > 40
    assert np.median([step.duration_ns for step in trace.steps]) == pytest.approx(40_000_000, rel=0.1)
