"""Many devices, streams, threads, steps, names: the time and room of the rows, not of rows times any of these."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given

from profkit.analyzers import streams
from profkit.errors import UnsupportedTraceError
from profkit.ingest.assemble.devices import MAX_DEVICES
from profkit.ingest.kineto.reader import read_trace
from profkit.ingest.nsys.rows import Rows
from profkit.ingest.nsys.session import process_of
from profkit.model import arrays
from profkit.model.trace import EMBEDDED, CountedWork, Step
from profkit.pipeline import triage_trace
from profkit.render.json.triage import _rank
from profkit.render.terminal import triage as terminal
from profkit.testing import Row, kernel, launch, row_lists, span, trace_of
from profkit.timeline import host
from profkit.timeline.steps import told
from tests.conftest import ROOT, dear, rarely
from tests.drawing import finding_in

ROWS = 20_000
MOST_S = 20.0
"""For a process of its own with Python's start-up: ten times what it takes alone on this machine."""
MOST_KB = 300_000
UNITS = ("cudnn", "((((<")


def rows(n: int, kind: str) -> Iterator[dict[str, object]]:
    for row in range(n):
        own = {kind: row}
        args = {"device": own.get("device", 0), "stream": own.get("stream", 7), "correlation": row + 1}
        host_row = {"ph": "X", "pid": own.get("pid", 1), "tid": own.get("tid", 1), "ts": 10 * row}
        name = f"op{own.get('name', '')}"
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 4, "args": {"correlation": row + 1}}
        yield {**host_row, "cat": "cpu_op", "name": f"aten::{name}", "dur": 8}
        yield {**host_row, **call}
        yield {"ph": "X", "cat": "kernel", "name": name, "ts": 10 * row + 5, "dur": 5, "args": args}
        if "step" in own:
            yield {**host_row, "cat": "user_annotation", "name": f"ProfilerStep#{row}", "dur": 10}
        if "cat" in own:
            yield {**host_row, "cat": f"cat{row}", "name": "x", "dur": 1}
        if "range" in own:
            yield {**host_row, "cat": "user_annotation", "name": f"range {row}", "dur": 1}


def assert_bounded(path: Path, shown: str) -> None:
    """A process of its own reads the trace and shows the report in the time and the room of its rows."""
    code = (
        "from profkit.api import triage\n"
        "from profkit.render.json import triage as json\n"
        "from profkit.render.markdown import triage as markdown\n"
        "from profkit.render.terminal import triage as terminal\n"
        f"report = triage([{str(path)!r}])\n{shown}\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT, timeout=MOST_S)
    assert int(done.stdout) < MOST_KB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "kind", ["stream", rarely(1.4, "tid"), dear("pid"), "name", rarely(3.5, "step"), dear("cat"), "range"]
)
def test_time_and_room_are_those_of_the_rows(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"traceEvents": list(rows(ROWS, kind))}))
    assert_bounded(path, "json.render(report), markdown.render(report), terminal.render(report, verbose=True)")


def test_more_devices_than_there_can_be_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"traceEvents": list(rows(MAX_DEVICES + 1, "device"))}))
    with pytest.raises(UnsupportedTraceError, match=f"name {MAX_DEVICES + 1} devices, 0 to {MAX_DEVICES}"):
        read_trace(str(path))
    path.write_text(json.dumps({"traceEvents": list(rows(MAX_DEVICES, "device"))}))
    rank, _ = triage_trace(read_trace(str(path)))
    assert len(rank.devices) == MAX_DEVICES
    assert all(device.budget.window_ns == rank.devices[0].budget.window_ns for device in rank.devices)


@given(drawn=row_lists())
def test_many_are_worked_on_together_with_the_same_result(drawn: list[Row]) -> None:
    trace = trace_of(drawn)
    with pytest.MonkeyPatch.context() as patch:
        answers = []
        for many in (0, 10**9):
            for module in (arrays, host, streams):
                patch.setattr(module, "MANY", many)
            answers.append(_rank(triage_trace(trace)[0]))
    assert answers[0] == answers[1]


def test_streams_beyond_the_most_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_STREAMS", 3)
    drawn = [kernel("k", 100 * n, 100 * n + n + 1, correlation=n + 1, stream=n) for n in range(5)]
    rank, _ = triage_trace(trace_of([*drawn, *(launch(100 * n, 100 * n + 1, correlation=n + 1) for n in range(5))]))
    assert [use.stream for use in rank.devices[0].streams] == [4, 3, 2]
    section = next(section for section in rank.sections if section.analyzer == "streams")
    assert section.values["n_streams"] == 5
    assert "3 of 5" in section.tables[0].note


def test_streams_that_are_not_shown_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 streams were "6 and 1018 more": of those the report keeps, not of those there are."""
    monkeypatch.setattr(streams, "MAX_STREAMS", 8)
    drawn = [kernel("k", 100 * n, 100 * n + n + 1, correlation=n + 1, stream=n) for n in range(2000)]
    rank, _ = triage_trace(trace_of(drawn))
    assert len(rank.devices[0].streams) == 8
    assert [text for text, _ in terminal._stream_entries(rank.devices[0])][-1] == "and 1,994 more"


def test_times_far_apart_are_not_laid_on_one_line() -> None:
    group = np.arange(4)
    assert arrays.laid_out((group,), (np.array([0, 1, 2, 2**61]),)) is None
    (line,) = arrays.laid_out((group,), (np.array([5, 6, 7, 8]),)) or []
    assert (np.diff(line) > 0).all()


def test_rows_by_value_are_in_order() -> None:
    found = [(int(value), rows.tolist()) for value, rows in arrays.rows_by_value(np.array([3, 1, 3, 2, 1]))]
    assert found == [(1, [1, 4]), (2, [3]), (3, [0, 2])]
    assert list(arrays.rows_by_value(np.empty(0, np.int64))) == []


def test_kernels_that_share_time_cost_no_more_than_it() -> None:
    """fp32 products on four streams at once: 360 % of the window, before."""
    names = [f"ampere_sgemm_{n}" for n in range(4)] + ["ampere_bf16_s16816gemm"]
    drawn = [kernel(name, 1000, 10_000, correlation=n + 1, stream=n) for n, name in enumerate(names)]
    calls = [launch(900 + n, 901 + n, correlation=n + 1) for n in range(len(names))]
    found = finding_in([span("ProfilerStep#0", 0, 10_000), *drawn, *calls], "precision.fallback")
    assert found.fraction == pytest.approx(0.9 * 15 / 16, rel=1e-3)  # what half precision could save of it
    assert found.recoverable_ns <= 10_000


@given(drawn=row_lists())
def test_every_share_is_one(drawn: list[Row]) -> None:
    rank, verdict = triage_trace(trace_of(drawn))
    for finding in (*rank.findings, *verdict.findings):
        assert 0 <= finding.fraction <= 1
        assert all(-1 <= item.value <= 1 for item in finding.evidence if item.unit == "fraction")
    for section in rank.sections:
        for table in section.tables:
            places = [place for place, unit in enumerate(table.units) if unit == "fraction"]
            assert all(0 <= row[place] <= 1 + 1e-9 for row in table.rows for place in places if row[place] is not None)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("cat", ["kernel", dear("cpu_op"), "user_annotation", dear("cuda_runtime")])
def test_a_name_of_megabytes_is_answered_at_once(cat: str, tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    args = {"device": 0, "stream": 7, "correlation": 1, "External id": 1}
    long = [{"ph": "X", "cat": cat, "name": unit * (4 * 10**6 // 5), "ts": 5, "dur": 2, "args": args} for unit in UNITS]
    path.write_text(json.dumps({"torch_version": "\u4e2d" * 200_000, "traceEvents": [*rows(50, "x"), *long]}))
    assert_bounded(path, "markdown.render(report), terminal.render(report, verbose=True)")


@pytest.mark.parametrize("n_names", [1, 2 * ROWS])
def test_counts_of_many_tables_take_the_time_of_the_rows(n_names: int) -> None:
    """An embedding's table is a name, and each can be another."""
    n = 2 * ROWS
    steps = tuple(Step(index=row, number=row, start_ns=10 * row, end_ns=10 * row + 10) for row in range(n))
    start = np.arange(n, dtype=np.int64) * 10 + 1
    name = np.arange(n, dtype=np.int32) % n_names
    work = CountedWork(start_ns=start, name=name, value=np.arange(n, dtype=np.float64))
    begun = time.process_time()
    counts = told(SimpleNamespace(steps=steps, work=work, name=lambda _: f"{EMBEDDED}1, 4"))
    assert time.process_time() - begun < 3.0
    assert counts["embedded"].tolist() == list(range(n))


def test_processes_of_an_export_take_the_time_of_the_rows() -> None:
    owner = np.arange(ROWS, dtype=np.int64) << 24
    columns = {name: np.arange(ROWS, dtype=np.int64) for name in ("start_ns", "end_ns", "name", "stream", "device")}
    spent_s = []
    for _ in range(3):  # beside other work a core's time is worth less: the best of them counts
        found = Rows()
        begun = time.thread_time()
        found.add("gpu", "kernel", owner, columns)
        spent_s.append(time.thread_time() - begun)
    assert min(spent_s) < 1.0
    assert len(found.processes) == len({int(key) for key in process_of(owner)})
